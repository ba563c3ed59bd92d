# shellcheck shell=bash disable=SC2016,SC2034,SC2154,SC2207
# Completion for bash. The options come from the program's --help.

_keepwatch() {
    local cur prev words cword split
    _init_completion -s || return
    case $prev in
    --monitor[_-]interface)
        _available_interfaces -a
        # `ip` prints a veth as NAME@PEER.
        COMPREPLY=("${COMPREPLY[@]%%@*}")
        return
        ;;
    --conf[_-]dir | --state[_-]path | --log[_-]dir | --config[_-]dir)
        _filedir -d
        return
        ;;
    --pid[_-]file | --keepalived[_-]pid[_-]file | --log[_-]file | --metrics[_-]file | --config[_-]file | --hook | --notify | --notify[_-]* | \
        --conntrackd[_-]conf)
        _filedir
        return
        ;;
    --namespace)
        # A namespace may have any file name. Only plain names are proposed, as the shell evaluates proposals.
        COMPREPLY=($(compgen -W '$(ip netns list 2>/dev/null |
            sed -En "s/^([[:alnum:]._:@+-]+)( [(]id: [0-9]+[)])?$/\1/p")' -- "$cur"))
        return
        ;;
    --hook[_-]env)
        COMPREPLY=($(compgen -e -- "$cur"))
        return
        ;;
    --active-word)
        COMPREPLY=($(compgen -W 'master primary' -- "$cur"))
        return
        ;;
    --user | --hook-user)
        COMPREPLY=($(compgen -u -- "$cur"))
        return
        ;;
    --group)
        COMPREPLY=($(compgen -g -- "$cur"))
        return
        ;;
    esac
    # Values of other options are not completed.
    $split && return
    COMPREPLY=($(compgen -W '$(_parse_help "$1")' -- "$cur"))
} && complete -F _keepwatch keepwatch
