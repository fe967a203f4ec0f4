#!/usr/bin/env bash
# Clusters of real processes: launch_test.sh NAME BUILD_FOLDER.
set -euo pipefail

name=$1
build=$2
feroce=$build/bin/feroce
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fail() { echo "FAILED: $*" >&2; exit 1; }
equal() { [[ $1 == "$2" ]] || fail "${3:-}: wanted '$2', got '$1'"; }

call() {
    status=0
    "$@" >"$scratch/out" 2>"$scratch/err" || status=$?
    out=$(<"$scratch/out")
    err=$(<"$scratch/err")
}

# Four nodes count, each once.
test_counter() {
    call "$feroce" launch -n 4 -- "$build/examples/gas/gas_counter"
    equal "$status" 0 "$err"
    equal "$(grep -c 'all are 4' <<<"$out")" 4 "$out"
    equal "$(grep -o 'after [0-9]' <<<"$out" | sort -u | wc -l)" 4 "$out"
    for rank in 0 1 2 3; do grep -q "^\[$rank\] node $rank of 4" <<<"$out" || fail "$out"; done
}

# The others name the node that was killed, and do not hang.
test_crash() {
    call "$feroce" launch -n 3 -- "$build/tests/gas/gas_crash"
    equal "$status" $((128 + 9)) "$out $err"
    equal "$(grep -c 'node 2 is lost' <<<"$out")" 2 "$out"
    grep -q 'node 2 was ended by signal 9' <<<"$err" || fail "$err"
}

test_status() {
    call "$feroce" launch -n 3 -- sh -c 'exit $((FEROCE_GAS_RANK * 10))'
    [[ $status == 10 || $status == 20 ]] || fail "status $status"
    call "$feroce" launch -n 2 -- true
    equal "$status" 0
    for wrong in "" "-n" "-n 0 -- true" "-n x -- true" "--nonsense 3 -- true" "-n 2 --"; do
        # shellcheck disable=SC2086
        call "$feroce" launch $wrong
        equal "$status" 2 "$wrong"
        equal "$(wc -l <"$scratch/err")" 1 "one sentence"
    done
}

test_output() {
    call "$feroce" launch -n 2 -- sh -c 'echo out; echo err >&2; printf last'
    equal "$(sort <<<"$out")" $'[0] last\n[0] out\n[1] last\n[1] out'
    equal "$(sort <<<"$err")" $'[0] err\n[1] err'
}

"test_$name"
