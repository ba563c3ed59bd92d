# shellcheck shell=dash disable=SC2034,SC3043
# Runs the init script without OpenWrt: `SHELL stand-in.sh INIT CONFIG DIRECTORY`. The functions that
# rc.common would bring are here in so far as the script uses them. What it asks procd for is recorded in
# DIRECTORY: a file for each parameter of each instance, with a word in each line.

INIT=$1 CONFIG=$2 DIRECTORY=$3

config_load() { # PACKAGE
	local line section
	sections=''
	while read -r line; do
		eval "set -- $line"
		case ${1-} in
		config)
			section=$3 sections="$sections $3"
			eval "type_$section=\$2"
			;;
		option) eval "value_${section}_$2=\$3" ;;
		esac
	done <"$CONFIG/$1"
}

config_foreach() { # FUNCTION TYPE
	local section type
	for section in $sections; do
		eval "type=\$type_$section"
		[ "$type" != "$2" ] || "$1" "$section"
	done
}

config_get() { # VARIABLE SECTION OPTION [DEFAULT]
	eval "$1=\${value_$2_$3:-\${4-}}"
}

config_get_bool() { # VARIABLE SECTION OPTION DEFAULT
	config_get "$@"
	eval "case \$$1 in
	1 | on | true | yes | enabled) $1=1 ;;
	0 | off | false | no | disabled) $1=0 ;;
	*) $1=\$4 ;;
	esac"
}

# Of the users that there are on OpenWrt this machine knows few.
chown() { # USER DIRECTORY
	printf '%s\n' "$1" >"$DIRECTORY/${2##*/}.owner"
}

logger() {
	echo "$*" >>"$DIRECTORY/log"
}

procd_open_instance() { # NAME
	instance=$1
}

procd_set_param() { # PARAMETER WORD...
	: >"$DIRECTORY/$instance.$1"
	procd_append_param "$@"
}

procd_append_param() { # PARAMETER WORD...
	local parameter="$1"
	shift
	printf '%s\n' "$@" >>"$DIRECTORY/$instance.$parameter"
}

procd_close_instance() {
	: >"$DIRECTORY/$instance.closed"
}

procd_add_reload_trigger() { # PACKAGE
	echo "$1" >"$DIRECTORY/trigger"
}

# shellcheck source=cross/openwrt/files/keepwatch.init
. "$INIT"
RUN_DIRECTORY=$DIRECTORY/run
[ "$USE_PROCD" = 1 ] || exit
service_triggers
start_service
