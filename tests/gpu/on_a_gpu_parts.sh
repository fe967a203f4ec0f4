# The parts of on_a_gpu.sh: how each is run, bounded and told of. Sourced, not run.
# shellcheck shell=bash disable=SC2030,SC2031,SC2034,SC2154  # the caller has the rest
#
# $build, $logs, $transfers and $here are the caller's.
until=$((SECONDS + ${GPU_SECONDS:-460}))
failures=0
not_run=0 # For want of time.
results=()
at_64_mib=(COLLECTIVE_SECONDS=4 COLLECTIVE_SIZES=67108864)

# A part for which no time is left proves nothing.
pass_over() { # NAME
    results+=("$1: not run, no time is left")
    not_run=$((not_run + 1))
}

left() { echo $((until - SECONDS)); }
log_of() { echo "$logs/$(tr -c 'a-zA-Z0-9\n' _ <<<"$1").log"; }

# What a machine without headers and libraries needs; the folder is made.
build_with() {
    local archive=$1 root folder=$2 libraries
    mkdir -p "$folder" && folder=$(cd "$folder" && pwd) && root=$folder/root || return 1
    libraries=$root/usr/lib/$(uname -m)-linux-gnu
    [[ -d $root ]] || { mkdir "$root" && tar -C "$root" -xf "$archive"; } || return 1
    (
        export CPATH=$root/usr/include LIBRARY_PATH=$libraries LD_LIBRARY_PATH=$libraries
        cmake -G Ninja -S "$here/../.." -B "$folder" -DCMAKE_BUILD_TYPE=Release \
            -DFEROCE_WERROR=OFF -DFEROCE_TRAIN=OFF -DCMAKE_PREFIX_PATH="$root/usr" \
            -DCMAKE_LIBRARY_PATH="$libraries" -DCMAKE_INCLUDE_PATH="$root/usr/include" \
            >"$folder/cmake.log" 2>&1 || { tail -20 "$folder/cmake.log"; exit 1; }
        timeout 240 ninja -C "$folder" product gpu_transfers >"$folder/build.log" 2>&1 ||
            { grep -A8 -m3 FAILED "$folder/build.log"; tail -5 "$folder/build.log"; exit 1; }
    ) || { echo "the build failed"; return 1; }
    echo "built in $SECONDS s"
}

# Of the archive's libraries only those that are needed: Python has its own of many of them.
use_libraries() {
    local needed=$build/needed library
    mkdir -p "$needed"
    if [[ -d $build/root ]]; then
        for library in $(LD_LIBRARY_PATH=$build/root/usr/lib/$(uname -m)-linux-gnu ldd \
            "$build"/lib/*.so* "$build/bin/feroce" "$transfers" 2>/dev/null |
            awk -v root="$build/root/" 'index($3, root) == 1 { print $3 }' | sort -u); do
            ln -sf "$library" "$needed/"
        done
    fi
    export FEROCE_DEVICES=lo LD_LIBRARY_PATH=$build/lib:$needed${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
}

# The line of a part: its last words, and whether it went well.
tell() {
    local name=$1 status=$2 seconds=$3 log verdict=ok
    log=$(log_of "$name")
    ((status == 0)) || { verdict="FAILED ($status)"; failures=$((failures + 1)); }
    ((status != 124 && status != 137)) || verdict="FAILED: did not end in $seconds s"
    results+=("$name: $verdict, $seconds s; $(tail -n 1 "$log" | cut -c1-200)")
    echo "== ${results[-1]}"
    if ((status == 0)); then
        grep -h "^rank 0: .* bytes" "$log"
    else
        tail -n 30 "$log"
    fi
}

# part NAME LIMIT COMMAND...: a program, or one of the functions here.
part() {
    local name=$1 limit=$2 begin=$SECONDS status=0
    shift 2
    ((limit < $(left))) || limit=$(left)
    if ((limit < 10)); then
        pass_over "$name"
        return
    fi
    bounded "$limit" "$@" >"$(log_of "$name")" 2>&1 || status=$?
    tell "$name" "$status" $((SECONDS - begin))
}

# A process group of its own ends with all that it began.
bounded() {
    local limit=$1
    shift
    if [[ $(type -t "$1") == function ]]; then
        export -f doctor ranks over_feroce
        export build here
        timeout -k 5 "$limit" bash -c '"$@"' part "$@"
    else
        timeout -k 5 "$limit" "$@"
    fi
}

doctor() {
    "$build/bin/feroce" doctor || true
    nvidia-smi --query-gpu=name,driver_version --format=csv,noheader || true
    "$build/bin/feroce" doctor | grep -i gpu
}

# At the same time, as each of them mostly compares bytes.
cases() {
    local limit=130 begin=$SECONDS name i status
    ((limit < $(left))) || limit=$(left)
    if ((limit < 30)); then
        pass_over cases
        return
    fi
    local most=$((limit - 20)) names=() ids=()
    one() { # NAME COMMAND...
        name=$1
        shift
        timeout -k 5 "$limit" "$@" >"$(log_of "$name")" 2>&1 &
        names+=("$name")
        ids+=($!)
    }
    one "1,000 cases of up to 1 GiB, rings" "$transfers" --cases 1000 --seconds "$most"
    one "200 cases of up to 1 GiB, UDP" env FEROCE_SAMEHOST=off "$transfers" --cases 200 \
        --seed 2 --seconds "$most"
    one "1,000 cases of up to 16 MiB, 1 % loss, duplicates, reordering" env \
        FEROCE_SAMEHOST=off FEROCE_FAULTS=drop=0.01,dup=0.01,reorder=0.01,seed=7 \
        "$transfers" --cases 1000 --seed 3 --most 16777216 --seconds "$most"
    one "60 cases of up to 1 GiB, 0.1 % loss" env \
        FEROCE_SAMEHOST=off FEROCE_FAULTS=drop=0.001,seed=8 \
        "$transfers" --cases 60 --seed 5 --seconds "$most"
    one "100 cases of up to 64 MiB, dma-buf" "$transfers" --cases 100 --seed 6 --dmabuf \
        --most 67108864 --seconds "$most"
    for i in "${!ids[@]}"; do
        status=0
        wait "${ids[i]}" || status=$?
        tell "${names[i]}" "$status" $((SECONDS - begin))
    done
}

# Two ranks of PyTorch that take each other for another machine. Words: settings.
ranks() {
    local settings=("$@" WORLD_SIZE=2 MASTER_PORT=$((29500 + RANDOM % 400)) NCCL_SOCKET_IFNAME=lo
        NCCL_DEBUG=INFO "NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH" NCCL_GIN_ENABLE=0 NCCL_GIN_TYPE=2
        NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1) ids=() rank bad=0
    for rank in 0 1; do
        env "${settings[@]}" "RANK=$rank" "NCCL_HOSTID=host$rank" "$build/bin/feroce" run -- \
            python3 "$here/collectives.py" >"$build/nccl-$rank.log" 2>&1 &
        ids+=($!)
    done
    # If one fails the other waits for it in vain.
    wait -n "${ids[@]}" && wait "${ids[0]}" && wait "${ids[1]}" || bad=1
    if ((bad)); then
        kill "${ids[@]}" 2>/dev/null
        tail -n 25 "$build"/nccl-[01].log
        echo "a rank has failed"
        return 1
    fi
    grep -hE "GPU Direct RDMA|Using \[|via NET" "$build/nccl-0.log" | sed 's/.*NCCL INFO //' |
        sort -u
    grep -h "^rank 0" "$build/nccl-0.log"
}

over_feroce() {
    ranks NCCL_IB_HCA=feroce_lo NCCL_IB_GID_INDEX=0 NCCL_NET_GDR_LEVEL=SYS "$@" || return 1
    grep -q "GPU Direct RDMA Enabled" "$build/nccl-0.log" || { echo "no GPU Direct"; return 1; }
    grep -q "via NET/IB/0/GDRDMA" "$build/nccl-0.log" || { echo "not by GDRDMA"; return 1; }
}

# compare WHAT ONE OTHER: rates of 64 MiB in the logs of two parts.
compare() {
    local one other
    one=$(rate_in "$1" "$2")
    other=$(rate_in "$1" "$3")
    if [[ -z $one || -z $other ]]; then
        results+=("$1 of 64 MiB: no figures to compare")
    else
        results+=("$1 of 64 MiB: $2 $one GB/s, $3 $other GB/s, ratio $(awk \
            -v a="$one" -v b="$other" 'BEGIN { printf "%.2f", a / b }')")
    fi
    echo "== ${results[-1]}"
}
rate_in() {
    [[ -f $(log_of "$2") ]] || return
    sed -n "s/^rank 0: $1 of 67108864 bytes.* \([0-9.]*\) GB.s.*/\1/p" "$(log_of "$2")"
}

# Without MPS two processes take turns on the GPU, which bounds every network alike. With it their
# kernels run at the same time, as on two machines with a GPU each.
beside_mps() {
    if ! type nvidia-cuda-mps-control >/dev/null 2>&1; then
        results+=("with MPS: not run, this machine has none")
        return
    fi
    export CUDA_MPS_PIPE_DIRECTORY=$logs/mps CUDA_MPS_LOG_DIRECTORY=$logs/mps
    mkdir -p "$logs/mps"
    if ! timeout 10 nvidia-cuda-mps-control -d; then
        results+=("with MPS: not run, its daemon does not start")
        return
    fi
    part "with MPS: rings" 45 over_feroce "${at_64_mib[@]}"
    part "with MPS: sockets" 45 ranks NCCL_IB_DISABLE=1 "${at_64_mib[@]}"
    compare "all-reduce" "with MPS: rings" "with MPS: sockets"
    compare "send-recv" "with MPS: rings" "with MPS: sockets"
    part "with MPS: WRITE rate, rings" 40 "$transfers" --rate both
    echo quit | timeout 10 nvidia-cuda-mps-control >/dev/null 2>&1
    unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
}

summary() {
    echo
    echo "== SUMMARY, $SECONDS s"
    printf '%s\n' "${results[@]}"
    echo "$failures failed, $not_run not run"
    ((failures + not_run == 0))
}
