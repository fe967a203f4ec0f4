// Lock: as std::mutex, but taken and let go inline where nobody contends: a message takes it three
// times, and the C library's way is longer than what it guards. A thread that has to wait sleeps.
//
// Fair between the two kinds of threads that want it. A thread that polls comes back at once and
// loses nothing if it fails, so it only tries; but a mutex favours threads that spin, so it steps
// aside while others wait, a bounded number of times.
#pragma once

#include <atomic>
#include <thread>

#include "base/held_locks.hpp"

namespace feroce::process {

class Lock {
public:
    bool try_lock() {
        int expected = kFree;
        // acquire: what the last holder wrote is visible before we touch the guarded words.
        if (!state_.compare_exchange_strong(expected, kHeld, std::memory_order_acquire,
                                            std::memory_order_relaxed))
            return false;
        held_locks::taken();
        return true;
    }
    void lock() {
        if (try_lock()) return;
        waiting_.fetch_add(1, std::memory_order_relaxed);
        // From here on the thread that unlocks must wake one; we cannot know that we are the last.
        while (state_.exchange(kAwaited, std::memory_order_acquire) != kFree)
            state_.wait(kAwaited, std::memory_order_relaxed);
        waiting_.fetch_sub(1, std::memory_order_relaxed);
        held_locks::taken();
    }
    void unlock() {
        held_locks::released();
        // release, so that our writes are visible to the next holder; seq_cst, because
        // notify_one() looks for sleepers, and must not do so before others can see the lock free.
        if (state_.exchange(kFree, std::memory_order_seq_cst) == kAwaited) state_.notify_one();
    }

    // For a thread that polls. False: not taken, and the core may have been given up meanwhile.
    bool try_lock_to_poll() {
        if (waiting_.load(std::memory_order_relaxed) == 0) {
            yields_.store(0, std::memory_order_relaxed);
            if (try_lock()) return true;
            // The holder may wait for our core.
            if (failures_.fetch_add(1, std::memory_order_relaxed) % kFailuresBeforeYield == 0)
                std::this_thread::yield();
            return false;
        }
        if (yields_.fetch_add(1, std::memory_order_relaxed) >= kYieldsMax) return try_lock();
        std::this_thread::yield();
        return false;
    }

private:
    static constexpr int kFree = 0;
    static constexpr int kHeld = 1;
    static constexpr int kAwaited = 2;  // Held, and a thread sleeps or is about to.
    // How often pollers step aside for a thread that waits.
    static constexpr int kYieldsMax = 16;
    // Of how many vain tries one gives up the core.
    static constexpr unsigned kFailuresBeforeYield = 32;

    std::atomic<int> state_{kFree};
    // Hints for fairness, which order nothing: relaxed.
    std::atomic<int> waiting_{0};
    std::atomic<int> yields_{0};
    std::atomic<unsigned> failures_{0};
};

}  // namespace feroce::process
