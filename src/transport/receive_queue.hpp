// ReceiveQueue: posted receives, first in first out. Serves one queue pair or, as a shared receive
// queue, many, possibly of different shards: hence the lock. Never allocates after construction.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/ring.hpp"
#include "base/spinlock.hpp"
#include "transport/work.hpp"

namespace feroce::transport {

// A receive taken off the queue: a copy, so that the slot is free for the next post at once. Lists
// of more than one entry, which few programs use, are kept apart.
class ReceiveWqe {
public:
    explicit ReceiveWqe(std::uint32_t sge_max)
        : sge_max_(sge_max), many_(sge_max > 1 ? new mem::Sge[sge_max] : nullptr) {}

    std::span<const mem::Sge> list() const {
        return {sge_count_ > 1 ? many_.get() : &first_, sge_count_};
    }
    void set_list(std::span<const mem::Sge> sges);

    std::uint64_t wr_id = 0;
    std::uint32_t length = 0;  // Sum of the list.

private:
    std::uint32_t sge_count_ = 0;
    mem::Sge first_;
    std::uint32_t sge_max_;
    std::unique_ptr<mem::Sge[]> many_;  // sge_max_ entries if that is more than one.
};

class ReceiveQueue {
public:
    // Of one queue pair: its shard's lock guards the queue, which takes none of its own.
    enum class Users : std::uint8_t { Many, OneQueuePair };
    ReceiveQueue(PdId pd, std::uint32_t wr_max, std::uint32_t sge_max, Users users = Users::Many);

    PdId pd() const { return pd_; }
    std::uint32_t wr_max() const { return wr_max_; }
    std::uint32_t sge_max() const { return sge_max_; }

    Result<void> post(const ReceiveWr& wr);
    // False when empty. Sets limit_reached() on crossing the limit. `out` has room for sge_max().
    bool take(ReceiveWqe& out);
    std::optional<std::uint64_t> discard();  // The oldest one's wr_id; nothing when empty.
    // Without the lock: a queue pair's own queue changes under its shard's, and a shared one's size
    // is a hint at any time.
    std::uint32_t available() const { return available_.load(std::memory_order_relaxed); }
    void clear();

    // SRQ limit: armed by a value > 0; fires once when fewer receives than that remain. True if
    // they are fewer already: it has fired, and the caller tells of it.
    [[nodiscard]] bool arm_limit(std::uint32_t limit);
    std::uint32_t limit();
    bool consume_limit_event();  // True once after the limit was crossed.

private:
    struct Slot {
        std::uint64_t wr_id = 0;
        std::uint32_t sge_count = 0;
        std::uint32_t length = 0;
        mem::Sge first_sge;  // The whole list if it has one entry.
    };

    std::unique_lock<Spinlock> hold() {
        return users_ == Users::Many ? std::unique_lock(lock_) : std::unique_lock<Spinlock>();
    }
    void note_size() {
        available_.store(static_cast<std::uint32_t>(slots_.size()), std::memory_order_relaxed);
    }
    mem::Sge* list_of(const Slot& slot) { return &sges_[slots_.index_of(slot) * sge_max_]; }

    PdId pd_;
    std::uint32_t wr_max_;
    std::uint32_t sge_max_;
    Users users_;
    std::atomic<std::uint32_t> available_{0};  // Of slots_; written under the lock.
    // Whoever crosses the limit looks for it, so relaxed.
    std::atomic<bool> limit_event_{false};
    Spinlock lock_;  // Guards everything below.
    std::uint32_t limit_ = 0;
    Ring<Slot> slots_;
    std::vector<mem::Sge> sges_;  // sge_max_ for each slot; none if sge_max_ is 1.
};

}  // namespace feroce::transport
