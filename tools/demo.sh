#!/usr/bin/env bash
# The tour behind `./feroce demo [STEP...]`. FEROCE names the built program, SIMRUN the simulator,
# EXAMPLES and TOOLS the folders of what else the steps run. Exits 0 only if every step did what it
# says.
#
# A step is tools/demo/NAME.sh. It runs in a process group of its own, from which nothing it starts
# leaves, so ending a step is ending its group: at its end, after a failure, and after Ctrl-C.
set -euo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/demo
scratch=$(mktemp -d)
export scratch
group=

bold='' plain=''
if [[ -t 1 ]]; then bold=$'\033[1m' plain=$'\033[0m'; fi

state=/dev/shm/feroce-$EUID
state_files() { ls "$state" 2>/dev/null || true; }
before=$(state_files)

# The process group of a process that runs; nothing if it has ended, waited for or not.
group_of() { # PID
    local line status pgrp
    { read -r line <"/proc/$1/stat"; } 2>/dev/null || return 0
    # After the name, which may hold anything but ends at the last bracket: status, parent, group.
    read -r status _ pgrp _ <<<"${line##*) }"
    [[ $status == Z ]] || echo "$pgrp"
}

group_runs() {
    local process
    for process in /proc/[0-9]*; do
        [[ $(group_of "${process#/proc/}") != "$group" ]] || return 0
    done
    return 1
}

end_group() {
    local tries=0
    [[ -n $group ]] || return 0
    # By itself too, should it not have made its group yet.
    kill -TERM -- "-$group" "$group" 2>/dev/null || true
    while group_runs; do
        [[ $((tries += 1)) -ne 60 ]] || kill -KILL -- "-$group" 2>/dev/null || true
        sleep 0.05
    done
    wait "$group" 2>/dev/null || true
    group=
}

# Processes leave a page behind by which `feroce explain` tells of them afterwards. Those that came
# during the tour and whose processes are gone go with it; if then nobody is left, the folder too.
forget_pages() {
    local page
    timeout 5 "$FEROCE" session >/dev/null 2>&1 || true # Removes the sockets of killed ones.
    for page in $(comm -13 <(sort <<<"$before") <(state_files | sort)); do
        [[ ! -f $state/$page || -n $(group_of "$page") ]] || rm -f "$state/$page"
    done
    [[ -z $before ]] || return 0
    [[ -n $(state_files | grep -v '^sysfs-') ]] || rm -rf "$state"
}

finish() {
    trap '' INT TERM HUP
    end_group
    rm -rf "$scratch"
    forget_pages
}
trap finish EXIT
trap 'echo; echo "demo: interrupted; everything it started is being ended" >&2; exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

run_step() { # NAME
    local title
    if [[ ! -f $here/$1.sh ]]; then
        echo "demo: there is no step $1; there are: ${steps[*]}" >&2
        exit 2
    fi
    title=$(sed -n '2s/^# //p' "$here/$1.sh")
    number=$((number + 1))
    printf '\n%s%d. %s%s\n' "$bold" "$number" "$title" "$plain"
    # In the background, since a shell hears signals while it waits but not while a program runs.
    setsid bash "$here/$1.sh" </dev/null &
    group=$!
    wait "$group" || { echo "demo: the step $1 failed" >&2; exit 1; }
    end_group
}

steps=(devices program lossy disk lock explain simulate)
chosen=("${@:-${steps[@]}}")
number=0
for step in "${chosen[@]}"; do run_step "$step"; done
printf '\n%sDone in %d s. Your own program: ./feroce run -- ./my_rdma_program%s\n' \
    "$bold" "$SECONDS" "$plain"
