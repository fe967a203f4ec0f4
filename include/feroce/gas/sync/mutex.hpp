// Mutex: what every lock of the cluster can do. The lock itself is a line of shared memory; a Mutex
// is one thread's handle on it, cheap to make, for one thread and one lock, and holds it at most
// once. Several handles may be held at a time (nesting), each with its place in a queue.
//
//   auto guard = co_await mutex.guard();          // Or mutex.guard() under loop.run: blocking.
//   if (!guard) return guard.error();
//   ...                                           // Released when the guard ends.
//
// Who holds a lock sees what earlier holders wrote, if they waited for their writes or chained them
// before the unlock. A lock whose home node is lost fails. A LeaseLock survives its holder, the
// others do not.
#pragma once

#include <memory>
#include <utility>

#include "feroce/gas/lanes.hpp"
#include "feroce/loop.hpp"
#include "feroce/task.hpp"

namespace feroce::gas {

class Mutex;

// Holds a mutex. release() waits until it is free; the destructor starts to release it and lets the
// thread's loop do the rest.
class [[nodiscard]] Guard {
public:
    explicit Guard(Mutex& mutex) : mutex_(&mutex) {}
    Guard(Guard&& other) noexcept : mutex_(std::exchange(other.mutex_, nullptr)) {}
    Guard& operator=(Guard&& other) noexcept {
        std::swap(mutex_, other.mutex_);
        return *this;
    }
    ~Guard();
    rdma::Task<Result<>> release();

private:
    Mutex* mutex_;
};

class Mutex {
public:
    explicit Mutex(Lanes& lanes) : lanes_(lanes) {}
    virtual ~Mutex() = default;
    Mutex(const Mutex&) = delete;
    Mutex& operator=(const Mutex&) = delete;

    // After an error it is not known whether the lock was taken: its home node is lost.
    virtual rdma::Task<Result<>> lock() = 0;
    // False if somebody holds it or waits for it.
    virtual rdma::Task<Result<bool>> try_lock() = 0;
    virtual rdma::Task<Result<>> unlock() = 0;

    // Tries until then; false if it was never free. Does not stand in a queue, since a place in a
    // queue cannot be left.
    virtual rdma::Task<Result<bool>> lock_until(Instant deadline);
    rdma::Task<Result<Guard>> guard();

    Lanes& lanes() { return lanes_; }

protected:
    Lanes& lanes_;
};

// Waiting for a word to change: a few looks at once, then with growing pauses, drawn at random so
// that those who wait do not keep step; after half a millisecond with pauses of an eighth of the
// time waited so far.
class Backoff {
public:
    explicit Backoff(Lanes& lanes) : Backoff(lanes.loop(), std::chrono::microseconds(64)) {}
    Backoff(rdma::Loop& loop, Duration longest) : loop_(loop), longest_(longest) {}
    rdma::Loop::Sleep pause();
    // The word has changed, and what comes next may be no use of the device: see Loop::rest.
    void stop_polling() {
        if (looks_ > 1) loop_.rest();
    }

private:
    rdma::Loop& loop_;
    Duration longest_;
    unsigned looks_ = 0;
    Instant since_{};  // The end of the looks at once.
};

// Waiting for a lock whose holder may have died: whether the same claim has stood for as long as a
// lease and its grace, by the clock of who waits. Clocks of different nodes are never compared.
class Watch {
public:
    explicit Watch(Lanes& lanes) : lanes_(lanes) {}
    bool expired(std::uint64_t claim);

private:
    Lanes& lanes_;
    std::uint64_t claim_ = 0;
    Instant since_{};
};

}  // namespace feroce::gas
