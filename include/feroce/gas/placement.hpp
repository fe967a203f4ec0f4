// Which node of a cluster this process is: its rank, how many there are, and where the first one
// listens. Taken from the environment, so that programs start under `feroce launch` and under the
// launchers that clusters have (Open MPI, MPICH and others with PMI, Slurm, torchrun, Flux, pods of
// Kubernetes) alike. An environment that looks like a cluster's and is not understood is an error,
// never a cluster of one.
#pragma once

#include <cstdint>
#include <string>

#include "feroce/result.hpp"

namespace feroce::gas {

struct Placement {
    std::uint16_t rank = 0;
    std::uint16_t size = 1;
    std::string seed;  // Name or address of the machine with rank 0, which listens at `port`.
    std::uint16_t port = 7474;
};

// How a variable is looked up; null if it is not set.
using Lookup = const char* (*)(const char* name);

// FEROCE_GAS_RANK, FEROCE_GAS_SIZE and FEROCE_GAS_SEED=HOST[:PORT] ([ADDRESS]:PORT for IPv6) come
// first; without them rank and size of a launcher, and the place of rank 0 where it tells one
// (torchrun's MASTER_ADDR and MASTER_PORT, the first machine of Slurm's step). With FEROCE_GAS_SIZE
// alone the rank is JOB_COMPLETION_INDEX or the number in the name of a StatefulSet's pod. A
// process without any of these is 0 of 1. Named in full: in other headers of this room Result is
// rdma's.
feroce::Result<Placement> placement_from_environment(Lookup lookup);
feroce::Result<Placement> placement_from_environment();

}  // namespace feroce::gas
