// Spinlock: guards the few words that several shards share (a completion queue, a shared receive
// queue). Held for tens of nanoseconds, never across a call out of the object it guards.
#pragma once

#include <atomic>

namespace feroce {

class Spinlock {
public:
    void lock() {
        // acquire: what the last holder wrote is visible before we touch the guarded words.
        while (held_.exchange(true, std::memory_order_acquire)) {
            while (held_.load(std::memory_order_relaxed)) relax();
        }
    }
    bool try_lock() { return !held_.exchange(true, std::memory_order_acquire); }
    // release: our writes are visible to whoever takes the lock next.
    void unlock() { held_.store(false, std::memory_order_release); }

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
