// RwLock: many readers or one writer. Readers cost one fetch-add each way; a writer announces
// itself first, so readers that come later let it pass (writers come first, and may starve
// readers). Semaphore: a number of permits. Nobody queues; who finds none comes back after a pause.
// A caller that gives up has changed nothing in the end: what it had taken is given back by tasks
// of the thread's Lanes. Unlocking and releasing ignore limits.
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
    class Claim;
    static rdma::Task<Result<bool>> enter(Lanes& lanes, ptr<Line> line);
    static rdma::Task<Result<std::uint64_t>> claim(Lanes& lanes, ptr<Line> line,
                                                   std::uint64_t readers);
    static rdma::Task<Result<>> add(Lanes& lanes, ptr<Line> line, std::uint64_t amount);
    rdma::Task<Result<std::uint64_t>> sheltered_claim(std::uint64_t readers);

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
    static rdma::Task<Result<bool>> take(Lanes& lanes, ptr<Line> line);
    static rdma::Task<Result<>> give(Lanes& lanes, ptr<Line> line, std::int64_t count);

    Lanes& lanes_;
    ptr<Line> line_;
};

}  // namespace feroce::gas
