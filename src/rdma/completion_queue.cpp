#include "feroce/completion_queue.hpp"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/assert.hpp"
#include "feroce/operation.hpp"
#include "rdma/failure.hpp"

namespace feroce::rdma {

namespace {
// What is answered together is sent together: see Deferred. More at a time and two peers would take
// turns, each idle while the other works through everything that is under way.
constexpr std::size_t kPollMax = 16;
}  // namespace

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
    std::array<ibv_wc, kPollMax> completions;
    const int count = ::ibv_poll_cq(cq_, completions.size(), completions.data());
    if (count <= 0) return false;
    const bool nested = std::exchange(calling_, true);
    for (int i = 0; i < count; ++i) {
        const ibv_wc& wc = completions[static_cast<std::size_t>(i)];
        auto* operation = reinterpret_cast<Operation*>(wc.wr_id);
        if (operation != nullptr) operation->complete(*operation, wc);
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
