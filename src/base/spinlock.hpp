// Spinlock: guards the few words that several shards share (a completion queue, a shared receive
// queue). Held for tens of nanoseconds, never across a call out of the object it guards.
#pragma once

#include <atomic>

#include "base/held_locks.hpp"

namespace feroce {

class Spinlock {
public:
    void lock() {
        // acquire: what the last holder wrote is visible before we touch the guarded words.
        while (held_.exchange(true, std::memory_order_acquire)) {
            while (held_.load(std::memory_order_relaxed)) relax();
        }
        held_locks::taken();
    }
    bool try_lock() {
        if (held_.exchange(true, std::memory_order_acquire)) return false;
        held_locks::taken();
        return true;
    }
    // release: our writes are visible to the next thread that takes the lock.
    void unlock() {
        held_locks::released();
        held_.store(false, std::memory_order_release);
    }

private:
    static void relax() {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        asm volatile("yield");
#endif
    }
    std::atomic<bool> held_{false};
};

}  // namespace feroce
