// RingBudget: how much memory the rings may have by which a process sends. A ring takes a little
// when it is made and the rest when it grows (packet_ring.hpp); what the budget refuses goes by
// UDP. Any thread.
#pragma once

#include <atomic>
#include <cstddef>

namespace feroce::port {

class RingBudget {
public:
    // Fifty rings that have grown, or one to each other member of the largest group and thirty that
    // have grown.
    static constexpr std::size_t kDefault = 64 << 20;

    explicit RingBudget(std::size_t limit) : limit_(limit) {}

    bool take(std::size_t bytes) {
        std::size_t used = used_.load(kRelaxed);
        do {
            if (bytes > limit_ - used) return false;
        } while (!used_.compare_exchange_weak(used, used + bytes, kRelaxed));
        return true;
    }
    void give(std::size_t bytes) { used_.fetch_sub(bytes, kRelaxed); }
    std::size_t used() const { return used_.load(kRelaxed); }

private:
    static constexpr std::memory_order kRelaxed = std::memory_order_relaxed;  // A number, no more.

    const std::size_t limit_;
    std::atomic<std::size_t> used_{0};  // Never above the limit.
};

}  // namespace feroce::port
