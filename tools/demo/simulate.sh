#!/usr/bin/env bash
# The same engine in a simulated network: one thread, virtual time, loss from a seed
source "${BASH_SOURCE[0]%/*}/common.sh"

# What happened to the first lost packet of a reliable connection: every event with its number.
show_repair() {
    local seed psn
    for seed in $(seq 1 50); do
        "$SIMRUN" --seed="$seed" --trace >"$scratch/trace"
        psn=$(grep -m 1 'DROPPED .* RC_.*_ONLY' "$scratch/trace" | grep -oE 'psn [0-9]+') ||
            continue
        echo "seed $seed: the life of the packet with $psn (all: simrun --seed=$seed --trace)"
        grep -m 8 -E "$psn( |\$)" "$scratch/trace" | sed -e 's/ migrated//' -e 's/@[0-9]* *//'
        return
    done
    fail "no simulated loss in 50 seeds"
}

show_repair
echo "20 seeds, each run twice, every completion and every byte checked:"
"$SIMRUN" --seed=1 --runs=20 --twice --quiet
