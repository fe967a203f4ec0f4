#!/usr/bin/env bash
# training_test.sh TRAIN.SH: the training step on a project as small as can be, whose library lies
# outside the system's folders. What it compiles and counts is the benchmarks' matter.
set -euo pipefail

train=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }

mkdir -p "$scratch/project" "$scratch/away/lib"
echo 'int away(void) { return 0; }' >"$scratch/away.c"
cc -shared -fPIC -o "$scratch/away/lib/libaway.so" "$scratch/away.c"
cat >"$scratch/project/CMakeLists.txt" <<'TEXT'
cmake_minimum_required(VERSION 3.22)
project(small C)
find_library(AWAY away REQUIRED)
if(FEROCE_TRAIN STREQUAL record)
  file(WRITE ${FEROCE_COUNTERS}/small.gcda "")  # As the traffic would.
  add_executable(trainer main.c)
  target_link_libraries(trainer ${AWAY})
endif()
TEXT
echo 'int away(void); int main(int n, char** words) { return n < 2 || !words[1] || away(); }' \
    >"$scratch/project/main.c"

configure() { # FOLDER
    cmake -G Ninja -S "$scratch/project" -B "$1" -DCMAKE_PREFIX_PATH="$scratch/away" >/dev/null
}

configure "$scratch/build"
said=$("$train" "$scratch/project" "$scratch/build" "$scratch/build/training" -G Ninja 2>&1)
[[ $said != *failed* ]] || fail "$said: $(<"$scratch/build/training/log")"
[[ $said == *'training: [2/2]'* && $said == *'traffic, bandwidth 65536, FEROCE_SAMEHOST=on'* ]] ||
    fail "it does not show how far it is: $said"
[[ -e $scratch/build/training/done && -e $scratch/build/training/small.gcda ]] || fail "no counters"

# Traffic that fails: it says so, the build goes on, and no counters are left.
echo 'int main(void) { return 1; }' >"$scratch/project/main.c"
said=$("$train" "$scratch/project" "$scratch/build" "$scratch/build/training" -G Ninja 2>&1)
[[ $said == *'training failed, see '* ]] || fail "$said"
[[ -e $scratch/build/training/done && ! -e $scratch/build/training/small.gcda ]] || fail "counters"
