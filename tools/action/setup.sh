#!/usr/bin/env bash
# What action.yml does: gets an archive of ./feroce dist, checks its sum, unpacks it and tells later
# steps. Inputs are INPUT_* variables (action.yml describes them); the runner's files GITHUB_OUTPUT,
# GITHUB_ENV and GITHUB_PATH are written at the end, so a step that fails has set nothing.
set -euo pipefail
shopt -s inherit_errexit
exec 3>&1 # The runner's log, also where a function's output is taken.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# The runner shows such a line as the step's error.
die() {
    echo "::error title=Feroce::feroce: $*" >&3
    exit 1
}

# ---- inputs ---------------------------------------------------------------------------------

check_input() { # NAME VALUE PATTERN EXAMPLE
    [[ -z $2 || $2 =~ ^($3)$ ]] || die "the input $1 is '${2//[^[:print:]]/?}', not one like $4"
}

check_inputs() {
    local interface
    check_input version "$version" 'v?[0-9]+\.[0-9]+\.[0-9]+' 0.1.0
    check_input archive "$archive" '[^[:cntrl:]]+' build-dist/feroce-0.1.0-linux-x86_64.tar.zst
    check_input devices "$devices" '[A-Za-z0-9_.@-]+(,[A-Za-z0-9_.@-]+)*' lo,eth0
    # Their words; feroce doctor judges what they mean.
    check_input faults "$faults" '[A-Za-z0-9_.:=@+-]+(,[A-Za-z0-9_.:=@+-]+)*' drop=0.01,dup=0.01
    check_input seed "$seed" '[0-9]{1,18}' 7
    check_input capture "$capture" 'true|false' true
    check_input everywhere "$everywhere" 'true|false' true
    [[ -z $seed || -n $faults ]] || die "the input seed needs the input faults"
    [[ -z $seed || $faults != *seed=* ]] ||
        die "the seed is in the inputs faults and seed; one suffices"
    for interface in ${devices//,/ }; do
        [[ -e /sys/class/net/$interface ]] ||
            die "the input devices names $interface, and this runner has no such interface"
    done
}

# ---- the archive ----------------------------------------------------------------------------

need() { # PROGRAM PACKAGE
    command -v "$1" >/dev/null ||
        die "the program $1 is missing; install the package $2 in a step before"
}

of_this_action() {
    sed -n 's/^project(feroce VERSION \([^ ]*\).*/\1/p' "$here/../../CMakeLists.txt"
}

# The address or file of the archive.
choose_archive() {
    local wanted=${version#v} repository=${ACTION_REPOSITORY:-${GITHUB_REPOSITORY:-}} releases
    [[ -z $archive ]] || { echo "$archive"; return; }
    [[ -n $wanted ]] || wanted=$(of_this_action)
    [[ -n ${GITHUB_SERVER_URL:-} && -n $repository ]] ||
        die "GITHUB_SERVER_URL or GITHUB_REPOSITORY is not set, and there is no input archive"
    releases=$GITHUB_SERVER_URL/$repository/releases/download
    echo "$releases/v$wanted/feroce-$wanted-linux-$(uname -m).tar.zst"
}

bring() { # FILE OR ADDRESS, TARGET
    local said
    case $1 in
        http://* | https://*)
            need curl curl
            said=$(curl --fail --silent --show-error --location --retry 3 --max-time 120 \
                -o "$2" "$1" 2>&1) || die "$1 could not be downloaded: ${said##*$'\n'}"
            ;;
        *)
            [[ -f $1 ]] || die "there is no file $1"
            cp "$1" "$2"
            ;;
    esac
}

# Prints the folder of Feroce.
unpack() {
    local from name
    from=$(choose_archive)
    name=$(basename "$from")
    [[ $name == feroce-*-linux-*.tar.zst ]] || die "$name is no name of an archive of ./feroce dist"
    [[ $name == *"-linux-$(uname -m).tar.zst" ]] ||
        die "$name is not for this runner, which is $(uname -m)"
    need zstd zstd
    bring "$from" "$place/$name"
    bring "$from.sha256" "$place/$name.sha256"
    (cd "$place" && sha256sum --quiet -c "$name.sha256" >/dev/null 2>&1) ||
        die "$name is not the file whose sum is in $name.sha256"
    tar -C "$place" -xf "$place/$name" || die "$name could not be unpacked"
    rm "$place/$name"
    echo "$place/${name%.tar.zst}"
}

# ---- what later steps get -------------------------------------------------------------------

settings() {
    [[ -z $devices ]] || echo "FEROCE_DEVICES=$devices"
    [[ -z $faults ]] || echo "FEROCE_FAULTS=$faults${seed:+,seed=$seed}"
    [[ $capture != true ]] || echo "FEROCE_PCAP=$place/captures/%p.pcapng"
}

# Without faults: these are for later steps, and may meet calls of the command itself.
feroce() {
    env -u FEROCE_FAULTS "${plain[@]}" "$folder/bin/feroce" "$@"
}

stop_of() { # WHAT DOCTOR SAID, PATTERN: the sentence of the first thing that stops RDMA.
    grep -m 1 -E "^stop .*$2" <<<"$1" | sed -E 's/^stop +//'
}

# By the very program: it opens a device as others will, and says in one sentence what is wrong.
try() {
    local said status=0
    said=$(feroce doctor 2>&1) || status=$?
    [[ $status -ne 127 ]] ||
        die "feroce does not start: its loader is missing, as on systems without glibc (Alpine)"
    [[ $status -eq 0 ]] || die "no program would run: $(stop_of "$said" '' ||
        echo "feroce doctor ended with $status: ${said##*$'\n'}")"
    [[ -n $faults ]] || return 0
    # A fault that was asked for may stop doctor too. A value that is not understood is named.
    said=$(env "${set[@]}" "$folder/bin/feroce" doctor 2>&1) || status=$?
    [[ $status -le 1 ]] || die "with these faults feroce doctor ended with $status"
    said=$(stop_of "$said" FEROCE_FAULTS) || return 0
    die "no program would run: $said"
}

version_of_program() {
    feroce --version | grep -m 1 -oE '[0-9]+\.[0-9]+\.[0-9]+'
}

names_of_devices() {
    feroce -j dev | grep -oE '"ifname": *"[^"]+"' | cut -d'"' -f4 | paste -sd,
}

# NAME=VALUE of what `feroce env` prints as `export NAME='VALUE'`, but PATH: the runner has a file
# for that.
variables() (
    said=$(feroce env) || exit 1
    eval "$said" || exit 1
    [[ -n ${LD_LIBRARY_PATH:-} ]] || exit 1
    for name in LD_LIBRARY_PATH LD_PRELOAD FEROCE_SYSFS_ROOT; do
        [[ -z ${!name:-} ]] || echo "$name=${!name}"
    done
)

# Folders, each of which the runner puts before the path as it is then.
folders() {
    local name value
    echo "$folder/bin"
    while IFS='=' read -r name value; do
        [[ $name != FEROCE_SYSFS_ROOT ]] || echo "$value/bin"
    done <<<"$exported"
}

version=${INPUT_VERSION:-} archive=${INPUT_ARCHIVE:-} devices=${INPUT_DEVICES:-}
faults=${INPUT_FAULTS:-} seed=${INPUT_SEED:-}
capture=${INPUT_CAPTURE:-false} everywhere=${INPUT_EVERYWHERE:-false}
for file in GITHUB_OUTPUT GITHUB_ENV GITHUB_PATH RUNNER_TEMP; do
    [[ -n ${!file:-} ]] || die "$file is not set; this is a step of a runner"
done
check_inputs
place=$RUNNER_TEMP/feroce
rm -rf "$place"
mkdir -p "$place/captures"
folder=$(unpack)
mapfile -t set < <(settings)
mapfile -t plain < <(settings | grep -v '^FEROCE_FAULTS=')
try
program=$(version_of_program) || die "feroce --version tells no version"
names=$(names_of_devices) || die "feroce dev names no device"
exported=
[[ $everywhere != true ]] || exported=$(variables) || die "feroce env tells no variables"
{
    printf '%s\n' "FEROCE_CAPTURES=$place/captures" "${set[@]}"
    [[ -z $exported ]] || echo "$exported"
} >>"$GITHUB_ENV"
folders >>"$GITHUB_PATH"
printf '%s\n' "path=$folder" "version=$program" "devices=$names" "captures=$place/captures" \
    >>"$GITHUB_OUTPUT"
echo "feroce: set up in $folder"
