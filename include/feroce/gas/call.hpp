// Call<T>, as operations of containers have it: see feroce/call.hpp.
#pragma once

#include "feroce/call.hpp"

namespace feroce::gas {

template <class T = void>
using Call = rdma::Call<T>;

}  // namespace feroce::gas
