#!/usr/bin/env bash
# The tour behind `./feroce demo`: unmodified Debian programs on the soft device of this machine.
# FEROCE names the checkout's ./feroce, SIMRUN its simulator. Exits 0 only if every step did what it
# says.
set -euo pipefail

tcp_port=$((20000 + RANDOM % 20000))
scratch=$(mktemp -d)
server=
trap '[[ -z $server ]] || kill "$server" 2>/dev/null || true; rm -rf "$scratch"' EXIT

bold='' plain=''
if [[ -t 1 ]]; then bold=$'\033[1m' plain=$'\033[0m'; fi
title() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
fail() { echo "demo: $*" >&2; exit 1; }

# Whether somebody listens on the TCP port by which the two programs exchange their addresses.
# Looked up, not tried: a probing connection would be taken for the client.
listening() { # PORT
    grep -qsiE "^ *[0-9]+: [0-9A-F]+:$(printf '%04X' "$1") 0+:0000 0A" /proc/net/tcp{,6}
}

# Runs the same program as server and as client, each in its own process.
pair() { # FILTER CMD ARGS...: prints what FILTER keeps of the client's output
    local filter=$1 waited=0
    shift
    "$FEROCE" run -- "$@" >"$scratch/server" 2>&1 &
    server=$!
    until listening "$tcp_port"; do
        kill -0 "$server" 2>/dev/null || { cat "$scratch/server" >&2; fail "$1 did not start"; }
        [[ $((waited += 1)) -le 200 ]] || fail "$1 does not listen after 10 s"
        sleep 0.05
    done
    timeout 60 "$FEROCE" run -- "$@" 127.0.0.1 >"$scratch/client" 2>&1 ||
        { cat "$scratch/client" >&2; fail "the client $1 failed"; }
    wait "$server" || { cat "$scratch/server" >&2; fail "the server $1 failed"; }
    server=
    grep -E "$filter" "$scratch/client" || fail "$1 said something unexpected"
    tcp_port=$((tcp_port + 1))
}

title "1. Devices: one per network interface, no RDMA hardware, no root, no kernel module"
"$FEROCE" run -- ibv_devices

title "2. ibv_rc_pingpong, as Debian ships it: two processes, RoCEv2 over loopback UDP 4791"
pair 'bytes in|iters in' ibv_rc_pingpong -d feroce_lo -g 0 -n 1000 -p "$tcp_port"

title "3. ib_write_bw, as Debian ships it: RDMA WRITEs of 64 KiB"
pair '#bytes|^ *65536' ib_write_bw -d feroce_lo -x 0 -s 65536 -n 5000 -p "$tcp_port" -F

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

title "4. The same under 1 % loss, duplication and reordering of what each side sends"
export FEROCE_FAULTS=drop=0.01,dup=0.01,reorder=0.01,seed=7
pair '#bytes|^ *65536' ib_write_bw -d feroce_lo -x 0 -s 65536 -n 1000 -p "$tcp_port" -F
unset FEROCE_FAULTS

title "5. A write with a wrong key: what verbs tells the program, and what feroce explain tells you"
"$FEROCE" run -- "${FEROCE%/*}/bad_access" &
wait $! || fail "the wrong key was not refused"
"$FEROCE" explain $!

title "6. The same engine in a simulated network: one thread, virtual time, loss from a seed"
show_repair
echo "20 seeds, each run twice, every completion and every byte checked:"
"$SIMRUN" --seed=1 --runs=20 --twice --quiet

title "Done. Your own program: ./feroce run -- ./my_rdma_program"
