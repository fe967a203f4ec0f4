// ReceiveQueue: posted receives, first in first out. Serves one queue pair or, as a shared receive
// queue, many, possibly of different shards: hence the lock. Never allocates after construction.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/ring.hpp"
#include "base/spinlock.hpp"
#include "transport/work.hpp"

namespace feroce::transport {

// The largest scatter-gather list of any work request.
inline constexpr std::uint32_t kSgeMax = 32;

// A receive taken off the queue: a copy, so that the slot is free for the next post at once.
struct ReceiveWqe {
    std::uint64_t wr_id = 0;
    std::uint32_t sge_count = 0;
    std::uint32_t length = 0;  // Sum of the list.
    mem::Sge sges[kSgeMax];

    std::span<const mem::Sge> list() const { return {sges, sge_count}; }
};

class ReceiveQueue {
public:
    ReceiveQueue(PdId pd, std::uint32_t wr_max, std::uint32_t sge_max);

    PdId pd() const { return pd_; }
    std::uint32_t wr_max() const { return wr_max_; }
    std::uint32_t sge_max() const { return sge_max_; }

    Result<void> post(const ReceiveWr& wr);
    bool take(ReceiveWqe& out);  // False when empty. Sets limit_reached() on crossing the limit.
    std::uint32_t available();
    void clear();

    // SRQ limit: armed by a value > 0; fires once when fewer receives than that remain.
    void arm_limit(std::uint32_t limit);
    std::uint32_t limit();
    bool consume_limit_event();  // True once after the limit was crossed.

private:
    struct Slot {
        std::uint64_t wr_id = 0;
        std::uint32_t sge_count = 0;
        std::uint32_t length = 0;
        std::uint64_t sge_index = 0;  // First of its entries in sges_.
    };

    PdId pd_;
    std::uint32_t wr_max_;
    std::uint32_t sge_max_;
    Spinlock lock_;  // Guards everything below.
    Ring<Slot> slots_;
    std::vector<mem::Sge> sges_;  // sge_max_ for each slot.
    std::uint64_t posted_ = 0;
    std::uint32_t limit_ = 0;
    bool limit_event_ = false;
};

}  // namespace feroce::transport
