// Call<T>: what an operation of the address space is, awaited or waited for: see feroce/call.hpp.
#pragma once

#include "feroce/call.hpp"

namespace feroce::gas {

using rdma::Call;

}  // namespace feroce::gas
