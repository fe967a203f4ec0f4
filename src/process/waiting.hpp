// How calls of ours wait for something that another thread does. Threads of the kernel block.
// Fibers, the threads of a simulated node, share one such thread, so they give way instead: a
// Waiter says how, and there is one only in simulations.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <limits>
#include <mutex>
#include <utility>

namespace feroce::process {

class Waiter {
public:
    virtual ~Waiter() = default;
    virtual void on_event() = 0;        // An EventCounter was told of one more.
    virtual void wait_for_event() = 0;  // Returns when there may be one.
    // For what nobody tells of: returns soon.
    virtual void wait_a_while() = 0;
};

// Set before the first call and cleared after the last, hence relaxed everywhere.
inline std::atomic<Waiter*> waiter{nullptr};

inline void after_empty_poll() {
    if (Waiter* fibers = waiter.load(std::memory_order_relaxed)) fibers->wait_a_while();
}

// Change: what a condition variable is for, but nothing is left behind by a thread that leaves the
// wait by siglongjmp(). Used with the lock held that guards the condition; process/undisturbed.hpp
// has the wait.
class Change {
public:
    void notify_all() {
        if (!std::exchange(expected_, false)) return;
        generation_.fetch_add(1, std::memory_order_relaxed);  // The lock orders it.
        ::syscall(SYS_futex, &generation_, FUTEX_WAKE_PRIVATE, std::numeric_limits<int>::max());
    }
    std::uint32_t expect() {
        expected_ = true;
        return generation_.load(std::memory_order_relaxed);
    }
    // Without the lock. May return early.
    void sleep(std::uint32_t seen) {
        ::syscall(SYS_futex, &generation_, FUTEX_WAIT_PRIVATE, seen, nullptr);
    }

private:
    std::atomic<std::uint32_t> generation_{0};
    bool expected_ = false;  // Somebody sleeps, or did and went away.
};

}  // namespace feroce::process
