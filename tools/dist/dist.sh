#!/usr/bin/env bash
# ./feroce dist: dist.sh FOLDER [JOBS [ARCHITECTURE]]. One archive, FOLDER/NAME.tar.zst with
# NAME.tar.zst.sha256, that runs where it is unpacked; for another architecture (Debian's name of
# it) by Debian's cross compiler. DIST_OPTIONS (environment): more for cmake.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source=$(cd "$here/../.." && pwd)
mkdir -p "$1"
target=$(cd "$1" && pwd)
jobs=${2:-$(nproc)}
here_architecture=$(dpkg --print-architecture)
architecture=${3:-$here_architecture}
case $architecture in
    amd64) triplet=x86_64-linux-gnu ;;
    arm64) triplet=aarch64-linux-gnu ;;
    *) echo "feroce: archives are made for amd64 and arm64, not for $architecture" >&2; exit 2 ;;
esac
work=$target # Another architecture has a folder of its own in it.
[[ $architecture == "$here_architecture" ]] || work=$target/$architecture
mkdir -p "$work"
version=$(sed -n 's/^project(feroce VERSION \([^ ]*\).*/\1/p' "$source/CMakeLists.txt")
name=feroce-$version-linux-${triplet%%-*}
place=$work/stage/$name
export FEROCE_SYSROOT=$work/sysroot FEROCE_TRIPLET=$triplet

say() { echo "feroce: $*" >&2; }

build() {
    local launcher=() options
    read -ra options <<<"${DIST_OPTIONS:-}"
    command -v ccache >/dev/null && launcher=(-DCMAKE_C{,XX}_COMPILER_LAUNCHER=ccache)
    # Not trained: that would need a run of the first build, and the archive is for any machine.
    [[ -f $work/build/build.ninja ]] ||
        (cd "$source" && cmake --preset release -B "$work/build" -DFEROCE_TESTS=OFF \
            -DFEROCE_TRAIN=whole -DFEROCE_SELF_CONTAINED=ON "${launcher[@]}" \
            -DCMAKE_TOOLCHAIN_FILE="$source/cmake/floor.cmake" "${options[@]}")
    ninja -C "$work/build" -j "$jobs" feroce ibverbs rdmacm feroce_shim nbdkit_feroce \
        feroce_python_shared
}

# What cmake installs, ISA-L beside it, and the licences of what is inside.
stage() {
    local package text
    rm -rf "$work/stage"
    cmake --install "$work/build" --prefix "$place" --component runtime --strip >/dev/null
    cp -P "$FEROCE_SYSROOT"/usr/lib/*-linux-gnu*/libisal.so.2* "$place/lib/feroce/"
    sed "s/@NAME@/$name/g" "$here/README.txt" >"$place/README"
    mkdir -p "$place/share/doc/feroce/inside"
    for package in libisal2 liburing-dev libfmt-dev libcli11-dev nlohmann-json3-dev; do
        cp "$FEROCE_SYSROOT/usr/share/doc/$package/copyright" \
            "$place/share/doc/feroce/inside/$package"
    done
    for text in /usr/share/doc/gcc-12-base/copyright /usr/share/doc/gcc-*-base/copyright; do
        [[ ! -f $text ]] || { cp "$text" "$place/share/doc/feroce/inside/libstdc++"; break; }
    done
}

# The same sources give the same archive, by any user and at any time.
pack() {
    local date
    date=$(git -C "$source" log -1 --format=%ct 2>/dev/null || stat -c %Y "$source/CMakeLists.txt")
    tar -C "$work/stage" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$date" \
        --mode=u+rwX,go+rX,go-w -c "$name" | zstd -q -f -19 -T0 -o "$target/$name.tar.zst"
    (cd "$target" && sha256sum "$name.tar.zst" >"$name.tar.zst.sha256")
}

say "fetching what it is built against"
"$here/sysroot.sh" "$work" "$architecture" "$triplet" >&2
build >&2
stage
pack
say "made $(du -h "$target/$name.tar.zst" | cut -f1)"
echo "$target/$name.tar.zst"
