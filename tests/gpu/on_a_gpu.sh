#!/usr/bin/env bash
# On a machine with an NVIDIA GPU: on_a_gpu.sh BUILD_FOLDER [PART...]. Parts: doctor cases faults
# spin rate nccl; all of them by default. BUILD_FOLDER has the targets product and gpu_transfers.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$(cd "$1" && pwd)
shift
parts=("$@")
((${#parts[@]})) || parts=(doctor cases faults spin rate nccl)
export FEROCE_DEVICES=lo LD_LIBRARY_PATH=$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
transfers=$build/tests/gpu/gpu_transfers
failures=0

# Runs a command for 400 s at most, and says how it went.
part() {
    local name=$1 status=0
    shift
    echo "== $name"
    timeout 400 "$@" || status=$?
    ((status == 0)) || failures=$((failures + 1))
    echo "== $name: $([[ $status == 0 ]] && echo ok || echo "FAILED ($status)")"
}

# One all-reduce of two ranks that take each other for another machine. WORDS: settings.
ranks() {
    local settings=("$@" WORLD_SIZE=2 NCCL_SOCKET_IFNAME=lo NCCL_DEBUG=INFO
        NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH NCCL_GIN_ENABLE=0
        NCCL_GIN_TYPE=2 NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1) other
    env "${settings[@]}" RANK=1 NCCL_HOSTID=b "$build/bin/feroce" run -- \
        python3 "$here/collectives.py" >"$build/nccl-1.log" 2>&1 &
    other=$!
    env "${settings[@]}" RANK=0 NCCL_HOSTID=a "$build/bin/feroce" run -- \
        python3 "$here/collectives.py" >"$build/nccl-0.log" 2>&1 || {
        tail -30 "$build/nccl-0.log"
        kill "$other" 2>/dev/null
        return 1
    }
    wait "$other" || { tail -30 "$build/nccl-1.log"; return 1; }
    grep -E "^rank 0|GPU Direct RDMA|Using \[|via NET" "$build/nccl-0.log" | sort -u
}
over_feroce() {
    ranks NCCL_IB_HCA=feroce_lo NCCL_IB_GID_INDEX=0 NCCL_NET_GDR_LEVEL=SYS "$@" &&
        grep -q "GPU Direct RDMA Enabled" "$build/nccl-0.log" &&
        grep -q "via NET/IB/0/GDRDMA" "$build/nccl-0.log"
}
export -f ranks over_feroce
export build here

for what in "${parts[@]}"; do
    case $what in
        doctor) part doctor "$build/bin/feroce" doctor || true ;;
        cases)
            part "1,000 cases over rings" "$transfers"
            part "200 cases over UDP" env FEROCE_SAMEHOST=off "$transfers" --cases 200 --seed 2
            ;;
        faults)
            part "300 cases of up to 16 MiB with loss" env FEROCE_SAMEHOST=off \
                FEROCE_FAULTS=drop=0.01,dup=0.01,reorder=0.01,seed=7 \
                "$transfers" --cases 300 --seed 3 --most 16777216
            ;;
        spin)
            part "beside a kernel that spins" "$transfers" --cases 100 --seed 4 --spin \
                --most 67108864
            ;;
        rate)
            for memory in host gpu host gpu; do
                part "rings, $memory" "$transfers" --rate "$memory" --most 1048576
                part "UDP, $memory" env FEROCE_SAMEHOST=off "$transfers" --rate "$memory" \
                    --most 1048576
            done
            ;;
        nccl)
            part "NCCL, GPU Direct" bash -c over_feroce
            part "NCCL, GPU Direct, UDP" bash -c 'over_feroce FEROCE_SAMEHOST=off'
            part "NCCL, its own sockets" bash -c 'ranks NCCL_IB_DISABLE=1'
            ;;
        *) echo "no part $what"; exit 2 ;;
    esac
done
echo "$failures parts failed"
((failures == 0))
