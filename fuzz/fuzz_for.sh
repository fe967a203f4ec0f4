#!/bin/sh
# fuzz_for.sh SECONDS TARGET CORPUS FINDINGS: lets a libFuzzer program look for new inputs for that
# many seconds of processor time, so that a busy machine does not shorten it. New inputs land in a
# scratch folder; a finding is left in FINDINGS under libFuzzer's name.
set -eu
seconds=$1 target=$2 corpus=$3 findings=$4

# The process's seconds: utime and stime, counted from behind its name, which may have spaces.
used() {
    sed 's/.*) //' "/proc/$1/stat" 2>/dev/null |
        awk -v tick="$tick" '{ print int(($12 + $13) / tick) }'
}

tick=$(getconf CLK_TCK)
scratch=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null || true; rm -rf "$scratch"' EXIT
trap 'exit 143' TERM
mkdir "$scratch/new"
"$target" -print_final_stats=1 -artifact_prefix="$findings/" "$scratch/new" "$corpus" \
    >"$scratch/log" 2>&1 &
pid=$!
while spent=$(used "$pid") && [ -n "$spent" ]; do
    # Ends after the input that it runs, so one that never ends is still found.
    [ "$spent" -lt "$seconds" ] || kill -USR1 "$pid" 2>/dev/null || true
    sleep 1
done
wait "$pid" && status=0 || status=$?
pid=
if [ "$status" -eq 0 ]; then
    sed -n -E "s|^stat::(number_of_executed_units\|new_units_added)|figure: &|p" "$scratch/log"
else
    cat "$scratch/log"
fi
exit "$status"
