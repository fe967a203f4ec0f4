#!/usr/bin/env bash
# On a machine with an NVIDIA GPU: on_a_gpu.sh [--libraries ARCHIVE] BUILD_FOLDER [PART...]
# Parts: doctor rate spin cases nccl again mps; all of them by default, in eight minutes
# (GPU_SECONDS=460). Each has a limit of its own; at the end there is a line for each.
#
# BUILD_FOLDER has the targets product and gpu_transfers. With --libraries it is made here, with the
# headers and libraries of that archive (a tar of usr/), for a machine that has none.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/gpu/on_a_gpu_parts.sh
. "$here/on_a_gpu_parts.sh"

archive=
if [[ ${1-} == --libraries ]]; then
    archive=$(realpath "${2-}") || exit 2
    shift 2
fi
[[ $# -ge 1 ]] || { sed -n '2,8s/^# *//p' "${BASH_SOURCE[0]}"; exit 2; }
[[ -z $archive ]] || build_with "$archive" "$1" || exit 1
build=$(cd "$1" && pwd) || exit 2
shift
parts=("$@")
((${#parts[@]})) || parts=(doctor rate spin cases nccl again mps)

logs=$build/gpu-logs
mkdir -p "$logs"
transfers=$build/tests/gpu/gpu_transfers
[[ -x $transfers ]] || { echo "no $transfers: build gpu_transfers"; exit 2; }
use_libraries

for what in "${parts[@]}"; do
    case $what in
        doctor) part doctor 20 doctor ;;
        rate)
            part "bare copies" 20 "$transfers" --rate copies
            part "WRITE rate, rings" 40 "$transfers" --rate both
            part "WRITE rate, UDP" 40 env FEROCE_SAMEHOST=off "$transfers" --rate both
            ;;
        spin)
            part "beside a kernel that spins" 60 "$transfers" --cases 100 --seed 4 --spin \
                --most 67108864 --seconds 50
            ;;
        cases) cases ;;
        nccl)
            part "NCCL, GPU Direct, rings" 200 over_feroce COLLECTIVE_SECONDS=45
            part "NCCL, its own sockets" 70 ranks NCCL_IB_DISABLE=1 COLLECTIVE_SECONDS=3
            part "NCCL, GPU Direct, UDP" 70 over_feroce FEROCE_SAMEHOST=off COLLECTIVE_SECONDS=3
            compare "all-reduce" "NCCL, GPU Direct, rings" "NCCL, its own sockets"
            compare "send-recv" "NCCL, GPU Direct, rings" "NCCL, its own sockets"
            compare "all-reduce" "NCCL, GPU Direct, UDP" "NCCL, its own sockets"
            ;;
        again)
            part "again: sockets" 40 ranks NCCL_IB_DISABLE=1 "${at_64_mib[@]}"
            part "again: rings" 40 over_feroce "${at_64_mib[@]}"
            compare "all-reduce" "again: rings" "again: sockets"
            compare "send-recv" "again: rings" "again: sockets"
            part "1 MiB at a time: sockets" 40 ranks NCCL_IB_DISABLE=1 \
                NCCL_P2P_NET_CHUNKSIZE=1048576 COLLECTIVE_SECONDS=1 COLLECTIVE_SIZES=67108864
            part "1 MiB at a time: rings" 40 over_feroce \
                NCCL_P2P_NET_CHUNKSIZE=1048576 COLLECTIVE_SECONDS=1 COLLECTIVE_SIZES=67108864
            compare "send-recv" "1 MiB at a time: rings" "1 MiB at a time: sockets"
            ;;
        mps) beside_mps ;;
        *) echo "no part $what"; exit 2 ;;
    esac
done
summary
