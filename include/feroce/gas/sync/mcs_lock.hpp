// McsLock: a queue through the memory of the waiters. Each waits on a word of its own node, so
// waiting causes no traffic; first come, first served. One round trip when free.
#pragma once

#include "feroce/gas/sync/mutex.hpp"

namespace feroce::gas {

class McsLock final : public Mutex {
public:
    struct Place {
        plain<std::uint64_t> granted;
        plain<ptr<Place>> next;
    };
    struct alignas(64) Line {
        nic<ptr<Place>> tail;  // Null: free.
    };

    McsLock(Lanes& lanes, ptr<Line> line) : Mutex(lanes), line_(line) {}

private:
    rdma::Task<Result<>> locking() override;
    rdma::Task<Result<bool>> trying() override;
    rdma::Task<Result<>> unlocking() override;

    static Result<ptr<Place>> take_place(Lanes& lanes, NodeId home);
    static rdma::Task<Result<ptr<Place>>> take(Lanes& lanes, ptr<Line> line);
    static rdma::Task<Result<>> wait_in_queue(Lanes& lanes, ptr<Line> line, ptr<Place> place);
    // Null: it is not free.
    static rdma::Task<Result<ptr<Place>>> take_free(Lanes& lanes, ptr<Line> line);
    static rdma::Task<Result<>> release(Lanes& lanes, ptr<Line> line, ptr<Place> place);

    ptr<Line> line_;
    ptr<Place> place_;  // While it is held.
};

}  // namespace feroce::gas
