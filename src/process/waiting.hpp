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
    virtual void wait_for_news() = 0;  // Returns when something may have changed.
    virtual void on_empty_poll() = 0;  // A poller found nothing and will poll again.
};

// Set before the first call and cleared after the last, hence relaxed everywhere.
inline std::atomic<Waiter*> waiter{nullptr};

inline void after_empty_poll() {
    if (Waiter* fibers = waiter.load(std::memory_order_relaxed)) fibers->on_empty_poll();
}

template <class Condition>
void wait_until(std::condition_variable& change, std::unique_lock<std::mutex>& lock,
                Condition holds) {
    Waiter* fibers = waiter.load(std::memory_order_relaxed);
    if (fibers == nullptr) return change.wait(lock, holds);
    while (!holds()) {
        lock.unlock();
        fibers->wait_for_news();
        lock.lock();
    }
}

}  // namespace feroce::process
