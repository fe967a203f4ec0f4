# fish completion for feroce. `feroce complete WORDS` says what fits.

function __feroce_complete
    set -l before (commandline -opc)
    set -l word (commandline -ct)
    if set -l dashes (contains -i -- -- $before) # The rest is a program and its words.
        __fish_complete_subcommand --fcs-skip=$dashes
        return
    end
    for line in ($before[1] complete $before[2..-1] "$word" 2>/dev/null)
        switch $line
            case :files
                __fish_complete_path "$word"
            case :programs
                __fish_complete_command
            case '*'
                echo $line
        end
    end
end

complete -c feroce -f -a '(__feroce_complete)'
