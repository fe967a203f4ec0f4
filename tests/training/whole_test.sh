#!/usr/bin/env bash
# whole_test.sh SOURCE: with FEROCE_TRAIN=whole the drop-in is linked as a whole, and nothing else
# is. GCC that is told -fno-lto anywhere on a link line leaves its linker plugin out, whatever else
# that line says: the library is linked all the same, the plain way.
set -euo pipefail

source=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }

cmake -G Ninja -S "$source" -B "$scratch" -DCMAKE_BUILD_TYPE=Release -DFEROCE_TESTS=OFF \
    -DFEROCE_TRAIN=whole >/dev/null
link_of() { ninja -C "$scratch" -t commands "lib/$1" | tail -1; }

whole=$(link_of libibverbs.so.1)
[[ $whole == *' -flto=auto '* && $whole != *-fno-lto* ]] || fail "libibverbs.so.1: $whole"
plain=$(link_of librdmacm.so.1)
[[ $plain == *' -fno-lto '* && $plain != *-flto* ]] || fail "librdmacm.so.1: $plain"
