#!/usr/bin/env bash
# ./feroce dist --image: image.sh ARCHIVE [BASE]. Two OCI images of an archive, as files beside it:
# NAME.layer.oci.tar (its files alone) and NAME.oci.tar (a Debian that runs programs on it). BASE is
# the image of that Debian; the engine pulls it if it does not have it. IMAGE_OPTIONS (environment):
# options that come before buildah's command, such as --root. The images' names are whole, with the
# version as their tag: what loads them, such as Kind, adds nothing, and nothing asks a registry.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
archive=$(readlink -f "$1")
base=${2:-debian:bookworm-slim}
name=$(basename "$archive" .tar.zst)
folder=$(dirname "$archive")
case $name in
    *-x86_64) architecture=amd64 ;;
    *-aarch64) architecture=arm64 ;;
    *) echo "feroce: $archive is no archive of ./feroce dist" >&2; exit 2 ;;
esac
read -ra options <<<"${IMAGE_OPTIONS:-}"
version=${name#feroce-}
version=${version%%-linux-*}
layer=localhost/feroce-layer:$version
program=localhost/feroce:$version

say() { echo "feroce: $*" >&2; }

# chroot: commands of the file need no more than chroot and no engine in the background.
build() { # TARGET IMAGE
    buildah "${options[@]}" build --quiet --isolation chroot --arch "$architecture" \
        --timestamp "$date" --build-arg "BASE=$base" --target "$1" --tag "$2" \
        -f "$here/Containerfile" "$context" >/dev/null
}

save() { # IMAGE FILE
    rm -f "$2"
    buildah "${options[@]}" push --quiet "$1" "oci-archive:$2:$1" >/dev/null
    echo "$2"
}

if ! command -v buildah >/dev/null; then
    say "images are made by buildah, which is not installed"
    exit 3
fi
(cd "$folder" && sha256sum --quiet -c "$name.tar.zst.sha256") >&2
context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
mkdir "$context/feroce"
tar -C "$context/feroce" --strip-components=1 --no-same-owner -xf "$archive"
date=$(stat -c %Y "$context/feroce/README")
build layer "$layer" || { say "the image $layer was not made"; exit 1; }
save "$layer" "$folder/$name.layer.oci.tar"
# Its commands are programs of that architecture.
if [[ $architecture != "$(dpkg --print-architecture)" ]]; then
    say "the image $program for $architecture is made on $architecture; its layer is made"
    exit
fi
build program "$program" || { say "the image $program was not made; $base is its base"; exit 1; }
save "$program" "$folder/$name.oci.tar"
