// Lock: as std::mutex, but taken and let go inline where nobody contends: a message takes it three
// times, and the C library's way is longer than what it guards. Whoever has to wait sleeps.
#pragma once

#include <atomic>

namespace feroce::process {

class Lock {
public:
    bool try_lock() {
        int expected = kFree;
        // acquire: what the last holder wrote is visible before we touch the guarded words.
        return state_.compare_exchange_strong(expected, kHeld, std::memory_order_acquire,
                                              std::memory_order_relaxed);
    }
    void lock() {
        if (try_lock()) return;
        // From here on whoever unlocks must wake somebody; we cannot know that we are the last.
        while (state_.exchange(kAwaited, std::memory_order_acquire) != kFree)
            state_.wait(kAwaited, std::memory_order_relaxed);
    }
    void unlock() {
        // release, so that our writes are visible to whoever takes the lock next; seq_cst, because
        // notify_one() looks for sleepers, and must not do so before others can see the lock free.
        if (state_.exchange(kFree, std::memory_order_seq_cst) == kAwaited) state_.notify_one();
    }

private:
    static constexpr int kFree = 0;
    static constexpr int kHeld = 1;
    static constexpr int kAwaited = 2;  // Held, and somebody sleeps or is about to.
    std::atomic<int> state_{kFree};
};

}  // namespace feroce::process
