// SharedReceives: one queue of receives for many connections (a shared receive queue): memory for
// as many messages as come, not for as many as each peer might send. Given to connections by
// ConnectionOptions::shared_receives; it ends after them.
//
//     auto queue = SharedReceives::create(domain.raw(), 1024).value();
//     queue.post(buffer.local(), operation);      // The completion's qp_num tells the sender.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "feroce/error.hpp"
#include "feroce/memory.hpp"
#include "feroce/operation.hpp"
#include "feroce/work.hpp"

namespace feroce::rdma {

class SharedReceives {
public:
    // For connections of this domain; so many receives of so many regions each.
    static Result<SharedReceives> create(ibv_pd* domain, std::uint32_t depth,
                                         std::uint32_t sge = 1);

    // For the next message of whichever connection. The operation completes on the loop of the
    // connection that takes it; ENOMEM if the queue is full.
    Result<> post(const Regions& into, Operation& operation);
    // IBV_EVENT_SRQ_LIMIT_REACHED comes once (async_events.hpp) when fewer than this are left.
    Result<> warn_below(std::uint32_t receives);
    ibv_srq* raw() const { return srq_.get(); }

private:
    explicit SharedReceives(ibv_srq* srq) : srq_(srq) {}
    detail::Owned<ibv_srq, ibv_destroy_srq> srq_;
};

}  // namespace feroce::rdma
