#!/bin/sh
# train.sh SOURCE COUNTERS CMAKE-OPTION...: builds the drop-in with counters and lets traffic over
# loopback fill them; cmake/training.cmake says why. Where that fails (a machine without loopback,
# say) the product is built without, and this says so.
set -u
source=$1 counters=$2
shift 2
build=$counters/build
log=$counters/log

# By UDP, and by rings between processes.
traffic() {
    for kind in send_latency write_latency read_latency "message_rate 16" "bandwidth 65536"; do
        for rings in off on; do
            # shellcheck disable=SC2086 # A kind and its size are two words.
            FEROCE_DEVICES=lo FEROCE_SAMEHOST=$rings timeout 60 "$build/trainer" $kind || return
        done
    done
}

rm -rf "$counters"
mkdir -p "$counters"
{
    cmake -S "$source" -B "$build" "$@" -DCMAKE_BUILD_TYPE=Release -DFEROCE_TESTS=OFF \
        -DFEROCE_WERROR=OFF -DFEROCE_TRAIN=record -DFEROCE_COUNTERS="$counters" &&
        cmake --build "$build" --target trainer &&
        traffic
} >"$log" 2>&1 || {
    rm -f "$counters"/*.gcda
    echo "the drop-in will be a tenth slower than it could be: training failed, see $log" >&2
}
rm -rf "$build"
touch "$counters/done"
