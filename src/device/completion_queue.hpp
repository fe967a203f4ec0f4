// CompletionQueue: completions from any shard, polled by any application thread. Bounded; an
// overflow is an error of the queue and of each queue pair whose completion it could not hold.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>

#include "base/ids.hpp"
#include "base/spinlock.hpp"
#include "device/completion_ring.hpp"
#include "transport/work.hpp"

namespace feroce::device {

class CompletionQueue;

// Told, outside the queue's lock, when an armed queue has something to say or has overflowed.
class CompletionListener {
public:
    virtual ~CompletionListener() = default;
    virtual void on_completion_event(CompletionQueue& cq) = 0;
    virtual void on_overflow(CompletionQueue& cq) = 0;
};

class CompletionQueue final : public transport::CompletionSink {
public:
    CompletionQueue(std::uint32_t capacity, CompletionListener* listener, void* owner);

    bool push(const transport::Completion& completion) override;
    std::size_t push_run(std::span<const transport::Completion* const> run) override;
    std::uint32_t poll(std::span<transport::Completion> out);
    // Calls take(completion) for up to `wanted` of them, under the lock; returns how many.
    template <class Take>
    std::uint32_t poll(std::uint32_t wanted, Take take) {
        const std::lock_guard guard(lock_);
        const auto count = std::min(wanted, static_cast<std::uint32_t>(ring_.size()));
        for (std::uint32_t i = 0; i < count; ++i) {
            take(ring_.front());
            ring_.pop();
        }
        note_size();
        return count;
    }
    // Without the lock, for pollers that spin: acquire, so that what a completion announces is
    // visible to whoever sees it here.
    bool empty() const { return size() == 0; }
    std::uint32_t size() const { return size_.load(std::memory_order_acquire); }

    enum class Arm : std::uint8_t { None, Solicited, Next };  // Each wider than the last.
    // One event for the next (solicited) completion; completions already there do not count.
    // A completion with an error counts as solicited. Of two wishes not yet met the wider one
    // stands.
    void arm(Arm arm);
    // For injected faults. One event now if it is armed, as of a completion that comes late; and
    // the state after an overrun: all completions from here on are lost, whatever room there is.
    void announce();
    void overrun();
    void purge(Qpn qpn) override;         // Drops completions of a queue pair that went to RESET.
    bool resize(std::uint32_t capacity);  // False if more completions are held than would fit.
    void close();  // Holds nothing from here on, gives back its memory and tells nobody.
    std::uint32_t capacity() const;
    bool overflowed() const { return overflowed_at() != 0; }
    std::uint32_t overflowed_at() const override;
    void* owner() const { return owner_; }

    // Of which shards completions may come, a bit for each: a poller has to drive no others. A bit
    // stays when the queue pair that brought it is gone.
    static constexpr std::uint32_t kAllShards = ~std::uint32_t{0};
    void add_shards(std::uint32_t bits) { shards_.fetch_or(bits, std::memory_order_release); }
    std::uint32_t shards() const { return shards_.load(std::memory_order_acquire); }

private:
    struct News {  // For the listener.
        bool completion = false;
        bool overflow = false;  // The first.
    };
    bool enter(const transport::Completion& completion, News& news);  // False if it is full.
    void tell(const News& news);
    void note_size() {
        size_.store(static_cast<std::uint32_t>(ring_.size()), std::memory_order_release);
    }

    mutable Spinlock lock_;  // Guards everything below but owner_, listener_ and shards_.
    CompletionRing ring_;
    std::uint32_t capacity_;
    std::uint32_t room_;                  // The capacity; 0 after overrun().
    std::atomic<std::uint32_t> size_{0};  // Of ring_; written under the lock.
    Arm arm_ = Arm::None;
    bool overflowed_ = false;
    CompletionListener* listener_;
    void* owner_;
    std::atomic<std::uint32_t> shards_{0};
};

}  // namespace feroce::device
