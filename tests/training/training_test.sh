#!/usr/bin/env bash
# training_test.sh TRAIN.SH: the training step on a project as small as can be, whose library lies
# outside the system's folders, beside another of the drop-in's name. What it compiles and counts is
# the benchmarks' matter.
set -euo pipefail

train=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }

mkdir -p "$scratch/project" "$scratch/away/lib"
echo 'int away(void) { return 0; }' >"$scratch/away.c"
cc -shared -fPIC -o "$scratch/away/lib/libaway.so" "$scratch/away.c"
echo 'int devices(void) { return 0; }' >"$scratch/system.c"
cc -shared -fPIC -Wl,-soname,libibverbs.so.1 -o "$scratch/away/lib/libibverbs.so.1" \
    "$scratch/system.c"
echo 'int devices(void) { return 1; }' >"$scratch/project/drop_in.c"
cat >"$scratch/project/CMakeLists.txt" <<'TEXT'
cmake_minimum_required(VERSION 3.22)
project(small C)
find_library(AWAY away REQUIRED)
if(FEROCE_TRAIN STREQUAL record)
  file(WRITE ${FEROCE_COUNTERS}/small.gcda "")  # As the traffic would.
  add_library(ibverbs SHARED drop_in.c)
  set_target_properties(ibverbs PROPERTIES SOVERSION 1 LIBRARY_OUTPUT_DIRECTORY lib)
  add_executable(trainer main.c)
  target_link_libraries(trainer ${AWAY} ibverbs)
endif()
TEXT
cat >"$scratch/project/main.c" <<'TEXT'
int away(void);
int devices(void);
int main(int n, char** words) { return n < 2 || !words[1] || away() || devices() == 0; }
TEXT

configure() { # FOLDER
    cmake -G Ninja -S "$scratch/project" -B "$1" -DCMAKE_PREFIX_PATH="$scratch/away" >/dev/null
}

configure "$scratch/build"
said=$(LD_LIBRARY_PATH=$scratch/away/lib "$train" "$scratch/project" "$scratch/build" \
    "$scratch/build/training" -G Ninja 2>&1)
[[ $said != *failed* ]] || fail "$said: $(<"$scratch/build/training/log")"
[[ $said == *'training: [5/5]'* && $said == *'traffic, bandwidth 65536, FEROCE_SAMEHOST=on'* ]] ||
    fail "it does not show how far it is: $said"
[[ -e $scratch/build/training/done && -e $scratch/build/training/small.gcda ]] || fail "no counters"

# Traffic that fails: it says so, the build goes on, and no counters are left.
echo 'int main(void) { return 1; }' >"$scratch/project/main.c"
said=$("$train" "$scratch/project" "$scratch/build" "$scratch/build/training" -G Ninja 2>&1)
[[ $said == *'training failed, see '* ]] || fail "$said"
[[ -e $scratch/build/training/done && ! -e $scratch/build/training/small.gcda ]] || fail "counters"
