// Private data with padding would show the peer what lay on the stack.
// expect: (no matching function|constraints not satisfied)
#include <cstdint>

#include "feroce/cm_event.hpp"

struct Greeting {
    std::uint64_t version;
    std::uint32_t role;
#ifndef MISTAKE
    std::uint32_t reserved;
#endif
};

feroce::rdma::PrivateData greet(const Greeting& greeting) {
    return feroce::rdma::PrivateData::of(greeting);
}
