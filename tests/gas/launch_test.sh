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

# All nodes end well.
succeed() { # NODES PROGRAM ARGUMENTS
    call "$feroce" launch -n "$1" -- "${@:2}"
    equal "$status" 0 "$err"
}

# Four nodes count, each once.
test_counter() {
    succeed 4 "$build/examples/gas/gas_counter"
    equal "$(grep -c 'all are 4' <<<"$out")" 4 "$out"
    equal "$(grep -o 'after [0-9]' <<<"$out" | sort -u | wc -l)" 4 "$out"
    for rank in 0 1 2 3; do grep -q "^\[$rank\] node $rank of 4" <<<"$out" || fail "$out"; done
}

test_shared_map() {
    succeed 3 "$build/examples/gas/gas_shared_map"
    equal "$(grep -c '50 keys counted by 3 nodes: 150$' <<<"$out")" 3 "$out"
}

# What only a lock protects is counted right.
test_contended_lock() {
    succeed 3 "$build/examples/gas/gas_contended_lock"
    equal "$(grep -c 'nodes counted to 6000' <<<"$out")" 1 "$out"
}

# The others name the node that was killed, and do not hang.
test_crash() {
    call "$feroce" launch -n 3 -- "$build/tests/gas/gas_crash"
    equal "$status" $((128 + 9)) "$out $err"
    equal "$(grep -c 'node 2 is lost' <<<"$out")" 2 "$out"
    grep -q 'node 2 was ended by signal 9' <<<"$err" || fail "$err"
}

# Any node is killed, the first one too: the others have names, barriers and memory as before.
test_first_dies() {
    for lost in 0 1 3; do
        call "$feroce" launch -n 4 -- "$build/tests/gas/gas_first_dies" $lost
        equal "$status" $((128 + 9)) "$out $err"
        equal "$(grep -c "node $lost is lost" <<<"$out")" 3 "$out"
        equal "$(grep -c "went on without node $lost" <<<"$out")" 3 "$out"
    done
}

# The holder of a lock with a lease is killed: the others are left the time to take it over.
test_lease() {
    call "$feroce" launch -n 3 -- "$build/tests/gas/gas_lease"
    equal "$status" $((128 + 9)) "$out $err"
    equal "$(grep -c 'took the lock over' <<<"$out")" 2 "$out $err"
    [[ $err != *"are stopped"* ]] || fail "$err"
}

# A node that was stopped for too long is lost for the others; when it goes on it is told so by its
# first operation, and nothing that it writes lands.
test_stopped() {
    succeed 3 "$build/tests/gas/gas_stopped"
    equal "$(grep -c '^\[[01]\] .*node 2 is lost' <<<"$out")" 2 "$out"
    equal "$(grep -c '^\[[01]\] nothing of it has landed' <<<"$out")" 2 "$out"
    grep -q '^\[2\] .*found this node lost' <<<"$out" || fail "$out"
}

# Two processes with two threads each: nothing counted under a lock is lost.
test_locks() {
    succeed 2 "$build/tests/gas/gas_locks"
    equal "$(grep -c ': 800 of 800$' <<<"$out")" 12 "$out"
}

# Four processes with two threads each.
test_histories() {
    succeed 4 "$build/tests/gas/gas_histories"
    for name in 'hash map' 'ordered map' 'list set'; do
        grep -q "^\[0\] $name: 320 calls, linearizable$" <<<"$out" || fail "$out"
    done
    grep -q '^\[0\] queue: 56 calls, linearizable$' <<<"$out" || fail "$out"
}

# A client is killed in the middle of updates; what it leaves behind is whole.
test_survivors() {
    for container in map tree set; do
        call "$feroce" launch -n 4 -- "$build/tests/gas/gas_histories" $container
        equal "$status" $((128 + 9)) "$out $err"
        grep -q '^\[0\] .* calls, linearizable$' <<<"$out" || fail "$out $err"
    done
}

# The program of ./feroce bench locks: every kind of lock in every cell, and what a free one costs.
test_lock_table() {
    succeed 2 "$build/bench/lock_table" 2 5 1,4 95,0
    equal "$(grep -c '"kind": ' <<<"$out")" $((2 * 7 * 2 * 2)) "$out"
    equal "$(grep -c '"local": {}, "remote": {}' <<<"$out")" 0 "$out"
    grep -q '"free": "alock", "acquire": 1, "release": 1' <<<"$out" || fail "$out"
    grep -q '"free": "alock published", "acquire": 2, "release": 1' <<<"$out" || fail "$out"
}

# Neither at home nor away.
test_allocations() {
    succeed 2 "$build/tests/gas/gas_allocations"
    equal "$(grep -c '\] 0 allocations' <<<"$out")" 2 "$out"
    equal "$(grep -c '\] counted' <<<"$out")" 2 "$out"
}

test_status() {
    call "$feroce" launch -n 3 -- sh -c 'exit $((FEROCE_GAS_RANK * 10))'
    [[ $status == 10 || $status == 20 ]] || fail "status $status"
    call "$feroce" launch -n 2 -- true
    equal "$status" 0
    for wrong in "" "-n" "-n 0 -- true" "-n 264 -- true" "-n x -- true" "--nonsense 3 -- true" \
        "-n 2 --"; do
        # shellcheck disable=SC2086
        call "$feroce" launch $wrong
        equal "$status" 2 "$wrong"
        equal "$(wc -l <"$scratch/err")" 1 "one sentence"
    done
}

# A launcher that is killed takes its nodes with it.
test_killed() {
    "$feroce" launch -n 3 -- sh -c 'echo $$ >"$0/$FEROCE_GAS_RANK"; exec sleep 300' "$scratch" &
    local launcher=$! rank pid
    for ((i = 0; i < 200; i++)); do
        [[ -s $scratch/0 && -s $scratch/1 && -s $scratch/2 ]] && break
        sleep 0.1
    done
    kill -9 "$launcher"
    wait "$launcher" || true
    for rank in 0 1 2; do
        pid=$(<"$scratch/$rank")
        for ((i = 0; i < 100; i++)); do
            grep -qs '^State:.*[RSDT]' "/proc/$pid/status" || break
            sleep 0.1
        done
        ((i < 100)) || fail "node $rank goes on without its launcher"
    done
}

# A launcher that is not understood makes no clusters of one; a name is as good as an address.
test_placement() {
    local counter=$build/examples/gas/gas_counter
    call env PMIX_RANK=0 "$feroce" run -- "$counter"
    [[ $status != 0 ]] || fail "a cluster of one: $out"
    grep -q 'FEROCE_GAS_RANK' <<<"$err" || fail "$err"
    local port=$((20000 + $$ % 20000)) rank
    for rank in 0 1; do
        env RANK=$rank WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=$port \
            "$feroce" run -- "$counter" >"$scratch/out$rank" 2>&1 &
    done
    wait
    for rank in 0 1; do
        grep -q 'all are 2' "$scratch/out$rank" || fail "$(<"$scratch/out$rank")"
    done
}

test_output() {
    call "$feroce" launch -n 2 -- sh -c 'echo out; echo err >&2; printf last'
    equal "$(sort <<<"$out")" $'[0] last\n[0] out\n[1] last\n[1] out'
    equal "$(sort <<<"$err")" $'[0] err\n[1] err'
}

"test_$name"
