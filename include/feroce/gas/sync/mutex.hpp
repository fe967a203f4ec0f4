// Mutex: what every lock of the cluster can do. The lock itself is a line of shared memory; a Mutex
// is one thread's handle on it, cheap to make, for one thread and one lock, and holds it at most
// once. Several handles may be held at a time (nesting), each with its place in a queue.
//
//   auto guard = co_await mutex.guard();          // Or blocking: mutex.guard().wait().
//   if (!guard) co_return guard.error();
//   ...                                           // Released when the guard is destroyed.
//
// The holder of a lock sees what earlier holders wrote, if they waited for their writes or chained
// them before the unlock. A lock whose home node is lost fails. A LeaseLock survives its holder,
// the others do not.
//
// A caller may give up at any point (a deadline, a stop, a coroutine that is destroyed): it does
// not hold the lock then. A place that it had in a queue keeps its turn and passes it on, and a
// lock that was won too late is freed, by tasks of the thread's Lanes, which need its loop to run.
#pragma once

#include <memory>
#include <utility>

#include "feroce/gas/call.hpp"
#include "feroce/gas/lanes.hpp"
#include "feroce/loop.hpp"
#include "feroce/shelter.hpp"
#include "feroce/task.hpp"

namespace feroce::gas {

class Mutex;

// Holds a mutex, whose handle outlives it. release() waits until the lock is free; the destructor
// starts to release it and lets the thread's loop do the rest, which needs nothing of the handle.
class [[nodiscard]] Guard {
public:
    explicit Guard(Mutex& mutex);
    Guard(Guard&& other) noexcept
        : loop_(other.loop_), mutex_(std::exchange(other.mutex_, nullptr)) {}
    Guard& operator=(Guard&& other) noexcept {
        std::swap(loop_, other.loop_);
        std::swap(mutex_, other.mutex_);
        return *this;
    }
    ~Guard();
    Call<> release() { return {*loop_, releasing()}; }

private:
    rdma::Task<Result<>> releasing();

    rdma::Loop* loop_;
    Mutex* mutex_;
};

class Mutex {
public:
    explicit Mutex(Lanes& lanes) : lanes_(lanes) {}
    virtual ~Mutex() = default;
    Mutex(const Mutex&) = delete;
    Mutex& operator=(const Mutex&) = delete;

    // After ETIMEDOUT or ECANCELED it is not held, and others get it. After another error it is not
    // known whether it was taken: its home node is lost.
    Call<> lock() { return {loop(), locking()}; }
    // False if somebody holds it or waits for it.
    Call<bool> try_lock() { return {loop(), trying()}; }
    // Ignores limits. The task needs nothing of the handle, which may be destroyed before it has
    // ended. EPERM: the handle does not hold the lock.
    Call<> unlock() { return {loop(), unlocking()}; }

    // Tries until then; false if it was never free. Does not stand in a queue: nobody waits for a
    // turn that is passed on.
    Call<bool> lock_until(Instant deadline) { return {loop(), locking_until(deadline)}; }
    Call<Guard> guard() { return {loop(), guarding()}; }

    Lanes& lanes() { return lanes_; }

protected:
    // What lock() and its like do, in the way of each kind of lock.
    virtual rdma::Task<Result<>> locking() = 0;
    virtual rdma::Task<Result<bool>> trying() = 0;
    virtual rdma::Task<Result<>> unlocking() = 0;
    virtual rdma::Task<Result<bool>> locking_until(Instant deadline);

    // What unlock() gives: the release is finished whatever happens to the task.
    static rdma::Task<Result<>> finish(Lanes& lanes, rdma::Task<Result<>> release);
    static rdma::Task<Result<>> not_held();

    Lanes& lanes_;
    bool held_ = false;  // By this handle.

private:
    rdma::Loop& loop() const { return lanes_.loop(); }
    rdma::Task<Result<Guard>> guarding();
};

inline Guard::Guard(Mutex& mutex) : loop_(&mutex.lanes().loop()), mutex_(&mutex) {}

// Waiting for a word to change: a few looks at once, then with growing pauses, drawn at random so
// that waiters do not keep step; after half a millisecond with pauses of an eighth of the
// time waited so far. Others of the loop run between two looks.
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
// lease and its grace, by the clock of the waiter. Clocks of different nodes are never compared.
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
