#!/usr/bin/env bash
# One address space over three processes, and a lock in it that all of them want at once
source "${BASH_SOURCE[0]%/*}/common.sh"

echo "feroce launch -n 3 -- ./gas_contended_lock"
FEROCE_DEVICES=lo "$FEROCE" launch -n 3 -- "$EXAMPLES/gas/gas_contended_lock" | tee "$scratch/lock"
grep -q 'counted to 6000' "$scratch/lock" || fail "a count got lost"
