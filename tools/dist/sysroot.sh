#!/usr/bin/env bash
# Fills a folder with what ./feroce dist builds against: sysroot.sh FOLDER ARCHITECTURE TRIPLET. The
# C library is Debian 11's (glibc 2.31), the rest is this Debian's. Nothing is installed; no root is
# needed.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$1"
work=$(cd "$1" && pwd)
root=$work/sysroot
architecture=$2
triplet=$3
old=(libc6 libc6-dev libcrypt1 libcrypt-dev libgcc-s1)
mapfile -t new < <(sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "$here/../../.ci/packages/dist.txt")

# apt with a state of its own.
fetch() { # SUITE PACKAGE...
    local suite=$1 state=$work/apt-$1
    shift
    mkdir -p "$state"/{lists/partial,archives/partial}
    : >"$state/status"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" \
        >"$state/sources"
    cat >"$state/conf" <<-CONF
	APT::Architecture "$architecture"; APT::Architectures { "$architecture"; };
	APT::Sandbox::User "$(id -un)"; Acquire::Languages "none";
	Dir::State "$state"; Dir::State::status "$state/status"; Dir::Cache "$state";
	Dir::Etc::sourcelist "$state/sources"; Dir::Etc::sourceparts "-";
	CONF
    APT_CONFIG=$state/conf apt-get -qq update
    (cd "$state/archives" && APT_CONFIG=$state/conf apt-get -qq download "$@")
    local deb
    for deb in "$state"/archives/*.deb; do dpkg-deb -x "$deb" "$root"; done
}

# In the folder, and not in the machine's own.
make_links_relative() {
    local link target
    find "$root" -type l -lname '/*' | while read -r link; do
        target=$root$(readlink "$link")
        [[ ! -e $target ]] ||
            ln -sfn "$(realpath -m --relative-to="$(dirname "$link")" "$target")" "$link"
    done
}

# The compiler's own C++ headers, which a cross compiler has elsewhere (cmake/floor.cmake);
# declarations of what floor.c adds.
complete() {
    local own
    if [[ $architecture == "$(dpkg --print-architecture)" ]]; then
        ln -s /usr/include/c++ "$root/usr/include/c++"
        ln -s "/usr/include/$triplet/c++" "$root/usr/include/$triplet/c++"
    fi
    rm -f "$root/usr/lib/$triplet"/liburing.so* # The archive beside it goes into what is linked.
    cat >>"$root/usr/include/string.h" <<-'C'
	#ifdef __cplusplus
	extern "C"
	#endif
	const char *strerrorname_np(int);
	C
    cat >>"$root/usr/include/$triplet/sys/epoll.h" <<-'C'
	#include <time.h>
	#ifdef __cplusplus
	extern "C"
	#endif
	int epoll_pwait2(int, struct epoll_event *, int, const struct timespec *, const __sigset_t *);
	C
    own=$("$triplet-gcc" -print-file-name=include)
    "$triplet-gcc" --sysroot="$root" -nostdinc -isystem "$own" \
        -isystem "$root/usr/include/$triplet" -isystem "$root/usr/include" -O2 -fPIC \
        -Wall -Wextra -Werror -c "$here/floor.c" -o "$root/usr/lib/$triplet/floor.o"
}

wanted="${old[*]} / ${new[*]} / $(cat "$here/sysroot.sh" "$here/floor.c" | sha256sum)"
[[ $(cat "$work/fetched" 2>/dev/null) != "$wanted" ]] || exit 0
# shellcheck disable=SC1091 # The machine's, not ours.
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
# shellcheck disable=SC2016 # apt expands them.
mirror=$(apt-get indextargets --format '$(ORIGIN) $(REPO_URI)' 'Created-By: Packages' |
    awk '$1 == "Debian" && !/security/ && !found { print $2; found = 1 }')
if [[ -z $mirror ]]; then
    echo "feroce: apt knows no mirror of Debian; run apt-get update first" >&2
    exit 1
fi
# With what was built against the old one: the build's cache names files of it.
rm -rf "$root" "$work/build" "$work"/apt-*
mkdir -p "$root"
fetch bullseye "${old[@]}"
fetch "$suite" "${new[@]}"
make_links_relative
complete
echo "$wanted" >"$work/fetched"
