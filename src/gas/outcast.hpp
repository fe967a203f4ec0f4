// What is said of nodes that others have found lost.
#pragma once

#include <cerrno>

#include "feroce/error.hpp"

namespace feroce::gas {

// To this one.
inline rdma::Error outcast() {
    return {ESTALE,
            "the others have found this node lost, since it did not answer for some seconds: "
            "it is no longer one of them"};
}

// Of another.
inline rdma::Error found_by_another() {
    return {ECONNRESET, "another node has found it lost"};
}

}  // namespace feroce::gas
