#!/usr/bin/env bash
# Builds Feroce for the other architecture with Debian's cross compiler and runs unit tests in
# qemu-user: run.sh FOLDER [JOBS]. Libraries it needs are unpacked under FOLDER, never installed.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source=$(cd "$here/../.." && pwd)
mkdir -p "$1"
work=$(cd "$1" && pwd)
jobs=${2:-$(nproc)}

case $(dpkg --print-architecture) in
    amd64) architecture=arm64 triplet=aarch64-linux-gnu ;;
    arm64) architecture=amd64 triplet=x86_64-linux-gnu ;;
    *) echo "cross: only between amd64 and arm64" >&2; exit 1 ;;
esac
root=$work/$triplet

# Tests of the rooms below the C ABI: they need no network, which an emulated program has only half.
rooms=(base wire mem transport cm device process)

# apt with a package state of its own for the other architecture. libc and the compiler's own
# libraries come with the cross compiler.
fetch_libraries() {
    local packages deb
    packages=$(sed -e 's/#.*//' "$source/.ci/packages/cross-libraries.txt" | xargs)
    [[ $(cat "$work/fetched" 2>/dev/null) != "$packages" ]] || return 0
    rm -rf "$work/apt" "$root"
    mkdir -p "$work"/apt/{lists/partial,archives/partial} "$root"
    : >"$work/apt/status"
    cat >"$work/apt/conf" <<-CONF
	APT::Architecture "$architecture"; APT::Architectures { "$architecture"; };
	APT::Install-Recommends "0"; APT::Sandbox::User "root"; Acquire::Languages "none";
	Dir::State "$work/apt"; Dir::State::status "$work/apt/status"; Dir::Cache "$work/apt";
	CONF
    export APT_CONFIG=$work/apt/conf
    apt-get -qq update
    apt-get -qq -y --download-only install $packages
    for deb in "$work"/apt/archives/*.deb; do
        case $(basename "$deb") in
            libc6* | libc-* | linux-libc-dev* | libgcc* | gcc-* | libstdc++*) ;;
            *) dpkg-deb -x "$deb" "$root" ;;
        esac
    done
    echo "$packages" >"$work/fetched"
    unset APT_CONFIG
}

build() {
    local room targets=()
    export FEROCE_CROSS_TRIPLET=$triplet FEROCE_CROSS_ROOT=$root
    for room in "${rooms[@]}"; do targets+=("${room}_test"); done
    [[ -f $work/build/build.ninja ]] ||
        (cd "$source" && cmake --preset release -B "$work/build" -DFEROCE_TESTS=ON \
            -DCMAKE_TOOLCHAIN_FILE="$source/cmake/cross.cmake" ${CROSS_OPTIONS:-})
    ninja -C "$work/build" -j "$jobs" ibverbs rdmacm simrun "${targets[@]}"
}

# The drop-in is what it should be: for the other machine, with its version node, whole-program
# optimized as at home.
check_libraries() {
    local machine
    machine=$(readelf -h "$work/build/lib/libibverbs.so.1" | sed -n 's/ *Machine: *//p')
    case $architecture-$machine in
        arm64-AArch64 | amd64-*X86-64) ;;
        *) echo "cross: libibverbs.so.1 is for $machine" >&2; return 1 ;;
    esac
}

fetch_libraries
build
check_libraries
# The emulator has no process_vm_readv, by which the guard works without its signal handler.
export GTEST_FILTER=-Guard.WorksWhereTheHandlerWasReplaced
# sim.seeds: whole networks of engines, ten seeds, each twice. abi.layout: structures as programs
# there were compiled with.
ctest --test-dir "$work/build" -j "$jobs" --output-on-failure --no-tests=error \
    -R "^(unit\.($(IFS='|'; echo "${rooms[*]}"))|sim\.seeds|abi\.layout)\$"
