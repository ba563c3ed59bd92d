# shellcheck shell=bash disable=SC2016,SC2034,SC2154,SC2207
# Completion for bash. What options there are the program tells.

_keepwatch() {
    local cur prev words cword split
    _init_completion -s || return
    case $prev in
    --monitor[_-]interface)
        _available_interfaces -a
        return
        ;;
    --conf[_-]dir | --state[_-]path | --log-dir | --config-dir)
        _filedir -d
        return
        ;;
    --pid[_-]file | --log-file | --config-file | --hook | --conntrackd-conf)
        _filedir
        return
        ;;
    --namespace)
        # Anybody's file in /run/netns is a name. Only plain ones are proposed, as the shell reads what it proposes.
        COMPREPLY=($(compgen -W '$(ip netns list 2>/dev/null |
            sed -En "s/^([[:alnum:]._:@+-]+)( [(]id: [0-9]+[)])?$/\1/p")' -- "$cur"))
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
    # Of the other options that want a value nothing can be proposed.
    $split && return
    COMPREPLY=($(compgen -W '$(_parse_help "$1")' -- "$cur"))
} && complete -F _keepwatch keepwatch
