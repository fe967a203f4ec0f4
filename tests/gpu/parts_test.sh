#!/usr/bin/env bash
# What on_a_gpu.sh says at its end, without a GPU: parts that failed, and parts that had no time.
set -uo pipefail
logs=$(mktemp -d)
trap 'rm -r "$logs"' EXIT
# shellcheck source=tests/gpu/on_a_gpu_parts.sh
. "$(dirname "${BASH_SOURCE[0]}")/on_a_gpu_parts.sh"

expect() { # STATUS LAST_LINE
    local status=0
    summary >"$logs/summary" || status=$?
    [[ $status == "$1" && $(tail -n 1 "$logs/summary") == "$2" ]] ||
        { echo "expected $1, $2; got $status:"; cat "$logs/summary"; exit 1; }
}

part good 40 true
PATH=$logs beside_mps # There is no MPS.
expect 0 "0 failed, 0 not run"
until=$SECONDS
part late 40 true
cases
expect 1 "0 failed, 2 not run"
until=$((SECONDS + 400))
part bad 40 false
expect 1 "1 failed, 2 not run"
