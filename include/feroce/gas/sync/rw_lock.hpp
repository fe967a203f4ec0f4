// RwLock: many readers or one writer. Readers cost one fetch-add each way; a writer announces
// itself first, so readers that come later let it pass (writers come first, and may starve
// readers). Semaphore: a number of permits. Nobody queues; who finds none comes back after a pause.
#pragma once

#include "feroce/gas/sync/mutex.hpp"

namespace feroce::gas {

class RwLock {
public:
    struct alignas(64) Line {
        nic<std::uint64_t> word;  // Readers; the highest bit is a writer that waits or writes.
    };

    RwLock(Lanes& lanes, ptr<Line> line) : lanes_(lanes), line_(line) {}
    rdma::Task<Result<>> lock_shared();
    rdma::Task<Result<>> unlock_shared();
    rdma::Task<Result<>> lock();
    rdma::Task<Result<>> unlock();
    rdma::Task<Result<bool>> try_lock();         // False if anybody is inside.
    rdma::Task<Result<bool>> try_lock_shared();  // False if a writer is, or waits.

private:
    Lanes& lanes_;
    ptr<Line> line_;
};

class Semaphore {
public:
    struct alignas(64) Line {
        nic<std::int64_t> permits;  // Negative for moments, while who found none gives back.
    };

    Semaphore(Lanes& lanes, ptr<Line> line) : lanes_(lanes), line_(line) {}
    rdma::Task<Result<>> acquire();
    rdma::Task<Result<bool>> try_acquire();  // False if it saw none.
    rdma::Task<Result<>> release(std::int64_t count = 1);

private:
    Lanes& lanes_;
    ptr<Line> line_;
};

}  // namespace feroce::gas
