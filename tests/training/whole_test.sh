#!/usr/bin/env bash
# whole_test.sh SOURCE: with FEROCE_TRAIN=whole the drop-in is linked as a whole, and nothing else
# is. GCC that is told -fno-lto anywhere on a link line leaves its linker plugin out, whatever else
# that line says: the library is linked all the same, the plain way. So is the drop-in where a
# compiler has no such plugin.
set -euo pipefail

source=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }

configure() { # FOLDER OPTION...
    cmake -G Ninja -S "$source" -B "$@" -DCMAKE_BUILD_TYPE=Release -DFEROCE_TESTS=OFF \
        -DFEROCE_TRAIN=whole
}
build=$scratch/build
link_of() { ninja -C "$build" -t commands "lib/$1" | tail -1; }

configure "$build" >/dev/null

whole=$(link_of libibverbs.so.1)
[[ $whole == *' -flto=auto '* && $whole != *-fno-lto* ]] || fail "libibverbs.so.1: $whole"
plain=$(link_of librdmacm.so.1)
[[ $plain == *' -fno-lto '* && $plain != *-flto* ]] || fail "librdmacm.so.1: $plain"

cat >"$scratch/g++" <<'TEXT'
#!/bin/sh
for word; do [ "$word" != -flto ] || exit 1; done
exec g++ "$@"
TEXT
chmod +x "$scratch/g++"
build=$scratch/build-without
said=$(configure "$build" -DCMAKE_CXX_COMPILER="$scratch/g++")
[[ $said == *'cannot link with -flto'* ]] || fail "it does not say so: $said"
whole=$(link_of libibverbs.so.1)
[[ -n $whole && $whole != *-flto* ]] || fail "libibverbs.so.1: $whole"
