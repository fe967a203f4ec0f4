#!/usr/bin/env bash
# train.sh SOURCE BUILD COUNTERS CMAKE-OPTION...: builds the drop-in with counters, with all that
# the build folder was configured with, and lets traffic over loopback fill them;
# cmake/training.cmake says why. Where that fails (a machine without loopback, say) the product is
# built without, and this says so.
set -euo pipefail
source=$1 outer=$2 counters=$3
shift 3
build=$counters/build
log=$counters/log

# What was found once, or given by hand, is where it was: a library outside the system's folders.
configure() {
    mkdir -p "$build"
    grep -E '^[[:alnum:]_.-]+:(BOOL|STRING|PATH|FILEPATH|UNINITIALIZED)=' \
        "$outer/CMakeCache.txt" >"$build/CMakeCache.txt"
    cmake -S "$source" -B "$build" "$@"
}

# By UDP, and by rings between processes. The caller's LD_LIBRARY_PATH, where libraries of the build
# may lie, may hold another libibverbs.
traffic() {
    local kind rings
    export LD_LIBRARY_PATH=$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    for kind in send_latency write_latency read_latency "message_rate 16" "bandwidth 65536"; do
        for rings in off on; do
            echo "training: traffic, $kind, FEROCE_SAMEHOST=$rings"
            # shellcheck disable=SC2086 # A kind and its size are two words.
            FEROCE_DEVICES=lo FEROCE_SAMEHOST=$rings timeout 60 "$build/trainer" $kind >>"$log" 2>&1
        done
    done
}

train() {
    configure "$@" -DCMAKE_BUILD_TYPE=Release -DFEROCE_TESTS=OFF -DFEROCE_WERROR=OFF \
        -DFEROCE_TRAIN=record -DFEROCE_COUNTERS="$counters" >"$log" 2>&1
    NINJA_STATUS='training: [%f/%t] ' cmake --build "$build" --target trainer 2>&1 | tee -a "$log"
    traffic
}

rm -rf "$counters"
mkdir -p "$counters"
# In a shell of its own, which ends at the first error: behind || or if it would go on.
set +e
(
    set -e
    train "$@"
)
status=$?
set -e
if [[ $status -ne 0 ]]; then
    rm -f "$counters"/*.gcda
    echo "the drop-in will be a tenth slower than it could be: training failed, see $log" >&2
fi
rm -rf "$build"
touch "$counters/done"
