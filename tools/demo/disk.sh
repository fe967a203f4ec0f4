#!/usr/bin/env bash
# A disk over two networks, one of which is cut under load; then the same disk by NBD
# In network namespaces of our own where we may make them (root, or anybody whose kernel lets him),
# else over two addresses of loopback, where a path can only be disconnected and not be cut.
source "${BASH_SOURCE[0]%/*}/common.sh"

# ---- the places ---------------------------------------------------------------------------------

# A network namespace lives as long as a process in it, and these end with the step.
hold_namespace() { # NAME: leaves the process in holder[NAME]
    unshare --net -- sleep infinity &
    holder[$1]=$!
    apart() { [[ $(readlink "/proc/$1/ns/net") != $(readlink /proc/self/ns/net) ]]; }
    await "a network namespace" apart "${holder[$1]}"
}

place() { # NAME CMD ARGS...
    if [[ $where == namespaces ]]; then
        nsenter --net="/proc/${holder[$1]}/ns/net" -- "${@:2}"
    else
        "${@:2}"
    fi
}

# An interface of a place, and its other end on the bridge of that network, here.
join() { # NAME NETWORK ADDRESS
    ip link add "net$2" netns "${holder[$1]}" type veth peer name "$1$2"
    ip link set "$1$2" master "wire$2" up
    place "$1" ip address add "$3/24" dev "net$2"
    place "$1" ip link set "net$2" up
}

# Client and server, joined by two bridges. A bridge that is down cuts its network without either
# end's interface noticing, as a switch that failed would.
make_networks() {
    local network
    hold_namespace client
    hold_namespace server
    for network in 0 1; do
        ip link add "wire$network" type bridge
        ip link set "wire$network" up
        join client "$network" "10.77.$network.1"
        join server "$network" "10.77.$network.2"
    done
    echo "two network namespaces, two networks between them; the server is 10.77.0.2 and 10.77.1.2"
    addresses=(10.77.0.2 10.77.1.2)
}

cut() { # yes or no
    if [[ $where == namespaces ]]; then
        ip link set wire0 "$([[ $1 == yes ]] && echo down || echo up)"
    elif [[ $1 == yes ]]; then
        "$FEROCE" session path disconnect demo "${addresses[0]}"
    else
        "$FEROCE" session path reconnect demo "${addresses[0]}"
    fi
}

# Runs this script once more where networks can be made; not at all if that is nowhere.
find_place() {
    local may=(unshare --net)
    command -v ip unshare nsenter >/dev/null || return 0
    # Somebody else than root is given his own user namespace, in which he stays who he is.
    [[ $EUID -eq 0 ]] || may=(unshare --net --map-current-user --keep-caps)
    "${may[@]}" -- ip link add wire0 type bridge 2>/dev/null || return 0
    DEMO_WHERE=namespaces exec "${may[@]}" -- bash "${BASH_SOURCE[0]}"
}

# ---- the steps ----------------------------------------------------------------------------------

serve_disk() {
    truncate -s 16M "$scratch/disk"
    # The machine's own folder is for servers that stay.
    mkdir "$scratch/state"
    STATE_DIRECTORY=$scratch/state place server "$FEROCE" export "data=$scratch/disk" \
        --port "$port" >"$scratch/export" 2>&1 &
    serves() { grep -qs "on port" "$scratch/export"; }
    await "feroce export" serves
    echo "feroce export data=disk         # $(<"$scratch/export")"
}

# The load's own lines are the clock: after the fourth the first network is cut, and later restored.
cut_under_load() {
    local line lines=0
    echo "A client opens a session with a path over each network, and eight workers write, read and"
    echo "compare 64 KiB at a time:"
    while IFS= read -r line; do
        echo "  $line"
        lines=$((lines + 1))
        case $lines in
            4) cut yes; echo "  --- ${addresses[0]} is cut off: $how_cut" ;;
            9) cut no; echo "  --- ${addresses[0]} is back" ;;
        esac
        echo "$line" >"$scratch/last"
    done < <(place client "$TOOLS/disk_load" "$port" data 16 "${addresses[@]}" 2>&1)
    grep -q ', 0 errors, 0 wrong' "$scratch/last" || fail "the load was disturbed"
}

read_by_nbd() {
    local servers uri attach
    servers=$(IFS=,; echo "${addresses[*]}")
    place client "$FEROCE" attach "$servers" data --port "$port" --socket "$scratch/nbd" \
        --foreground >"$scratch/attach" 2>"$scratch/attach.err" &
    attach=$!
    attached() { [[ -s $scratch/attach ]] || ! kill -0 "$attach" 2>/dev/null; }
    await "feroce attach" attached
    uri=$(<"$scratch/attach")
    [[ -n $uri ]] || fail "$(<"$scratch/attach.err")"
    echo "feroce attach $servers data"
    if command -v nbdcopy >/dev/null; then
        # Without --size it calls file(1), which a bare system has not.
        echo "nbdinfo: $(nbdinfo --size "$uri") bytes"
        echo "nbdcopy it to a file, and compare that with the file on the server:"
        nbdcopy "$uri" "$scratch/copy"
    elif command -v qemu-img >/dev/null; then
        echo "qemu-img convert it to a file, and compare that with the file on the server:"
        qemu-img convert -f raw -O raw "$uri" "$scratch/copy"
    else
        echo "(neither nbdcopy nor qemu-img is here, so nobody reads it)"
        return 0
    fi
    cmp "$scratch/disk" "$scratch/copy" || fail "the copy differs"
    (cd "$scratch" && sha256sum disk copy)
}

declare -A holder=()
where=${DEMO_WHERE:-loopback}
[[ $where == namespaces ]] || find_place
if [[ $where == namespaces ]]; then
    port=1234 how_cut="the bridge is taken down, which no interface notices"
    make_networks
else
    export FEROCE_DEVICES=lo
    port=$((20000 + RANDOM % 20000)) how_cut="without namespaces only by feroce session"
    addresses=(127.0.0.1)
    ! grep -qs '^0\{31\}1 ' /proc/net/if_inet6 || addresses+=(::1)
    echo "we may not make networks here, so the paths are ${addresses[*]} of loopback"
fi
serve_disk
cut_under_load
read_by_nbd
