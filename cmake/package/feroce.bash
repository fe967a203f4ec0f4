# bash completion for feroce. What it offers is what `feroce --help` and `feroce COMMAND --help` list,
# so there is no second table of commands and options to keep.

_feroce_commands() {
    "$1" --help 2>/dev/null | awk '
        tolower($0) ~ /^(sub)?commands:/ { on = 1; next }
        /^[^ ]/ { on = 0 }
        on && /^  [a-z]/ { sub(/^ +/, ""); sub(/  .*/, ""); gsub(/,/, ""); print }'
}

_feroce_options() { # PROGRAM [COMMAND]
    "$@" --help 2>/dev/null | grep -oE '^ +-[^ ]*(, *--?[a-z-]+)*' | grep -oE -- '--?[a-zA-Z][a-z-]*'
}

_feroce_program_words() { # the number of the word where a program and its words begin
    if declare -F _command_offset >/dev/null; then
        _command_offset "$1"
    elif ((COMP_CWORD == $1)); then
        mapfile -t COMPREPLY < <(compgen -c -- "${COMP_WORDS[COMP_CWORD]}")
    else
        mapfile -t COMPREPLY < <(compgen -f -- "${COMP_WORDS[COMP_CWORD]}")
    fi
}

_feroce() {
    local program=${COMP_WORDS[0]} word=${COMP_WORDS[COMP_CWORD]} command= i
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        if [[ ${COMP_WORDS[i]} == -- ]]; then
            _feroce_program_words $((i + 1))
            return
        fi
        [[ -n $command || ${COMP_WORDS[i]} == -* ]] || command=${COMP_WORDS[i]}
    done
    if [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_feroce_options "$program" $command)" -- "$word")
    elif [[ -z $command ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_feroce_commands "$program")" -- "$word")
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
    fi
}
complete -F _feroce feroce
