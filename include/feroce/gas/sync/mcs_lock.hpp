// McsLock: a queue through the memory of those who wait. Each waits on a word of its own node, so
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
    rdma::Task<Result<>> lock() override;
    rdma::Task<Result<bool>> try_lock() override;
    rdma::Task<Result<>> unlock() override;

private:
    Result<> take_place();

    ptr<Line> line_;
    ptr<Place> place_;  // While it is held or waited for.
};

}  // namespace feroce::gas
