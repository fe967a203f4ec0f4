// Operation: what is told of a completion. A work request carries its address as wr_id, so nothing
// is allocated or looked up per operation. It must live until it has completed; work requests
// without one (wr_id 0) are told to nobody.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace feroce::rdma {

struct Operation {
    // Called by Loop::poll. It may post work and make coroutines ready, but must not end the
    // completion queue or connection that it comes from.
    void (*complete)(Operation& self, const ibv_wc& completion) = nullptr;
};

inline std::uint64_t to_wr_id(Operation* operation) {
    return reinterpret_cast<std::uint64_t>(operation);
}

}  // namespace feroce::rdma
