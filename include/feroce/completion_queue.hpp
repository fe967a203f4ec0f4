// CompletionQueue: where work of one loop completes. The loop polls it and calls the Operation of
// each completion. Many connections may share one; each reserves the entries that it can fill.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "feroce/error.hpp"
#include "feroce/loop.hpp"

namespace feroce::rdma {

// A completion queue as its loop sees it.
class PolledQueue final : public Source {
public:
    PolledQueue(Loop& loop, ibv_comp_channel* channel, ibv_cq* cq);
    ~PolledQueue();
    PolledQueue(const PolledQueue&) = delete;
    PolledQueue& operator=(const PolledQueue&) = delete;

    Loop& loop() const { return loop_; }
    ibv_cq* cq() const { return cq_; }
    int fd() const override { return channel_->fd; }
    bool poll() override;  // Calls the operations of what has completed.
    void arm() override;
    void take_events() override;
    bool reserve(std::uint32_t entries);
    void release(std::uint32_t entries) { reserved_ -= entries; }

private:
    // What is answered together is sent together: see Deferred. More at a time and two peers would
    // take turns, each idle while the other works through everything that is in flight.
    static constexpr std::size_t kPollMax = 16;

    Loop& loop_;
    ibv_comp_channel* channel_;
    ibv_cq* cq_;
    // Taken off the queue, and told up to `next_`. Members: an operation that polls (it blocks, or
    // ends a connection) finds the rest of its batch.
    std::array<ibv_wc, kPollMax> batch_;
    std::size_t next_ = 0;
    std::size_t count_ = 0;
    std::uint32_t reserved_ = 0;
    bool armed_ = false;    // Since events were last taken.
    bool calling_ = false;  // Operations of this queue, which must not end it.
};

class CompletionQueue {
public:
    // `vector` spreads the events of several queues over the processors, as far as a device can.
    static Result<CompletionQueue> create(Loop& loop, ibv_context* device, std::uint32_t entries,
                                          std::uint32_t vector = 0);

    ibv_cq* raw() const { return queue_->cq(); }
    PolledQueue& queue() const { return *queue_; }

private:
    explicit CompletionQueue(std::unique_ptr<PolledQueue> queue) : queue_(std::move(queue)) {}

    std::unique_ptr<PolledQueue> queue_;
};

}  // namespace feroce::rdma
