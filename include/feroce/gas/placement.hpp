// Which node of a cluster this process is: its rank, how many there are, and where the first one
// listens. Taken from the environment, so that programs start under `feroce launch` and under the
// launchers that clusters have (Open MPI, PMI and PMIx, Slurm) alike.
#pragma once

#include <cstdint>
#include <string>

#include "feroce/result.hpp"

namespace feroce::gas {

struct Placement {
    std::uint16_t rank = 0;
    std::uint16_t size = 1;
    std::string seed;  // Address of the node with rank 0, as text; it listens at `port`.
    std::uint16_t port = 7474;
};

// How a variable is looked up; null if it is not set.
using Lookup = const char* (*)(const char* name);

// FEROCE_GAS_RANK, FEROCE_GAS_SIZE and FEROCE_GAS_SEED=ADDRESS[:PORT] ([ADDRESS]:PORT for IPv6)
// come first; without them rank and size of a launcher. A process on its own is 0 of 1.
// Named in full: in other headers of this room Result is rdma's.
feroce::Result<Placement> placement_from_environment(Lookup lookup);
feroce::Result<Placement> placement_from_environment();

}  // namespace feroce::gas
