#include "device/completion_queue.hpp"

#include <algorithm>
#include <utility>

#include "base/ring_tools.hpp"

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

bool CompletionQueue::push(const transport::Completion& completion) {
    bool event = false;
    Entered entered = enter(completion, event);
    for (; entered == Entered::RingFull; entered = enter(completion, event)) grow();
    if (entered == Entered::Yes) {
        if (event && listener_ != nullptr) listener_->on_completion_event(*this);
        return true;
    }
    if (event && listener_ != nullptr) listener_->on_overflow(*this);
    return false;
}

// `event`: the listener is to be told, of the completion or of the first overflow.
CompletionQueue::Entered CompletionQueue::enter(const transport::Completion& completion,
                                                bool& event) {
    const std::lock_guard guard(lock_);
    if (ring_.size() >= capacity_) {
        event = !overflowed_;
        overflowed_ = true;
        return Entered::QueueFull;
    }
    if (ring_.full()) return Entered::RingFull;
    ring_.push(completion);
    note_size();
    event = arm_ == Arm::Next || (arm_ == Arm::Solicited && asks_for_event(completion));
    if (event) arm_ = Arm::None;
    return Entered::Yes;
}

// Doubling: rare, and over once the queue has its working size. Memory is taken and given back
// outside of the lock; two pushes may both bring a larger ring, and the second one's is not needed.
void CompletionQueue::grow() {
    std::size_t wanted = 0;
    {
        const std::lock_guard guard(lock_);
        wanted = std::min<std::size_t>(capacity_, 2 * ring_.capacity());
    }
    Ring<transport::Completion> larger(wanted);
    const std::lock_guard guard(lock_);
    if (larger.capacity() <= ring_.capacity()) return;
    for (; !ring_.empty(); ring_.pop()) larger.push(ring_.front());
    std::swap(ring_, larger);
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
