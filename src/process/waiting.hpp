// How calls of ours wait for something that another thread does. Threads of the kernel block.
// Fibers, the threads of a simulated node, share one such thread, so they give way instead: a
// Waiter says how, and there is one only in simulations.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>

namespace feroce::process {

class Waiter {
public:
    virtual ~Waiter() = default;
    virtual void on_event() = 0;        // An EventCounter counts one more.
    virtual void wait_for_event() = 0;  // Returns when there may be one.
    // For what nobody tells of: returns soon.
    virtual void wait_a_while() = 0;
};

// Set before the first call and cleared after the last, hence relaxed everywhere.
inline std::atomic<Waiter*> waiter{nullptr};

inline void after_empty_poll() {
    if (Waiter* fibers = waiter.load(std::memory_order_relaxed)) fibers->wait_a_while();
}

template <class Condition>
void wait_until(std::condition_variable& change, std::unique_lock<std::mutex>& lock,
                Condition holds) {
    Waiter* fibers = waiter.load(std::memory_order_relaxed);
    if (fibers == nullptr) return change.wait(lock, holds);
    while (!holds()) {
        lock.unlock();
        fibers->wait_a_while();
        lock.lock();
    }
}

}  // namespace feroce::process
