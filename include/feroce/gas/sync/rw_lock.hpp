// RwLock: many readers or one writer. Readers cost one fetch-add each way; a writer announces
// itself first, so readers that come later let it pass (writers come first, and may starve
// readers). Semaphore: a number of permits. Nobody queues; a caller that finds none comes back
// after a pause. A caller that gives up has changed nothing in the end: what it had taken is given
// back by tasks of the thread's Lanes. Unlocking and releasing ignore limits.
#pragma once

#include "feroce/gas/sync/mutex.hpp"

namespace feroce::gas {

class RwLock {
public:
    struct alignas(64) Line {
        nic<std::uint64_t> word;  // Readers; the highest bit is a writer that waits or writes.
    };

    RwLock(Lanes& lanes, ptr<Line> line) : lanes_(lanes), line_(line) {}
    Call<> lock_shared() { return {loop(), locking_shared()}; }
    Call<> unlock_shared() { return {loop(), unlocking_shared()}; }
    Call<> lock() { return {loop(), locking()}; }
    Call<> unlock() { return {loop(), unlocking()}; }
    // False if anybody is inside.
    Call<bool> try_lock() { return {loop(), trying()}; }
    // False if a writer is, or waits.
    Call<bool> try_lock_shared() { return {loop(), trying_shared()}; }

private:
    rdma::Loop& loop() const { return lanes_.loop(); }
    rdma::Task<Result<>> locking_shared();
    rdma::Task<Result<>> unlocking_shared();
    rdma::Task<Result<>> locking();
    rdma::Task<Result<>> unlocking();
    rdma::Task<Result<bool>> trying();
    rdma::Task<Result<bool>> trying_shared();

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
        // Negative for moments, while callers that found none give back.
        nic<std::int64_t> permits;
    };

    Semaphore(Lanes& lanes, ptr<Line> line) : lanes_(lanes), line_(line) {}
    Call<> acquire() { return {loop(), acquiring()}; }
    Call<bool> try_acquire() { return {loop(), trying()}; }  // False if it saw none.
    Call<> release(std::int64_t count = 1) { return {loop(), releasing(count)}; }

private:
    rdma::Loop& loop() const { return lanes_.loop(); }
    rdma::Task<Result<>> acquiring();
    rdma::Task<Result<bool>> trying();
    rdma::Task<Result<>> releasing(std::int64_t count);

    static rdma::Task<Result<bool>> take(Lanes& lanes, ptr<Line> line);
    static rdma::Task<Result<>> give(Lanes& lanes, ptr<Line> line, std::int64_t count);

    Lanes& lanes_;
    ptr<Line> line_;
};

}  // namespace feroce::gas
