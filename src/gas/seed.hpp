// Where the first node listens: the address of a machine that may be given by its name.
#pragma once

#include "feroce/address.hpp"
#include "feroce/gas/placement.hpp"

namespace feroce::gas {

// Asks the system's resolver if it is a name, which blocks. EAGAIN: it may be known later.
rdma::Result<rdma::Address> seed_address(const Placement& placement);

}  // namespace feroce::gas
