#!/usr/bin/env bash
# Tests of the built `feroce` command: cli_test.sh NAME BIN_FOLDER C_COMPILER.
# Exit status 77 means that this machine or user cannot run the test.
set -euo pipefail

name=$1
bin=$2
compiler=$3
feroce=$bin/feroce
scratch=$(mktemp -d)
child=
trap '[[ -z $child ]] || kill "$child" 2>/dev/null || true; rm -rf "$scratch"' EXIT

fail() { echo "FAILED: $*" >&2; exit 1; }
equal() { [[ $1 == "$2" ]] || fail "${3:-}: wanted '$2', got '$1'"; }
contains() { [[ $1 == *"$2"* ]] || fail "'$2' is not in: $1"; }

# Runs a command and leaves its exit status, stdout and stderr in status, out and err.
call() {
    status=0
    "$@" >"$scratch/out" 2>"$scratch/err" || status=$?
    out=$(<"$scratch/out")
    err=$(<"$scratch/err")
}

# Waits for a condition that a process of ours brings about; fails after ten seconds.
await() {
    local tries=0
    until "$@"; do
        [[ $((tries += 1)) -le 1000 ]] || fail "waited in vain: $*"
        sleep 0.01
    done
}

# Runs this test again without the processes, devices and addresses of others.
in_own_world() {
    unshare -rnm true 2>/dev/null || exit 77
    OWN_WORLD=yes unshare -rnm \
        sh -c 'mount -t tmpfs none /dev/shm && ip link set lo up && exec "$@"' \
        sh bash "$0" "$name" "$bin" "$compiler"
}

json() { python3 -c "import json,sys; d=json.load(sys.stdin); print($1)"; }

test_exit_status() {
    call "$feroce" run -- sh -c 'exit 37'
    equal "$status" 37
    equal "$out$err" "" "run itself is silent"
    call "$feroce" run sh -c 'cat; echo error >&2' <<<'input'
    equal "$out" input "stdin and stdout"
    equal "$err" error "stderr"
    call "$feroce" run -- printf '%s\n' -j --help --
    equal "$out" $'-j\n--help\n--' "arguments are the program's"
    call "$feroce" run -- /no/such/program
    equal "$status" 127
    call "$feroce" run -- /etc/passwd
    equal "$status" 126
}

is_sleep() { [[ $(</proc/"$child"/comm) == sleep ]]; }

test_signals() {
    call "$feroce" run -- sh -c 'kill -USR1 $$'
    equal "$status" $((128 + 10)) "killed by SIGUSR1"
    "$feroce" run -- sleep 1000 &
    child=$!
    await is_sleep
    kill -TERM "$child"
    status=0
    wait "$child" || status=$?
    child=
    equal "$status" $((128 + 15)) "killed by SIGTERM from outside"
}

test_environment() {
    local line
    export FEROCE_DEVICES=lo
    call "$feroce" env
    while read -r line; do
        contains "$line" "export "
    done <<<"$out"
    # A shell with odd values of its own.
    out=$(env LD_LIBRARY_PATH='/a b:/c' sh -c "$out"'; ibv_devices; echo "$LD_LIBRARY_PATH"')
    contains "$out" feroce_lo
    contains "$out" ":/a b:/c"
    call "$feroce" run -- "$feroce" run -- sh -c 'echo "$LD_LIBRARY_PATH $LD_PRELOAD"'
    equal "$(grep -o 'libferoce_preload' <<<"$out" | wc -l)" 1 "a run within a run adds nothing"
}

test_devices() {
    local listed
    listed=$("$feroce" run -- ibv_devices | awk '/feroce_/ { print $1 }')
    equal "$("$feroce" dev -j | json '"\n".join(r["ifname"] for r in d)')" "$listed" "dev"
    equal "$("$feroce" -j link show | json '"\n".join(r["ifname"] for r in d)')" "$listed" "link"
    equal "$("$feroce" link show feroce_lo/1 -j | json '[r["netdev"] for r in d]')" "['lo']"
    equal "$("$feroce" -jp dev | wc -l)" "$((2 + 8 * $(wc -l <<<"$listed")))" "pretty JSON"
    contains "$("$feroce" dev show feroce_lo)" "feroce_lo: node_type ca fw "
    contains "$("$feroce" link show feroce_lo)" \
        "link feroce_lo/1 state ACTIVE physical_state LINK_UP netdev lo "
    "$feroce" res -j | json 'd[0]["qp"]' >/dev/null
    "$feroce" statistic -j | json 'd' >/dev/null
}

# By other names, in the list, in the tree and to every command.
test_names() {
    export FEROCE_DEVICES=lo FEROCE_NAME=mlx5_%d
    contains "$("$feroce" run -- ibv_devices)" mlx5_0
    contains "$("$feroce" run -- cat /sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0)" lo
    equal "$("$feroce" link -j | json '[(r["ifname"], r["netdev"]) for r in d]')" \
        "[('mlx5_0', 'lo')]"
    contains "$("$feroce" doctor)" "mlx5_0 (lo, "
    call "$feroce" run -- ibv_devinfo -d mlx5_0
    equal "$status" 0 "$err"
}

is_shown() { [[ $("$feroce" stat show) == *"pid $child "* ]]; }

# `rdma` of iproute2 is answered here, as far as we know what it asks.
# What a process counts between the two commands must be nothing: the test has a world of its own,
# and in it a process that waits.
test_rdma() {
    [[ -n ${OWN_WORLD:-} ]] || { in_own_world; return; }
    export FEROCE_DEVICES=lo
    local object
    "$feroce" run -- ibv_rc_pingpong -d feroce_lo -g 0 >/dev/null &
    child=$!
    await is_shown
    for object in dev link res stat; do
        equal "$("$feroce" run -- rdma "$object" show)" "$("$feroce" "$object" show)" "$object"
    done
    equal "$("$feroce" run -- sh -c 'rdma -j dev' | json 'd[0]["ifname"]')" feroce_lo
    # The rest is the machine's, if it has the command.
    local other
    other=$(PATH=$PATH sh -c 'rdma -V 2>/dev/null') || other=
    equal "$("$feroce" run -- rdma -V 2>/dev/null || true)" "$other" "rdma -V"
    call env PATH= "$feroce" run -- rdma system
    equal "$status" 127 "$err"
    contains "$err" "only dev, link, resource and statistic are answered here"
}

# Beside another device, feroce_lo is there for programs that name it.
test_loopback() {
    unshare -rn true 2>/dev/null || exit 77
    local world='ip link set lo up; ip link add d0 type veth peer name d1;
        ip link set d1 addrgenmode none up; ip addr add 10.98.0.1/24 dev d0; ip link set d0 up;'
    listed() { # COMMAND: the devices that it prints.
        unshare -rn sh -c "$world $1" | grep -o 'feroce_[a-z0-9]*' | sort -u | tr '\n' ' '
    }
    equal "$(listed "$feroce run -- ibv_devices")" "feroce_d0 "
    equal "$(listed "$feroce dev")" "feroce_d0 "
    equal "$(listed "UCX_NET_DEVICES=feroce_lo:1 $feroce run -- ibv_devices")" \
        "feroce_d0 feroce_lo "
    equal "$(listed "OTHER=feroce_lop $feroce run -- ibv_devices")" "feroce_d0 "
    equal "$(listed "FEROCE_DEVICES=lo $feroce run -- ibv_devices")" "feroce_lo "
    equal "$(listed "FEROCE_DEVICES=d0,lo $feroce run -- ibv_devices")" "feroce_d0 feroce_lo "
    equal "$(listed "$feroce run -- ibv_devinfo -d feroce_lo")" "feroce_lo "
    equal "$(unshare -rn sh -c "ip link set lo up; $feroce run -- ibv_devices" |
        grep -c feroce_lo)" 1 "where there is no other"
    contains "$(unshare -rn sh -c "$world $feroce dev" 2>&1)" \
        "feroce_lo is there as well, for programs that name it"
}

# Whatever is wrong: exit status 2, nothing on stdout, one line on stderr.
refused() {
    call "$feroce" "$@"
    equal "$status" 2 "$*"
    equal "$out" "" "$*"
    equal "$(wc -l <<<"$err")" 1 "$*"
    contains "$err" "feroce: "
}

test_usage() {
    refused
    refused no-such-command
    refused --no-such-option
    refused run
    refused run --
    refused dev no_such_device
    refused dev feroce_lo/2
    refused res qp lqpn
    refused res qp link
    refused explain word
    refused explain 0x1ffffffff
    refused trace
    refused trace /no/such/file
    refused trace /etc/passwd
    refused metrics --format xml
    refused metrics --processes 1001
    refused metrics --processes many
    refused metrics --qps -1
    refused metrics feroce_lo
    refused metrics --listen host
    refused metrics --listen 10.0.0.1
    refused metrics --listen 65536
    refused metrics --listen 0 --format text
    refused metrics --host name
    refused metrics --sysfs "$scratch/tree" --listen 0
    refused metrics --sysfs "$scratch/tree" --every 3601
    refused metrics --every 5
    contains "$("$feroce" --help)" "explain"
    contains "$("$feroce" --version)" "feroce "
}

# Every command that --help names has help, a manual page, and a sentence for what it does not know.
test_commands() {
    local command commands manual
    manual=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../docs/man
    commands=$("$feroce" --help | sed -n '/^Subcommands:/,$ s/^  \([a-z]*\)[ ,].*/\1/p')
    [[ $(wc -w <<<"$commands") -ge 14 ]] || fail "not all commands are listed: $commands"
    for command in $commands; do
        call "$feroce" "$command" --help
        equal "$status" 0 "$command --help"
        contains "$out" "Usage: feroce $command"
        equal "$("$feroce" help "$command")" "$out" "help $command"
        [[ -s $manual/feroce-$command.1 ]] || fail "feroce-$command.1 is missing"
        refused "$command" --no-such-option
        grep -q "$command" "$manual/feroce.1" || fail "feroce(1) does not name $command"
    done
    [[ -s $manual/feroce.7 ]] || fail "feroce.7 is missing"
    equal "$("$feroce" help)" "$("$feroce" --help)" "help"
    # What groff warns of, a reader sees.
    for command in "$manual"/*.[17]; do
        equal "$(sed '/^\.so /d' "$command" | groff -man -Tutf8 -ww -z 2>&1)" "" "$command"
    done
}

# The commands that only a checkout has; none of this builds anything.
# The entrance of a checkout hands on each command of the program, under all its names, and its
# usage names each. It is not called with them: it would build. `run` has its own function there.
check_handed_on() { # ENTRANCE
    local handed names name usage
    usage=$("$1" help)
    handed=$(sed -n '/^    env | /,/)$/p' "$1" | tr -d '\\)\n' | tr '|' ' ')
    names=$("$feroce" --help | sed -n '/^Subcommands:/,$ s/^  \([a-z]*\(, [a-z]*\)*\)  .*/\1/p')
    [[ $(wc -l <<<"$names") -ge 17 ]] || fail "not all commands are listed: $names"
    for name in ${names//,/}; do
        [[ $name == run || " $handed " == *" $name "* ]] || fail "./feroce does not know $name"
    done
    for name in $(sed 's/,.*//' <<<"$names"); do
        grep -qE "^  ([a-z]+, )?$name\b|; $name ends" <<<"$usage" ||
            fail "./feroce help lacks $name"
    done
}
test_checkout() {
    local command entrance
    entrance=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../feroce
    check_handed_on "$entrance"
    for command in build demo test bench; do
        call "$entrance" "$command" --help
        equal "$status" 0 "$command --help"
        contains "$out" "usage: ./feroce $command"
        equal "$("$entrance" help "$command")" "$out" "help $command"
        grep -q "^.B ./feroce $command" "$(dirname "$entrance")/docs/man/feroce-checkout.7" ||
            fail "feroce-checkout(7) does not name $command"
        for word in --no-such-option no-such-word; do
            call "$entrance" "$command" "$word"
            equal "$status" 2 "$command $word"
            equal "$(wc -l <<<"$err")" 1 "lines of: $err"
            contains "$err" "feroce: "
        done
    done
    for _ in 1 2 3 4 5; do # A name that is known, and the first of all, was refused now and then.
        call "$entrance" bench block no-such-word
        contains "$err" "no benchmark no-such-word"
    done
}

# NAME VERDICT: the sentences of a topic with that verdict, of `feroce doctor` run by "$@".
findings() {
    local topic=$1 verdict=$2
    shift 2
    call "$@"
    json "'\n'.join(f['sentence'] + '|' + f['mend'] for f in d
        if (f['topic'], f['verdict']) == ('$topic', '$verdict'))" <<<"$out"
}

# In the child's own network, once it has one: in ours others have the port.
is_port_taken() {
    [[ $(readlink /proc/"$child"/ns/net) != $(readlink /proc/self/ns/net) ]] &&
        grep -q ' [0-9A-F]*:12B7 ' /proc/"$child"/net/udp
}

test_doctor() {
    local found
    call "$feroce" doctor
    [[ $status -le 1 ]] || fail "exit status $status: $err"
    contains "$out" "receive buffer"
    contains "$(FEROCE_DEVICES=lo "$feroce" doctor)" \
        "feroce_lo (lo, 127.0.0.1) carries 4096 bytes a packet"
    found=$(findings program ok "$feroce" -j doctor ibv_devices)
    contains "$found" "ibv_devices loads libibverbs.so.1 from"
    found=$(findings program note "$feroce" -j doctor ibv_devices)
    contains "$found" "without feroce run it would load /"
    found=$(findings program stop "$feroce" -j doctor /no/such/program)
    contains "$found" "/no/such/program is not there|"
    # What every `feroce run` would refuse.
    found=$(FEROCE_PCI=yes findings pci stop "$feroce" -j doctor)
    contains "$found" "FEROCE_PCI is none of on, off and an address such as 0000:c1:00.0|unset"
    equal "$(FEROCE_PCI=on findings pci stop "$feroce" -j doctor)" "" "FEROCE_PCI=on"
    # Without the driver's library; and with the tests' own.
    if ! ldconfig -p | grep -q libcuda.so.1; then
        found=$(findings gpu note "$feroce" -j doctor)
        contains "$found" "no NVIDIA driver (libcuda.so.1)"
    fi
    if [[ -e $bin/../tests/gpu/driver/libcuda.so.1 ]]; then
        found=$(LD_LIBRARY_PATH=$bin/../tests/gpu/driver findings gpu ok "$feroce" -j doctor)
        contains "$found" "memory of a GPU that is none can be registered (CUDA 13.0;"
    fi
    # A process may have too few descriptors.
    found=$(ulimit -n 64; findings descriptors stop "$feroce" -j doctor)
    contains "$found" "64 file descriptors"
    # Worlds of their own: nothing up; a small MTU; the port taken by a stranger.
    unshare -rn true 2>/dev/null || exit 77
    found=$(findings devices stop unshare -rn "$feroce" -j doctor)
    contains "$found" "no network interface is up"
    contains "$found" "ip link set lo up"
    call unshare -rn "$feroce" doctor
    equal "$status" 1 "nothing is up"
    local world='ip link set lo up; ip link add d0 type veth peer name d1; ip link set d1 up;
        ip addr add 10.98.0.1/24 dev d0; ip link set d0 mtu 1500 up;'
    found=$(findings devices note unshare -rn sh -c "$world exec $feroce -j doctor")
    contains "$found" "feroce_lo is listed only to programs that name it"
    contains "$found" "rdma_cm to a loopback address uses the first device"
    found=$(findings mtu slow unshare -rn sh -c "$world exec $feroce -j doctor")
    contains "$found" "has an MTU of 1500: packets carry 1024 bytes"
    contains "$found" "ip link set dev d0 mtu"
    mkfifo "$scratch/hold"
    unshare -rn sh -c "$world exec python3 -c '
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((\"0.0.0.0\", 4791))
sys.stdin.read()'" <"$scratch/hold" &
    child=$!
    exec 9>"$scratch/hold"
    await is_port_taken
    found=$(findings port stop nsenter -t "$child" -U -n --preserve-credentials "$feroce" -j doctor)
    contains "$found" "UDP port 4791 is taken by python3 (pid $child), which is not Feroce"
    contains "$found" "|kill $child"
    exec 9>&-
    wait "$child"
    child=
}

test_static_program() {
    echo 'int main(void) { return 5; }' >"$scratch/p.c"
    "$compiler" -static -o "$scratch/program" "$scratch/p.c" 2>/dev/null || exit 77
    call "$feroce" run -- "$scratch/program"
    equal "$status" 5
    equal "$out" ""
    equal "$err" "feroce: $scratch/program does not use Feroce: it is statically linked"
}

test_rpath() {
    mkdir "$scratch/bin" "$scratch/lib"
    cp "$feroce" "$scratch/bin/program"
    cp "$bin/../lib/libibverbs.so.1" "$scratch/lib/"
    call "$feroce" run -- "$scratch/bin/program" --version
    equal "$status" 0
    contains "$err" "it takes its libraries from $scratch/bin/../lib (RPATH)"
}

# An empty element of a library path is the current directory, which may be anybody's.
test_current_directory() {
    local file elements
    for file in "$bin"/* "$bin"/../lib/*.so*; do
        elements=$(readelf -d "$file" 2>/dev/null |
            sed -n 's/.*\(RPATH\|RUNPATH\).*\[\(.*\)\]/\2/p')
        [[ :$elements: == *::* && -n $elements ]] && fail "$file: empty element in $elements"
    done
    echo 'void __attribute__((constructor)) start(void) { __builtin_trap(); }' >"$scratch/planted.c"
    "$compiler" -shared -fPIC -o "$scratch/libisal.so.2" "$scratch/planted.c"
    cd "$scratch"
    call "$feroce" --version
    equal "$status" 0 "beside a planted libisal.so.2"
}

test_setuid() {
    [[ $EUID -eq 0 ]] || exit 77
    cp "$(type -P true)" "$scratch/program"
    chown 65534 "$scratch/program"
    chmod 4755 "$scratch/program"
    call "$feroce" run -- "$scratch/program"
    equal "$status" 0
    contains "$err" "it runs with the privileges of another user (setuid)"
}

# What UCX and rdma-core's tests look at, without asking the library.
test_sysfs() {
    local device index class=/sys/class/infiniband run=("$feroce" run --)
    export FEROCE_DEVICES=lo
    equal "$("${run[@]}" ls $class | sort)" \
        "$("$feroce" dev -j | json '"\n".join(sorted(r["ifname"] for r in d))')" "ls"
    "${run[@]}" ls -lR $class >/dev/null
    equal "$("${run[@]}" sh -c "cd $class && cat */node_type */hca_type")" "1: CA
feroce" "relative paths"
    equal "$("${run[@]}" sh -c "cd $class/feroce_lo/ports/1/gid_attrs/types && ls | wc -l")" 64
    for device in vendor device class numa_node local_cpus; do
        "${run[@]}" cat "$class/feroce_lo/device/$device" >/dev/null
    done
    for device in $("${run[@]}" ls /dev/infiniband); do
        equal "$("${run[@]}" stat -L -c %F "/dev/infiniband/$device")" "character special file"
        "${run[@]}" sh -c "test -r /dev/infiniband/$device -a -w /dev/infiniband/$device"
    done
    equal "$("${run[@]}" cat $class/feroce_lo/ports/1/gid_attrs/types/0)" "RoCE v2"
    equal "$("${run[@]}" cat $class/feroce_lo/ports/1/gid_attrs/ndevs/0)" lo
    equal "$("${run[@]}" ls $class/feroce_lo/device/net)" lo
    "${run[@]}" python3 - <<'PYTHON'
import os
assert os.path.exists('/sys/class/infiniband/feroce_lo/device/net/')
assert os.listdir('/sys/class/infiniband/feroce_lo/device/net/') == ['lo']
assert open('/sys/class/infiniband/feroce_lo/node_type').read() == '1: CA\n'
assert os.path.realpath('/sys/class/infiniband/feroce_lo').endswith('feroce_lo')
assert not os.path.exists('/sys/class/infiniband/no_such_device')
PYTHON
    # The shim's GIDs are the library's.
    for index in 0 1; do
        device=$("${run[@]}" cat $class/feroce_lo/ports/1/gids/$index 2>/dev/null) || continue
        contains "$("${run[@]}" ibv_devinfo -v -d feroce_lo)" "GID[  $index]"
        [[ $device == *ffff:7f00:0001 ]] && device=::ffff:127.0.0.1
        [[ $device == 0000:*:0001 ]] && device=::1
        contains "$("${run[@]}" ibv_devinfo -v -d feroce_lo | grep "GID\[  $index\]")" "$device"
    done
}

# What NCCL, UCX and Mooncake look for: the place of a device on the PCI bus, and its card there.
test_pci() {
    local class=/sys/class/infiniband run=("$feroce" run --) wrong
    export FEROCE_DEVICES=lo
    contains "$("${run[@]}" realpath $class/feroce_lo/device)" /class/infiniband/feroce_lo/device
    export FEROCE_PCI=on
    "${run[@]}" python3 - <<'PYTHON'
import os
place = os.path.realpath('/sys/class/infiniband/feroce_lo/device')
assert place.endswith('/sys/devices/pcife0c:01/fe0c:01:00.0'), place
assert os.readlink('/sys/class/infiniband/feroce_lo/device') == '../../../fe0c:01:00.0'
assert os.path.realpath('/sys/class/infiniband/feroce_lo/../..') == place
assert os.path.realpath(place + '/subsystem').endswith('/bus/pci')
assert os.path.realpath('/sys/class/pci_bus/fe0c:01/../../fe0c:01:00.0') == place
for name, text in ('class', '0x020000'), ('numa_node', '-1'), ('max_link_width', '16'):
    assert open('/sys/bus/pci/devices/fe0c:01:00.0/' + name).read() == text + '\n', name
assert os.listdir(place + '/infiniband') == ['feroce_lo'] and os.listdir(place + '/net') == ['lo']
assert open('/sys/class/infiniband/feroce_lo/node_type').read() == '1: CA\n'
PYTHON
    call "${run[@]}" ibv_devinfo -d feroce_lo
    equal "$status" 0 "$err"
    export FEROCE_PCI=0000:c1:00.0
    equal "$("${run[@]}" sh -c "basename \$(realpath $class/feroce_lo/device)")" 0000:c1:00.0
    # UCX tells apart devices that have a place from those that have none.
    if type -P ucx_info >/dev/null; then
        contains "$(UCX_LOG_LEVEL=debug "${run[@]}" ucx_info -d 2>&1)" c1:00.0
    fi
    for wrong in yes 0000:c1 c1:20.0; do
        call env "FEROCE_PCI=$wrong" "${run[@]}" true
        equal "$status" 126 "FEROCE_PCI=$wrong"
        equal "$err" "feroce: FEROCE_PCI is none of on, off and an address such as 0000:c1:00.0"
        call env "FEROCE_PCI=$wrong" "$feroce" env
        equal "$status" 1 "FEROCE_PCI=$wrong, env"
        equal "$out" "" "FEROCE_PCI=$wrong, env"
    done
}

test_explain() {
    "$feroce" run -- "$bin/bad_access" >"$scratch/said" &
    child=$!
    wait "$child" || fail "bad_access exits with $?"
    call "$feroce" explain "$child"
    equal "$status" 0
    contains "$err$out" "bad_access (pid $child, ended):"
    contains "$out" "work request 0x42 of QP 0x"
    contains "$out" "IBV_WC_REM_ACCESS_ERR"
    contains "$out" "because bad_access"
    contains "$out" "the key is unknown, stale or not bound"
    equal "$("$feroce" explain -j "$child" | json 'd[0]["because"][0]["pid"]')" "$child"
    call "$feroce" explain 0xfffffe
    equal "$status" 1
    contains "$err" "nothing to explain"
    rm -f "/dev/shm/feroce-$EUID/$child"
    child=
}

# A process that talks to itself and loses every packet: nobody was killed.
test_silence() {
    FEROCE_FAULTS=drop=1 "$feroce" run -- "$bin/bad_access" >"$scratch/said" &
    child=$!
    if wait "$child"; then fail "bad_access did without the network"; fi
    call "$feroce" explain "$child"
    contains "$out" "the peer did not acknowledge"
    [[ $out != *"was killed"* ]] || fail "it was not killed: $out"
    rm -f "/dev/shm/feroce-$EUID/$child"
    child=
}

pingpong_listens() { grep -qE ':4857 [0-9A-F:]+ 0A' /proc/net/tcp /proc/net/tcp6; }  # Port 18519.

# The client's faults damage every packet, as a network would that rewrites them.
test_mangled() {
    local pingpong=("$feroce" run -- ibv_rc_pingpong -d feroce_lo -g 0 -p 18519)
    "${pingpong[@]}" >/dev/null &
    child=$!
    await pingpong_listens
    FEROCE_FAULTS=corrupt=1 call "${pingpong[@]}" 127.0.0.1
    contains "$out$err" "transport retry counter exceeded"
    call "$feroce" explain "$child"
    contains "$out" "no packet from 127.0.0.1 has a good ICRC"
    kill "$child"
    wait "$child" || true
    rm -f "/dev/shm/feroce-$EUID/$child"
    child=
}

has_failed() { [[ -s $scratch/said ]]; }
is_stopped() { [[ -z $(grep -L '^State:.*T (stopped)' /proc/"$child"/task/*/status) ]]; }

test_live() {
    local qps page
    mkfifo "$scratch/hold"
    "$feroce" run -- "$bin/bad_access" --wait <"$scratch/hold" >"$scratch/said" &
    child=$!
    exec 9>"$scratch/hold"
    await has_failed
    page=/dev/shm/feroce-$EUID/$child
    equal "$(stat -c %a "$page")" 600 "mode of the state page"
    qps=$("$feroce" res show qp -j link feroce_lo/1 pid "$child")
    equal "$(json 'len(d), {r["state"] for r in d}, {r["type"] for r in d}' <<<"$qps")" \
        "2 {'ERR'} {'RC'}"
    equal "$(json 'd[0]["lqpn"] == d[1]["rqpn"], d[0]["comm"]' <<<"$qps")" "True bad_access"
    # Other processes of the port make it send packets too, such as those of a test beside this
    # one. What its queue pairs sent is its own.
    equal "$("$feroce" stat -j pid "$child" |
        json '[(r["sent_pkts"] >= 2, r["port"]) for r in d]')" "[(True, 1)]"
    # A line a process, its name first; queue pair numbers as explain writes them.
    call "$feroce" stat pid "$child"
    contains "$out" "link feroce_lo/1 pid $child comm bad_access sent_pkts "
    [[ $out != *" 0 "* ]] || fail "counters that are 0 are listed: $out"
    local qpn
    qpn=$("$feroce" explain "$child" | grep -om1 'QP 0x[0-9a-f]*' | cut -c4-)
    contains "$("$feroce" res show qp lqpn "$qpn")" "lqpn $qpn "
    equal "$("$feroce" stat qp -j pid "$child" | json 'sum(r["sends_posted"] for r in d)')" 1
    equal "$("$feroce" stat qp -j pid "$child" |
        json 'sorted((r["sent_pkts"], r["rcvd_pkts"]) for r in d)')" "[(1, 1), (1, 1)]"
    # Other processes of this user may have some too.
    equal "$("$feroce" res show feroce_lo -j |
        json 'all(d[0][kind] > 0 for kind in ("pd", "cq", "qp", "mr", "ctx"))')" True
    contains "$("$feroce" explain "$child")" "bad_access (pid $child):"
    contains "$("$feroce" trace --lines 2 "$child")" "ERR: next PSN 1000 (oldest unacknowledged"
    equal "$("$feroce" trace -j --lines 1 "$child" | json 'd["pid"], d["comm"], d["in-flight"]')" \
        "$child bad_access 0"
    equal "$("$feroce" res show qp -j pid 1)" "[]"
    # A stopped process does not answer; what it showed last is still there.
    kill -STOP "$child"
    await is_stopped
    call "$feroce" res show qp pid "$child"
    kill -CONT "$child"
    contains "$err" "process $child (bad_access) does not answer"
    contains "$out" "pid $child comm bad_access"
    exec 9>&-
    wait "$child"
    equal "$("$feroce" res show qp -j pid "$child")" "[]"
    rm -f "$page"
    child=
}

# A setting that is not understood, or cannot be followed, keeps the device closed: one sentence.
test_settings() {
    local wrong words
    for wrong in SHARDS=0 SHARDS=9 SHARDS=2x SHARE=all FAULTS=lose=1 FAULTS=drop=2 KEEPALIVE=-1 \
        KEEPALIVE=1h SAMEHOST=no RING_MEMORY=1M NAME=mlx5 LOG=loud "PCAP=$scratch/none/x"; do
        call env "FEROCE_$wrong" "$feroce" run -- ibv_devinfo -d feroce_lo
        equal "$status" 1 "FEROCE_$wrong: $out"
        contains "$err" "error: feroce_lo: FEROCE_${wrong%%=*} "
        equal "$(grep -c feroce: <<<"$err")" 1 "FEROCE_$wrong: $err"
    done
    # Interfaces of which none is here: the list itself fails.
    local none="FEROCE_DEVICES names no interface that is here and has an address"
    for words in "run -- ibv_devices" "run -- ibv_devinfo" "run -- rping -s -a 127.0.0.1" dev \
        link; do
        # shellcheck disable=SC2086 # Words.
        call env FEROCE_DEVICES=none,nor-this timeout 20 "$feroce" $words
        [[ $status -ne 0 && $status -ne 124 ]] || fail "$words: exit status $status: $out"
        contains "$err" "$none"
        equal "$(grep -c feroce: <<<"$err")" 1 "$words: $err"
    done
    call env FEROCE_DEVICES=none,lo "$feroce" run -- ibv_devinfo -d feroce_lo
    equal "$status" 0 "one of them is here: $err"
    call env FEROCE_SHARDS=8 FEROCE_SHARE=user FEROCE_FAULTS=drop=0.5 FEROCE_KEEPALIVE=0 \
        FEROCE_SAMEHOST=on FEROCE_REPAIR=off FEROCE_RING_MEMORY=0 FEROCE_LOG= \
        "FEROCE_PCAP=$scratch/x" \
        "$feroce" run -- ibv_devinfo -d feroce_lo
    equal "$status" 0 "$err"
}

# Faults of calls are for the program, not for the launcher or for commands that look.
test_call_faults() {
    export FEROCE_DEVICES=lo FEROCE_FAULTS=ibv_get_device_list:ENOMEM@1
    equal "$("$feroce" run -- ls /sys/class/infiniband)" feroce_lo "the tree"
    equal "$("$feroce" run -- sh -c 'echo "$FEROCE_FAULTS"')" "$FEROCE_FAULTS" "the program's"
    equal "$("$feroce" dev -j | json 'd[0]["ifname"]')" feroce_lo "dev"
    equal "$("$feroce" run -- rdma -j dev | json 'd[0]["ifname"]')" feroce_lo "rdma"
    call "$feroce" run -- ibv_devinfo -d feroce_lo
    [[ $status -ne 0 ]] || fail "the program met no fault: $out"
    FEROCE_FAULTS=lose=1 call "$feroce" doctor
    equal "$status" 1 "doctor: $out"
    contains "$out" "FEROCE_FAULTS "
}

path_state() { # NUMBER STATE
    [[ $("$feroce" -j session show "$session" |
        json "[p['state'] for p in d[0]['paths'] if p['path'] == $1]") == "['$2']" ]]
}

test_session() {
    local peer=$bin/../tests/interop/session_peer port=$((20000 + $$ % 20000)) server
    session=cli-test-$$
    export FEROCE_DEVICES=lo
    mkfifo "$scratch/server" "$scratch/client"
    "$peer" server "$port" <"$scratch/server" >"$scratch/listens" &
    server=$!
    exec 8>"$scratch/server"
    await grep -q listens "$scratch/listens"
    "$peer" client "$port" "$session" 127.0.0.1 <"$scratch/client" >"$scratch/open" &
    child=$!
    exec 9>"$scratch/client"
    await grep -q open "$scratch/open"
    call "$feroce" session ls
    contains "$out" "pid $child comm session_peer session $session paths 1/1"
    # What a caller may do to it.
    call "$feroce" session path add "$session" ::1
    equal "$status" 0 "$err"
    await path_state 1 connected
    call "$feroce" session path disconnect "$session" ::1
    equal "$status" 0 "$err"
    await path_state 1 disconnected
    call "$feroce" session path reconnect "$session" 1
    await path_state 1 connected
    equal "$("$feroce" session stat "$session" -j |
        json "[(p['path'], p['connects']) for p in d[0]['paths']]")" "[(0, 1), (1, 2)]"
    call "$feroce" session path rm "$session" 1
    equal "$("$feroce" -j session show "$session" | json "len(d[0]['paths'])")" 1
    call "$feroce" session policy "$session" round-robin
    call "$feroce" session show "$child:$session"
    contains "$out" "policy round-robin"
    contains "$out" "destination 127.0.0.1 state connected"
    # And what not.
    call "$feroce" session policy "$session" by-lot
    equal "$status" 1
    policies="round-robin, min-inflight, min-latency and fill-first"
    equal "$err" "feroce: session $session: policies are $policies"
    call "$feroce" session path rm "$session" 7
    equal "$status" 2
    equal "$err" "feroce: session $session has no path 7"
    call "$feroce" session show "no-$session"
    equal "$status" 2
    contains "$err" "there is no session no-$session"
    # A program that was killed is not missed.
    kill -KILL "$child"
    wait "$child" || true
    call "$feroce" session ls
    [[ $out$err != *"$session"* ]] || fail "a dead program is listed: $out $err"
    ! compgen -G "/dev/shm/feroce-$EUID/session-$child-*" >/dev/null || fail "its socket is left"
    exec 8>&- 9>&-
    wait "$server"
    rm -f "/dev/shm/feroce-$EUID/$child"
    child=
}

# What is written is never the capture, by whatever name.
check_outputs() { # CAPTURE
    local option target before
    before=$(sha256sum <"$1")
    ln "$1" "$scratch/hard"
    ln -s "$1" "$scratch/soft"
    for option in --comment --perfetto; do
        for target in "$1" "$scratch/hard" "$scratch/soft"; do
            refused trace "$option" "$target" "$1"
            contains "$err" "$target is the capture itself"
        done
        equal "$(sha256sum <"$1")" "$before" "the capture after $option"
        call "$feroce" trace "$option" /dev/full "$1"
        equal "$status" 2 "$option on a full disk: $err"
        contains "$err" "feroce: /dev/full cannot be written"
    done
    # Of a pipe there is nothing left when it is opened again.
    mkfifo "$scratch/pipe"
    refused trace --perfetto "$scratch/stub.json" "$scratch/pipe"
    contains "$err" "$scratch/pipe is not a regular file"
    [[ ! -e $scratch/stub.json ]] || fail "a stub is left"
}

# The packets of CAPTURE, and the last one again: as Ethernet, or to 9,000 queue pairs.
add_packets() { # link | flows CAPTURE COPY
    python3 - "$@" <<'PYTHON'
import struct, sys
data = open(sys.argv[2], "rb").read()
at, last = 0, None
while at < len(data):
    kind, size = struct.unpack_from("<II", data, at)
    last = data[at:at + size] if kind == 6 else last
    at += size
def block(kind, body):
    body += bytes(-len(body) % 4)
    return struct.pack("<II", kind, len(body) + 12) + body + struct.pack("<I", len(body) + 12)
_, high, low, captured, _ = struct.unpack_from("<IIIII", last, 8)
def packet(interface, frame):
    size = len(frame)
    return block(6, struct.pack("<IIIII", interface, high, low, size, size) + frame)
frame = last[28:28 + captured]
if sys.argv[1] == "link":
    ethernet = bytes(12) + b"\x08\x00" + frame
    data += block(1, struct.pack("<HHI", 1, 0, 0)) + packet(1, ethernet)
else:
    qpn_at = 20 + 8 + 5  # Behind IPv4 and UDP, in the BTH.
    for qpn in range(9000):
        data += packet(0, frame[:qpn_at] + qpn.to_bytes(3, "big") + frame[qpn_at + 3:])
open(sys.argv[3], "wb").write(data)
PYTHON
}

test_trace() {
    FEROCE_PCAP=$scratch/file.pcapng "$feroce" run -- "$bin/bad_access" >/dev/null &
    wait $!
    rm -f "/dev/shm/feroce-$EUID/$!"
    call "$feroce" trace "$scratch/file.pcapng"
    equal "$status" 0
    contains "$out" "127.0.0.1 > 127.0.0.1 RC_"
    contains "$out" "rkey 0x"
    contains "$out" "NAK remote access error"
    [[ $out != *"bad ICRC"* ]] || fail "bad ICRC in: $out"
    contains "$out" "# refused at PSN"
    # Both ends are in this capture; a busy machine may add the WRITE sent again.
    equal "$("$feroce" trace -j "$scratch/file.pcapng" |
        json 'len(d) >= 4, {r["icrc"] for r in d}')" "True {True}"
    # The remarks as comments that Wireshark shows.
    "$feroce" trace --comment "$scratch/remarks.pcapng" "$scratch/file.pcapng" >/dev/null
    equal "$("$feroce" trace "$scratch/remarks.pcapng")" "$out" "the copy"
    contains "$(tshark -r "$scratch/remarks.pcapng" -T fields -e frame.comment 2>/dev/null)" \
        "refused at PSN 1000: NAK remote access error"
    check_outputs "$scratch/file.pcapng"
    add_packets link "$scratch/file.pcapng" "$scratch/mixed.pcapng"
    call "$feroce" trace --comment "$scratch/copy.pcapng" "$scratch/mixed.pcapng"
    equal "$err" "feroce: packets of another link type than the first are not in \
$scratch/copy.pcapng: 1"
    equal "$(wc -l <<<"$out")" "$(($("$feroce" trace "$scratch/copy.pcapng" | wc -l) + 1))" "lines"
    add_packets flows "$scratch/file.pcapng" "$scratch/many.pcapng"
    call "$feroce" trace --perfetto "$scratch/many.json" "$scratch/many.pcapng"
    equal "$err" "feroce: $scratch/many.pcapng has more than 8192 flows; packets left out: 810"
    # For Perfetto: the WRITE and its refusal on the tracks of both queue pairs.
    call "$feroce" trace --perfetto "$scratch/trace.json" "$scratch/file.pcapng"
    equal "$status" 0 "$err"
    contains "$out" "$scratch/trace.json: packets "
    contains "$out" ", work requests 1, queue pairs 2"
    json 'sorted({e["ph"] for e in d if e["ph"] != "n"}),
        [e["args"]["outcome"] for e in d if e["ph"] == "e"]' <"$scratch/trace.json" >"$scratch/seen"
    equal "$(cat "$scratch/seen")" "['M', 'b', 'e', 'i'] ['NAK remote access error']"
    refused trace --perfetto "$scratch/trace.json" /etc/passwd
    refused trace --perfetto "$scratch/none/trace.json" "$scratch/file.pcapng"
    refused trace --perfetto "$scratch/x" --comment "$scratch/y" "$scratch/file.pcapng"
    call "$feroce" trace 0xfffffe
    equal "$status" 1
    contains "$err" "no live process or queue pair has the number"
    head -c 300 "$scratch/file.pcapng" >"$scratch/cut.pcapng"
    call "$feroce" trace "$scratch/cut.pcapng"
    equal "$status" 1 "a damaged file"
    # One whose first packet is cut is a capture all the same.
    head -c 130 "$scratch/file.pcapng" >"$scratch/cut.pcapng"
    call "$feroce" trace "$scratch/cut.pcapng"
    equal "$status" 1 "no packet is whole"
    contains "$err" "is damaged, the rest is left out"
}

"test_$name"
