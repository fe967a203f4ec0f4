# The stages of `./feroce test`; sourced by ./feroce, whose functions and variables it uses.
# A stage is a line in the table below and a function stage_NAME, or, for kind `label`, the tests
# with that ctest label. Stages run in the order of the table. One that fails does not end the run,
# so that a run shows all there is to mend; the last line names those that failed.

#        group     kind      name     what it shows
stages=(
    "everyday|function|build|the product and its tests compile with g++, -Werror"
    "everyday|function|ctest|every test whose label is listed below"
    "part|label|tidy|the tree: include edges, sizes, banned calls, headers; mistakes do not compile"
    "part|label|models|Spin models pass, and find the bugs planted in them"
    "part|label|unit|unit and property tests, which stand beside the code"
    "part|label|golden|captures of the Linux kernel's rxe parse, verify and re-emit to equal bytes"
    "part|label|script|packet scripts: one engine against a scripted peer"
    "part|label|sim|seeded simulations of several nodes with faults, each run twice"
    "part|label|litmus|the memory order that programs polling memory rely on"
    "part|label|abi|unmodified Debian programs in pairs on the soft device, loopback and namespaces"
    "part|label|share|processes and users on one address: kills, guests, attacks, forged packets"
    "part|label|cli|the feroce program: run, env, dev, res, stat, explain, trace"
    "part|label|gas|clusters of real processes: feroce launch, the examples, a node that dies"
    "part|label|block|disks: feroce export and attach, nbdinfo, nbdcopy, qemu-img, fio"
    "part|label|docs|the pages: links lead somewhere, commands are run and say what is shown"
    "part|label|fuzz|the stored fuzz corpora, replayed"
    "full|function|format|clang-format leaves the tree as it is"
    "full|function|netns|every Debian program pair across two network namespaces, IPv4 and IPv6"
    "full|function|udp|abi, share, litmus and netns once more, without rings on one machine"
    "full|function|demo|the demo for root and others ends well, and leaves nothing if interrupted"
    "full|function|web|feroce web in Chromium: rates, failures, keys; hostile pages read nothing"
    "full|function|iser|libiscsi's whole suite to tgt: over iser:// as over iscsi://"
    "full|function|disks20|fio verifies a disk while networks are cut and its server is killed"
    "full|function|crash5|a disk's machine is killed 5 times: what was flushed is there"
    "full|function|overload|sessions under cuts with every processor overloaded twice"
    "full|function|pyverbs|rdma-core's own Python tests end as tests/pyverbs/expected.tsv says"
    "full|function|lossy3|256 MiB by SEND, WRITE, READ each, 10^5 adds, under faults, 3 seeds"
    "full|function|clang|the second compiler, -Werror, with ASan and UBSan, compiles all"
    "full|function|threads|what has threads compiles with ThreadSanitizer"
    "full|function|tsan|ctest of what has threads under ThreadSanitizer"
    "full|function|asan|ctest under AddressSanitizer and UndefinedBehaviorSanitizer"
    "full|function|lint|clang-tidy finds nothing"
    "full|function|seeds100|100 simulated runs, each twice: engines, C ABI, library, disks"
    "full|function|fuzz20|a processor's 20 s of libFuzzer a target under ASan and UBSan"
    "soak|function|interop|the kernel in a virtual machine as peer: programs, sessions, iSER"
    "soak|function|chroot|bare Debian 12 and 13: README, packages, everyday tests, namespaces"
    "soak|function|compilers|the product by Ubuntu's compilers, g++ 11 and 13, in bare Debians"
    "soak|function|dist|the archive of ./feroce dist: glibc 2.31 suffices; in bare Debian 11 to 13"
    "soak|function|distother|the other architecture's archive: checked, and run in an emulator"
    "soak|function|image|OCI images of the archive by buildah, run by podman, used by COPY --from"
    "soak|function|action|the CI action in a bare Debian, as a runner would run it"
    "soak|function|cross|unit tests built for the other architecture, in an emulator"
    "soak|function|lossy20|256 MiB by SEND, WRITE, READ each, 10^5 adds, under faults, 20 seeds"
    "soak|function|seeds1000|1,000 simulated runs, each twice: engines, C ABI, library, disks"
    "soak|function|floods|10^6 messages of a hostile guest; 100 rounds of every way to end; as root"
    "soak|function|crowd250|250 processes move 64 MiB each; some are killed for 60 s, or stopped"
    "soak|function|mpi128|Open MPI over UCX rc: 128 ranks, each to each, by rings and by UDP"
    "soak|function|udprest|all else that has a port once more, without rings on one machine"
    "soak|function|disks600|disks20 for 10 minutes, and a 1 GiB image there and back"
    "soak|function|crash50|the same 50 times"
    "soak|function|cycles|a disk is attached and detached 1,000 times: none refused, memory flat"
    "soak|function|programs|public programs of Debian, a row each, as docs/programs.md has them"
    "soak|function|lintsuite|pyverbs under lint, which reports what tests/pyverbs/reports.tsv has"
    "soak|function|exporters|programs of Prometheus read feroce metrics; the dashboard works"
    "soak|function|tracers|bpftrace reads the probes, with the values that the page has; as root"
    "soak|function|torchrun|torchrun of Debian's PyTorch starts clusters of the address space"
    "soak|function|includes|every source compiles without precompiled headers"
    "soak|function|coverage|lines and branches that unit, golden, script and sim tests run, by room"
    "soak|function|zeroes|write zeroes from the RNBD client of a newer kernel, Debian's backport"
    "soak|function|ublk|a disk of feroce export as /dev/ublkb0 of a guest whose kernel has ublk"
    "soak|function|udmabuf|dma-bufs of the kernel's udmabuf as regions, in a guest that has it"
    "soak|function|fuzz600|10 such minutes of libFuzzer a target under ASan and UBSan"
)

list_stages() {
    local line group kind name about last=
    declare -A title=(
        [everyday]="./feroce test"
        [part]="./feroce test LABEL...: parts of ctest"
        [full]="./feroce test full: what the everyday tests leave out"
        [soak]="./feroce test soak: before a claim is made, never in CI"
    )
    for line in "${stages[@]}"; do
        IFS='|' read -r group kind name about <<<"$line"
        [[ $group == "$last" ]] || echo "${title[$group]}"
        last=$group
        printf '  %-9s %s\n' "$name" "$about"
    done
}

# ---- the stages -----------------------------------------------------------------------------

# Labels of tests that run real programs in real time. On a shared machine these get a second try,
# which the last lines of a run list and count; all others have to pass at once.
real_programs=(abi block cli docs gas share)

# The tests of FOLDER that carry a label of the first pattern and none of the second; at least one.
run_ctest() { # FOLDER WITH WITHOUT
    local folder=$1 with=() without=$3 real log before status=0 found
    [[ -z $2 ]] || with=(-L "$2")
    found=$(count_tests "$folder" "${with[@]}" -LE "$without") || return 1
    [[ $found -ne 0 ]] || die "no test of $folder has labels ${2:+like $2 and }unlike $without"
    before=$report/ahead-${folder##*/}.log
    [[ ! -s $before ]] || with+=(-E "^($(passed_tests "$before" | paste -sd '|'))\$")
    real=$(any_of "${real_programs[@]}")
    log=$(mktemp)
    # ctest leaves out what matches *every* -LE, hence one pattern.
    ctest_if_any "$folder" "${with[@]}" -LE "$without|$real" | tee "$log" || status=1
    # They wait for each other and for timers: one more than there are processors. Last counts.
    ctest_if_any "$folder" "${with[@]}" -L "$real" -LE "$without" --repeat until-pass:2 \
        -j $((jobs + 1)) |
        tee -a "$log" || status=1
    { cat "$before" 2>/dev/null || true; cat "$log"; } | second_tries >>"$report/tries"
    failed_tests "$log" >>"$report/failed"
    rm -f "$log"
    return "$status"
}

# For a part of a selection, which may be empty.
ctest_if_any() { # FOLDER OPTION...
    local found
    found=$(count_tests "$@") || return 1
    [[ $found -eq 0 ]] || ctest --test-dir "$1" -j "$jobs" --output-on-failure "${@:2}" 2>&1
}

count_tests() { # FOLDER OPTION...
    local found
    found=$(ctest --test-dir "$1" -N "${@:2}" | sed -n 's/^Total Tests: //p') || true
    [[ -n $found ]] || die "ctest cannot list the tests of $1"
    echo "$found"
}

# From what ctest prints: the tests that passed, and those that failed and then passed.
passed_tests() { # LOG
    sed -n -E 's/^.*Test +#[0-9]+: ([^ ]+) \.* +Passed.*/\1/p' "$1"
}

second_tries() {
    sed -n -E 's/^.*Test +#[0-9]+: ([^ ]+) \.*([A-Za-z ]*\*\*\*| +Passed).*/\1 \2/p' |
        awk '/\*\*\*/ { failed[$1] = 1 } /Passed/ { if (failed[$1]) print $1 }'
}

# The tests that ctest lists as failed at its end.
failed_tests() { # LOG
    sed -n '/^The following tests FAILED:/,/^Errors while/s/^[[:space:]]*[0-9]* - //p' "$1"
}

# What a run ends with: minutes of every stage, tests that needed their second try, what failed.
print_report() {
    local count
    say "minutes a stage, and how busy the processors were"
    awk '{ seconds += $2; ticks += $3; idle += $4; show($1, $2, $3, $4) }
         END { show("together", seconds, ticks, idle) }
         function show(name, seconds, ticks, idle) {
             busy = ticks > 0 ? sprintf("%4.0f %%", 100 * (1 - idle / ticks)) : ""
             printf "  %-9s %5.1f %s\n", name, seconds / 60, busy
         }' "$report/minutes" >&2
    count=$(wc -l <"$report/tries")
    say "tests that needed a second try: $count"
    sed 's/^/  /' "$report/tries" >&2
    [[ -s $report/failed ]] || return 0
    say "failed:"
    sed 's/^/  /' "$report/failed" >&2
}

# Once a run: its sources do not change, and what did not compile is told once.
need_tests() {
    [[ ! -e $report/built ]] || return 0
    need_first build-failed "the tests are not built"
    build_tests -k 0
    mv "$report/build-failed" "$report/built"
}

# FILE is there from here on, until the caller takes it away: what comes next has ended well then.
need_first() { # FILE OF REPORT, SENTENCE
    [[ ! -e $report/$1 ]] || die "$2, as said above; this stage cannot run"
    touch "$report/$1"
}

stage_build() { need_tests; }

stage_ctest() {
    need_tests
    run_ctest "$build" '' '^(full|soak)$'
}

stage_format() {
    find "$root" -path "$root/build*" -prune -o -name '*.[ch]pp' -print0 |
        xargs -0 clang-format-14 --dry-run -Werror
}

preset_configure() { # PRESET
    [[ -f $root/build-$1/build.ninja ]] || configure "$1" "$root/build-$1"
}

preset_build() { # PRESET [TARGET]
    local failed=build-$1-${2:-all}-failed
    preset_configure "$1"
    end_ahead "$1"
    [[ ! -e $report/built-$1 ]] || return 0
    [[ -n ${is_ahead:-} ]] || need_first "$failed" "${2:-all} of build-$1 is not built"
    flock "$root/build-$1/lock" ninja -C "$root/build-$1" -j "$jobs" -k 0 "${2:-all}" >&2
    rm -f "$report/$failed"
    [[ ${2:-all} != all ]] || touch "$report/built-$1"
}

# ---- work ahead -----------------------------------------------------------------------------
# Stages that mostly wait leave much of the machine idle. What later ones compute is done meanwhile,
# below everything else, in pieces that are marked when they end well. A stage ends what works ahead
# for it, and does the pieces without a mark. What a piece printed that failed ahead is shown. One
# that knows no real time has failed then; another is tried again and listed with the second tries.
# A piece that was ended has not failed.
declare -A ahead=()
computing=(build clang threads lint seeds100 fuzz20) # They leave nothing idle, and most come last.

# Compilers first. What no other stage waits for comes after them, so that some of it is left for
# the time in which the tests of the sanitizers wait. Two at a time: a test has a time limit.
work_ahead() {
    (preset_configure clang; preset_configure tsan) || return 0 # Their stages fail, and tell.
    start_ahead clang build_ahead clang 2 # More work than the others have, and two wait for it.
    start_ahead tsan build_ahead tsan 1
    start_ahead asan once_built asan_ahead
    start_ahead seeds100 once_built stage_seeds100
    start_ahead lint once_built after asan stage_lint
    start_ahead fuzz20 once_built after seeds100 stage_fuzz20
}

hours=2 # More than a run takes. What waits ahead ends by then even if nothing ends it.

# Nothing compiles any more.
once_built() { # COMMAND...
    local left=$((hours * 3600))
    until [[ -e $report/built && -e $report/built-clang && -e $report/built-tsan ]]; do
        [[ $((left--)) -gt 0 ]] || return 1
        sleep 1
    done
    "$@"
}

after() { # NAME of what works ahead, COMMAND...
    local left=$((hours * 3600))
    while [[ -e $report/ahead-$1 ]]; do
        [[ $((left--)) -gt 0 ]] || return 1
        sleep 1
    done
    "${@:2}"
}

start_ahead() { # NAME COMMAND...
    [[ -z ${ahead[$1]:-} ]] || return 0
    touch "$report/ahead-$1"
    set -m # A process group of its own, by which it is ended.
    (
        jobs=1 is_ahead=$1
        renice -n 19 -p $BASHPID
        set +e
        (set -e; "${@:2}")
        rm -f "$report/ahead-$1"
    ) </dev/null >/dev/null 2>&1 &
    ahead[$1]=$!
    set +m
}

end_ahead() { # NAME...
    local name
    [[ -z ${is_ahead:-} ]] || return 0
    for name in "$@"; do
        # Of one that has ended, the number may be that of others by now. The file goes first: by it
        # a piece knows that it was ended.
        ! rm "$report/ahead-$name" 2>/dev/null || kill -- "-${ahead[$name]}" 2>/dev/null || true
    done
}

build_ahead() { # PRESET JOBS
    flock "$root/build-$1/lock" ninja -C "$root/build-$1" -j "$2"
    touch "$report/built-$1"
}

# Runs each command to its end, shows what those printed that failed, and fails if one did. What
# passed ahead is not run again, nor what failed there if timeless=yes.
in_parallel() { # COMMAND...
    printf '%s\0' "$@" | report=$report is_ahead=${is_ahead:-} timeless=${timeless:-} \
        xargs -0 -P "$jobs" -I COMMAND bash -c '
        mark=$report/done-$(md5sum <<<"${FEROCE_SAMEHOST:-} COMMAND" | cut -c1-32)
        note_failed() { # LOG
            echo "COMMAND" >>"$report/failed"
            sed -n -E "s/^(failed:|FAILED:|\\[  FAILED  \\] [A-Za-z])/  \1/p" "$1" \
                >>"$report/failed"
        }
        if [[ -e $mark ]]; then echo "passed ahead: COMMAND"; cat "$mark"; exit; fi
        if [[ -e $mark-failed ]]; then
            cat "$mark-failed"
            echo "FAILED ahead: COMMAND"
            if [[ -n $timeless ]]; then note_failed "$mark-failed"; exit 1; fi
        fi
        log=$(mktemp -p "$report")
        began=$SECONDS
        if COMMAND >"$log" 2>&1; then
            [[ ! -e $mark-failed ]] || echo "COMMAND" >>"$report/tries"
            echo "passed after $((SECONDS - began)) s: COMMAND"
            sed -n "s/^figure: /  /p" "$log" | tee "$mark"
        else
            if [[ -n $is_ahead ]]; then
                [[ ! -e $report/ahead-$is_ahead ]] || mv "$log" "$mark-failed"
                exit 1
            fi
            cat "$log"
            echo "FAILED after $((SECONDS - began)) s: COMMAND"
            note_failed "$log"
            exit 1
        fi' >&2
}

# The joined sources of the product, several rooms together: headers that they share are read once.
stage_lint() {
    local folder=$root/build-clang/lint sources
    preset_configure clang
    end_ahead lint
    mkdir -p "$folder"
    python3 "${BASH_SOURCE[0]%/*}/../tools/lint_units.py" \
        "$root/build-clang/compile_commands.json" "$folder" >"$folder/sources"
    mapfile -t sources <"$folder/sources"
    [[ ${#sources[@]} -gt 0 ]] || die "$folder/compile_commands.json names no source"
    in_parallel "${sources[@]/#/clang-tidy-14 --quiet -p $folder }"
}

# Each by itself and without precompiled headers, so that a missing #include is found.
stage_includes() {
    find "$root/src" -name '*.cpp' ! -name '*_test.cpp' -print0 |
        xargs -0 -n 8 -P "$jobs" clang++-14 -std=c++20 -fsyntax-only -I"$root/src" \
            -I"$root/include" -DFEROCE_VERSION='""' -DFEROCE_PLACE='""'
}

# What reads the tree does not change with the compiler, and a program that is not instrumented
# cannot load an instrumented library: our own tests only.
preset_ctest() { # PRESET [LABEL [WITHOUT...]]
    local skip=(tidy models abi cli rdmacm docs interop full soak "${@:3}")
    run_ctest "$root/build-$1" "${2:-}" "$(any_of "${skip[@]}")"
}

any_of() { # LABEL...
    local IFS='|'
    echo "^($*)\$"
}

stage_clang() { preset_build clang; }
stage_threads() { preset_build tsan; }

# Simulations, scripts, captures and the unit tests of rooms that know no threads (ONE_THREAD) run
# in one: there is nothing to find in them, and the preset does not build them, nor gas, nor what
# stands beside programs of others, since it runs none of these.
stage_tsan() {
    preset_build tsan
    TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:die_after_fork=0 preset_ctest tsan
}

# Tests that know no real time run beside anything, and so ahead.
timeless_labels=(sim script golden fuzz)

stage_asan() {
    local status=0
    preset_build clang
    end_ahead asan
    judge_ahead "$report/ahead-build-clang.log" || status=1
    if [[ $(uname -m) != aarch64 ]]; then
        with_asan detect_stack_use_after_return=1 preset_ctest clang || status=1
        return "$status"
    fi
    # On arm64 the search for leaks stops an ending process for 4 seconds, in which those that share
    # the port with it give up, and the search for use after return made 5 seconds 300.
    local plain=detect_stack_use_after_return=0
    with_asan $plain:detect_leaks=0 preset_ctest clang '' "${timeless_labels[@]}" || status=1
    with_asan $plain preset_ctest clang "$(any_of "${timeless_labels[@]}")" || status=1
    return "$status"
}

asan_ahead() {
    local after_return=1
    [[ $(uname -m) != aarch64 ]] || after_return=0
    with_asan detect_stack_use_after_return=$after_return \
        ctest_if_any "$root/build-clang" -L "$(any_of "${timeless_labels[@]}")" \
        -LE '^(full|soak)$' >"$report/ahead-build-clang.log"
}

# Shows what ctest printed ahead if a test failed there, and fails. One that ran out of time, of
# which it had little, or was ended is tried again, and only named.
judge_ahead() { # LOG
    local outcomes failed
    [[ -s $1 ]] || return 0
    outcomes=$(sed -n -E 's/^.*Test +#[0-9]+: ([^ ]+) \.*([A-Za-z ]*\*\*\*.*)/\1 \2/p' "$1")
    [[ -n $outcomes ]] || return 0
    failed=$(grep -vE '\*\*\*Timeout| terminated\*\*\*' <<<"$outcomes") || {
        outcomes=$(sed 's/ .*//' <<<"$outcomes" | paste -sd ' ')
        say "did not end ahead, and are tried again: $outcomes"
        return 0
    }
    cat "$1" >&2
    sed 's/^/ahead: /' <<<"$failed" >>"$report/failed"
    return 1
}

# A cancelled thread leaves its frames marked; where ASan then ends the thread's signal stack, it
# would take its own frame for one of them.
with_asan() { # OPTIONS COMMAND...
    ASAN_OPTIONS=$1:use_sigaltstack=0 UBSAN_OPTIONS=print_stacktrace=1 "${@:2}"
}

# ASSERT(false) marks what cannot happen; the branch of any other ASSERT that fails is not counted.
stage_coverage() {
    local lines=build-coverage/lines.json status=0
    set_up coverage
    preset_build coverage
    find "$root/build-coverage" -name '*.gcda' -delete
    run_ctest "$root/build-coverage" '^(unit|golden|script|sim)$' '^(full|soak)$' || status=1
    # The same rooms, but optimized: they have other branches.
    (cd "$root" && gcovr --root . --object-directory build-coverage \
        --exclude-directories '.*simrun_few_psns.*' \
        --exclude-throw-branches --exclude-unreachable-branches \
        --exclude-branches-by-pattern '.*\bASSERT\(' \
        --exclude-lines-by-pattern '\s*ASSERT\(false\);' --json $lines build-coverage)
    python3 "$root/tools/coverage.py" "$root/$lines"
    return "$status"
}

# Findings are left in build-clang/.
fuzz_for() { # SECONDS
    local target name commands=()
    preset_build clang fuzzers
    end_ahead "fuzz$1"
    for target in "$root"/build-clang/fuzz/*_fuzz; do
        name=$(basename "$target" _fuzz)
        commands+=("$root/fuzz/fuzz_for.sh $1 $target $root/fuzz/corpus/$name $root/build-clang")
    done
    timeless=yes in_parallel "${commands[@]}"
}

# A simulation has one thread, so the longest come first, in parts: every so many tests of a program
# (GoogleTest's shards), or seeds of a range.
run_seeds() { # COUNT
    local first part name count keeps commands=() parts=4 shard
    need_tests
    end_ahead "seeds$1"
    for part in $(seq 0 $((parts - 1))); do
        shard="env GTEST_TOTAL_SHARDS=$parts GTEST_SHARD_INDEX=$part FEROCE_SEEDS=$1"
        for name in block gas; do commands+=("$shard $build/tests/sim/sim_${name}_test"); done
    done
    for name in simrun simrun_few_psns; do
        for part in $(seq 0 $((parts - 1))); do
            count=$1
            [[ $name == simrun ]] || count=$(($1 / 5))
            first=$((1 + count * part / parts))
            count=$((1 + count * (part + 1) / parts - first))
            for keeps in '' ' --keep'; do
                commands+=("$build/tools/$name --seed=$first --runs=$count --twice$keeps")
            done
        done
    done
    for name in abi rdma rsocket rtrs; do
        commands+=("env FEROCE_SEEDS=$1 FEROCE_STORMS=$1 $build/tests/sim/sim_${name}_test")
    done
    timeless=yes in_parallel "${commands[@]}"
}

stage_seeds100() { run_seeds 100; }
stage_seeds1000() { run_seeds 1000; }

stage_floods() {
    need_tests
    FEROCE_TEST_MESSAGES=1000000 "$build/tests/share/share_hostile_guest_test"
    FEROCE_TEST_MESSAGES=1000000 "$build/tests/share/share_cm_flood_test"
    FEROCE_TEST_ROUNDS=100 "$build/tests/share/share_exit_test"
}

stage_crowd250() {
    need_tests
    FEROCE_TEST_CROWD=250 FEROCE_TEST_MIB=64 FEROCE_TEST_SECONDS=60 \
        "$build/tests/share/share_crowd_test"
}

# About 12 GB of memory, most of it UCX's.
stage_mpi128() {
    need_tests
    python3 "$root/tests/mpi/run.py" "$build" 128
    FEROCE_SAMEHOST=off python3 "$root/tests/mpi/run.py" "$build" 128
}

stage_fuzz20() { fuzz_for 20; }
stage_fuzz600() { fuzz_for 600; }

stage_netns() {
    need_tests
    in_parallel "python3 $root/tests/netns/run.py --library $build/lib --all"
}

# By UDP, as between machines, what else goes by rings. Those who test rings are left out.
udp_labels=(abi share litmus)
no_ports=(tidy models golden script sim fuzz)

stage_udp() {
    need_tests
    FEROCE_SAMEHOST=off run_ctest "$build" "$(any_of "${udp_labels[@]}")" '^(rings|full|soak)$'
}

stage_udprest() {
    local name
    need_tests
    export FEROCE_SAMEHOST=off
    run_ctest "$build" '' "$(any_of "${udp_labels[@]}" "${no_ports[@]}" rings full soak)"
    for name in netns demo iser disks20 overload pyverbs lossy3 floods crowd250; do
        "stage_$name"
    done
}

stage_demo() {
    build_product product
    python3 "$root/tests/demo/run.py" "$build"
}

stage_iser() {
    need_tests
    in_parallel "python3 $root/tests/iser/run.py --feroce $program --all" \
        "python3 $root/tests/iser/run.py --netns --family ipv6 --library $build/lib"
}

stage_overload() {
    need_tests
    python3 "$root/tests/rtrs/cut_paths.py" "$build/tests/rtrs" --overloaded
}

stage_disks20() {
    need_tests
    python3 "$root/tests/block/cut_disk.py" "$build/bin" 20
    killed_flush
}

killed_flush() { # [--required]
    local library="$build/tests/block/killing_sync.so"
    python3 "$root/tests/block/killed_flush.py" "$build/bin" "$library" "$@"
}

stage_disks600() {
    need_tests
    python3 "$root/tests/block/cut_disk.py" "$build/bin" 600
    killed_flush --required
    FEROCE_TEST_MIB=1024 python3 "$root/tests/block/nbd_test.py" "$build/bin" copies
}

stage_cycles() {
    need_tests
    python3 "$root/tests/block/cycles.py" "$build/bin" 1000
}

# As root the tests of huge pages run too.
stage_pyverbs() {
    need_tests
    python3 "$root/tests/pyverbs/run.py" "$program"
}

stage_lintsuite() {
    need_tests
    python3 "$root/tests/pyverbs/run.py" --lint "$program"
}

lossy_transfer() { # SEEDS
    need_tests
    FEROCE_TEST_MIB=256 FEROCE_TEST_SEEDS=$1 "$build/tests/abi/lossy_transfer_test"
}

stage_lossy3() { lossy_transfer 3; }
stage_lossy20() { lossy_transfer 20; }

# Debian's kernel in QEMU. A guest's image is kept in its folder for the next run.
with_guest() { # PROGRAM FOLDER OPTION...
    local architecture
    architecture=$(dpkg --print-architecture) || die "a guest is made of Debian's packages by apt"
    [[ -f $root/.ci/packages/interop-$architecture.txt ]] ||
        die "no emulator is known for a guest on $architecture"
    set_up interop "interop-$architecture"
    need_tests
    python3 "$root/tests/interop/$1" --build "$build" --work "$root/$2" "${@:3}"
}

stage_interop() { with_guest run.py build-interop; }
stage_crash5() { with_guest crash.py build-crash --rounds 5; }
stage_crash50() { with_guest crash.py build-crash --rounds 50; }
stage_zeroes() { with_guest run.py build-zeroes --suite backports zeroes; }
stage_ublk() { with_guest ublk.py build-ublk; }
stage_udmabuf() { with_guest run.py build-zeroes --suite backports dmabuf; }

# Needs root. The bare systems are kept in build-chroot/ for the next run.
stage_chroot() {
    local try=(python3 "$root/tests/chroot/run.py" --work "$root/build-chroot" --suite)
    set_up chroot
    need_tests
    "${try[@]}" bookworm readme packages container userns
    "${try[@]}" trixie packages tests
}

stage_web() {
    set_up web
    need_tests
    python3 "$root/tests/cli/web_page_test.py" "$build/bin"
}

stage_compilers() {
    local try=(python3 "$root/tests/chroot/run.py" --work "$root/build-chroot" --suite)
    set_up chroot
    "${try[@]}" bookworm gxx11
    "${try[@]}" trixie gxx13
}
stage_dist() {
    local archive
    set_up product dist-tools chroot
    archive=$("$root/tools/dist/dist.sh" "$root/build-dist" "$jobs")
    python3 "$root/tests/dist/check.py" "$archive"
    python3 "$root/tests/dist/run.py" --work "$root/build-chroot" "$archive" \
        bullseye bookworm trixie
}

# No root is needed: packages of the other architecture are unpacked, never installed.
stage_distother() {
    local here other archive
    here=$(dpkg --print-architecture)
    other=$([[ $here == amd64 ]] && echo arm64 || echo amd64)
    set_up product dist-tools "cross-$here" emulator
    archive=$("$root/tools/dist/dist.sh" "$root/build-dist" "$jobs" "$other")
    python3 "$root/tests/dist/check.py" "$archive"
    python3 "$root/tests/dist/emulated.py" --work "$root/build-dist/$other" "$archive"
}

# Both need root, and the archive that the stage dist makes.
stage_image() {
    local archive
    set_up product dist-tools chroot image image-test
    archive=$("$root/tools/dist/dist.sh" "$root/build-dist" "$jobs")
    python3 "$root/tests/dist/image.py" --work "$root/build-image" --chroots "$root/build-chroot" \
        "$archive" bookworm
}

stage_action() {
    local archive
    set_up product dist-tools chroot
    archive=$("$root/tools/dist/dist.sh" "$root/build-dist" "$jobs")
    /usr/bin/python3 "$root/tests/ci/bare.py" --work "$root/build-chroot" "$archive" bookworm
}

stage_programs() {
    set_up programs
    need_tests
    python3 "$root/tests/programs/run.py" "$build"
}

stage_exporters() {
    set_up exporters
    need_tests
    /usr/bin/python3 "$root/tests/cli/exporters_test.py" "$build/bin"
    /usr/bin/python3 "$root/tests/cli/dashboard_test.py" "$build/bin"
}

stage_tracers() {
    set_up tracers
    need_tests
    /usr/bin/python3 "$root/tests/cli/tracers_test.py" "$build/bin"
}

stage_torchrun() {
    set_up torchrun
    need_tests
    python3 "$root/tests/gas/launchers_test.py" torchrun "$build"
}

stage_cross() {
    set_up "cross-$(dpkg --print-architecture)"
    "$root/tests/cross/run.sh" "$root/build-cross" "$jobs"
}

# ---- choosing and running -------------------------------------------------------------------

find_stage() { # NAME; sets group and kind
    local line name
    for line in "${stages[@]}"; do
        IFS='|' read -r group kind name _ <<<"$line"
        [[ $name != "$1" ]] || return 0
    done
    die "there is no stage $1; ./feroce test --list shows them" 2
}

# Prints the stage names that the arguments stand for: none, a group, or names.
choose() {
    local word line group name
    for word in "${@:-everyday}"; do
        case $word in
            everyday | full | soak)
                for line in "${stages[@]}"; do
                    IFS='|' read -r group _ name _ <<<"$line"
                    [[ $group != "$word" ]] || echo "$name"
                done
                ;;
            *) echo "$word" ;;
        esac
    done
}

run_stages() {
    local name chosen group kind labels=() groups=(product test)
    if [[ ${1:-} == --list ]]; then list_stages; return; fi
    mapfile -t chosen < <(choose "$@")
    for name in "${chosen[@]}"; do
        find_stage "$name"
        [[ $group != full && $group != soak ]] || groups=(product test full)
    done
    # Labels are one run of ctest.
    for name in "${chosen[@]}"; do
        find_stage "$name"
        if [[ $kind == label ]]; then labels=("$name"); else : $((stages_chosen += 1)); fi
    done
    stages_chosen=$((stages_chosen + ${#labels[@]}))
    labels=()
    report=$(mktemp -d)
    trap 'end_ahead "${!ahead[@]}"; rm -rf "$report"' EXIT
    # A compiler or test that ends by itself when interrupted would count as a stage that failed.
    trap 'exit 130' INT
    trap 'exit 143' TERM
    touch "$report/tries" "$report/failed" "$report/minutes"
    begin_stage set-up
    set_up "${groups[@]}"
    end_stage
    for name in "${chosen[@]}"; do
        find_stage "$name"
        if [[ $kind == label ]]; then labels+=("$name"); continue; fi
        [[ " $* " != *" full "* || " ${computing[*]} " == *" $name "* ]] || work_ahead
        run_stage "$name" "stage_$name"
    done
    [[ ${#labels[@]} -eq 0 ]] || run_stage labels run_labels "${labels[@]}"
    print_report
    [[ -z $stages_failed ]] || die "stages that failed:$stages_failed"
}

stages_failed= # A blank and the name of each.

stages_begun=0 stages_chosen=0

run_stage() { # NAME COMMAND...
    local status
    say "stage $1 ($((stages_begun += 1)) of $stages_chosen)"
    begin_stage "$1"
    # In a subshell of its own, so that -e holds inside: a function tested by || loses it.
    set +e
    (set -e; "${@:2}")
    status=$?
    set -e
    end_stage
    [[ $status -eq 0 ]] || { say "stage $1 failed"; stages_failed+=" $1"; }
}

run_labels() { # LABEL...
    if [[ $* == script ]]; then build_tests tests_of_script; else need_tests; fi
    run_ctest "$build" "$(any_of "$@")" '^(full|soak)$'
}

begin_stage() { # NAME
    stage_name=$1
    stage_began=$SECONDS
    read -r ticks_began idle_began < <(processor_ticks)
}

end_stage() {
    local ticks idle
    read -r ticks idle < <(processor_ticks)
    echo "$stage_name $((SECONDS - stage_began)) $((ticks - ticks_began)) $((idle - idle_began))" \
        >>"$report/minutes"
}

# Of all processors since the machine started: all, and those in which nothing ran.
processor_ticks() {
    awk '$1 == "cpu" { for (i = 2; i <= 9; i++) all += $i
         printf "%.0f %.0f\n", all, $5 + $6; exit }' /proc/stat
}
