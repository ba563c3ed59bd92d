# shellcheck shell=dash source=/dev/null
# Stands in for /lib/functions.sh, with UCI's own shell library.

. /lib/config/uci.sh

uci_load() { # PACKAGE
	eval "$(uci -q -S -n export "$1")"
}
