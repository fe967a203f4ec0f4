# What the steps of the demo share; sourced by them.
set -euo pipefail

fail() { echo "demo: $*" >&2; exit 1; }

# Waits for a condition that a process of ours brings about, ten seconds at most.
await() { # WHAT CONDITION...
    local what=$1 tries=0
    shift
    until "$@"; do
        [[ $((tries += 1)) -le 500 ]] || fail "waited in vain for $what"
        sleep 0.02
    done
}

# Whether somebody listens on the TCP port by which the two programs exchange their addresses.
# Looked up, not tried: a probing connection would be taken for the client.
listening() { # PORT
    grep -qsiE "^ *[0-9]+: [0-9A-F]+:$(printf '%04X' "$1") 0+:0000 0A" /proc/net/tcp{,6}
}

# Runs the same program as server and as client, each in its own process.
pair() { # FILTER CMD ARGS...: prints what FILTER keeps of the client's output
    local filter=$1 port=$((20000 + RANDOM % 20000)) server
    shift
    "$FEROCE" run -- "$@" -p "$port" >"$scratch/server" 2>&1 &
    server=$!
    # A server that ended is not awaited; the client then fails and says why.
    up() { listening "$port" || ! kill -0 "$server" 2>/dev/null; }
    await "$1 to listen" up
    timeout 60 "$FEROCE" run -- "$@" -p "$port" 127.0.0.1 >"$scratch/client" 2>&1 ||
        { cat "$scratch/server" "$scratch/client" >&2; fail "the client $1 failed"; }
    wait "$server" || { cat "$scratch/server" >&2; fail "the server $1 failed"; }
    grep -E "$filter" "$scratch/client" || fail "$1 said something unexpected"
}
