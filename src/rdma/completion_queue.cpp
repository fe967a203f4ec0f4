#include "feroce/completion_queue.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/assert.hpp"
#include "feroce/operation.hpp"
#include "rdma/failure.hpp"

namespace feroce::rdma {

PolledQueue::PolledQueue(Loop& loop, ibv_comp_channel* channel, ibv_cq* cq)
    : loop_(loop), channel_(channel), cq_(cq) {
    loop_.attach(*this);
}

PolledQueue::~PolledQueue() {
    ASSERT(!calling_);
    loop_.detach(*this);
    ::ibv_destroy_cq(cq_);
    ::ibv_destroy_comp_channel(channel_);
}

bool PolledQueue::poll() {
    if (next_ == count_) {
        const int count = ::ibv_poll_cq(cq_, batch_.size(), batch_.data());
        if (count <= 0) return false;
        next_ = 0;
        count_ = static_cast<std::size_t>(count);
    }
    const bool nested = std::exchange(calling_, true);
    while (next_ < count_) {
        const ibv_wc wc =
            batch_[next_++];  // A copy: a poll in the operation fills the batch again.
        auto* operation = reinterpret_cast<Operation*>(wc.wr_id);
        if (operation != nullptr) loop_.contain([&] { operation->complete(*operation, wc); });
    }
    calling_ = nested;
    return true;
}

void PolledQueue::arm() {
    // Armed before, and then polled without a wait: what came of it must not pile up.
    if (armed_) take_events();
    armed_ = true;
    ::ibv_req_notify_cq(cq_, 0);
}

void PolledQueue::take_events() {
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    unsigned taken = 0;
    while (::ibv_get_cq_event(channel_, &cq, &context) == 0) ++taken;
    if (taken > 0) ::ibv_ack_cq_events(cq_, taken);
    armed_ = false;
}

bool PolledQueue::reserve(std::uint32_t entries) {
    if (entries > static_cast<std::uint32_t>(cq_->cqe) - reserved_) return false;
    reserved_ += entries;
    return true;
}

Result<CompletionQueue> CompletionQueue::create(Loop& loop, ibv_context* device,
                                                std::uint32_t entries, std::uint32_t vector) {
    ibv_comp_channel* channel = ::ibv_create_comp_channel(device);
    if (channel == nullptr) return failure("no completion channel could be made");
    ::fcntl(channel->fd, F_SETFL, ::fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
    const int vectors = std::max(device->num_comp_vectors, 1);
    ibv_cq* cq = ::ibv_create_cq(device, static_cast<int>(entries), nullptr, channel,
                                 static_cast<int>(vector) % vectors);
    if (cq == nullptr) {
        Error error = failure("no completion queue of that size could be made");
        ::ibv_destroy_comp_channel(channel);
        return error;
    }
    return CompletionQueue(std::make_unique<PolledQueue>(loop, channel, cq));
}

}  // namespace feroce::rdma
