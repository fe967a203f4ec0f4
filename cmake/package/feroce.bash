# bash completion for feroce. `feroce complete WORDS` says what fits, so there is no table of commands
# and options here; a clone's ./feroce knows its own as well.

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
    local word=${COMP_WORDS[COMP_CWORD]} line more i
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        if [[ ${COMP_WORDS[i]} == -- ]]; then
            _feroce_program_words $((i + 1))
            return
        fi
    done
    while IFS= read -r line; do
        case $line in
            :files) mapfile -t more < <(compgen -f -- "$word") ;;
            :programs) mapfile -t more < <(compgen -c -- "$word") ;;
            *) more=("${line%%$'\t'*}") ;;
        esac
        COMPREPLY+=("${more[@]}")
    done < <("${COMP_WORDS[0]}" complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _feroce feroce
