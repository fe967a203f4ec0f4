#include "device/completion_queue.hpp"

#include <algorithm>

#include "device/ring_tools.hpp"

namespace feroce::device {

namespace {

constexpr std::uint32_t kInitialSlots = 64;

bool asks_for_event(const transport::Completion& c) {
    return c.solicited || c.status != transport::WcStatus::Success;
}

}  // namespace

CompletionQueue::CompletionQueue(std::uint32_t capacity, CompletionListener* listener, void* owner)
    : ring_(std::min(capacity, kInitialSlots)),
      capacity_(capacity),
      listener_(listener),
      owner_(owner) {
    ASSERT(capacity > 0);
}

void CompletionQueue::push(const transport::Completion& completion) {
    bool event = false;
    bool overflow = false;
    {
        const std::lock_guard guard(lock_);
        if (ring_.size() >= capacity_) {
            overflow = !overflowed_;
            overflowed_ = true;
        } else {
            // Doubling under the lock: rare, and over once the queue has its working size.
            if (ring_.full()) regrow(ring_, std::min<std::size_t>(capacity_, 2 * ring_.capacity()));
            ring_.push(completion);
            note_size();
            event = arm_ == Arm::Next || (arm_ == Arm::Solicited && asks_for_event(completion));
            if (event) arm_ = Arm::None;
        }
    }
    if (listener_ == nullptr) return;
    if (event) listener_->on_completion_event(*this);
    if (overflow) listener_->on_overflow(*this);
}

std::uint32_t CompletionQueue::poll(std::span<transport::Completion> out) {
    auto next = out.begin();
    return poll(static_cast<std::uint32_t>(out.size()),
                [&next](const transport::Completion& completion) { *next++ = completion; });
}

void CompletionQueue::arm(Arm arm) {
    const std::lock_guard guard(lock_);
    arm_ = std::max(arm_, arm);
}

void CompletionQueue::purge(Qpn qpn) {
    const std::lock_guard guard(lock_);
    remove_if(ring_, [qpn](const transport::Completion& c) { return c.qpn == qpn; });
    note_size();
}

bool CompletionQueue::resize(std::uint32_t capacity) {
    const std::lock_guard guard(lock_);
    if (capacity == 0 || ring_.size() > capacity) return false;
    capacity_ = capacity;
    return true;
}

std::uint32_t CompletionQueue::capacity() const {
    const std::lock_guard guard(lock_);
    return capacity_;
}

std::uint32_t CompletionQueue::overflowed_at() const {
    const std::lock_guard guard(lock_);
    return overflowed_ ? capacity_ : 0;
}

}  // namespace feroce::device
