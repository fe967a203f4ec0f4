#include "device/completion_queue.hpp"

#include <algorithm>
#include <utility>

#include "base/ring_tools.hpp"

namespace feroce::device {

namespace {

bool asks_for_event(const transport::Completion& c) {
    return c.solicited || c.status != transport::WcStatus::Success;
}

}  // namespace

CompletionQueue::CompletionQueue(std::uint32_t capacity, CompletionListener* listener, void* owner)
    : ring_(capacity), capacity_(capacity), room_(capacity), listener_(listener), owner_(owner) {
    ASSERT(capacity > 0);
}

bool CompletionQueue::push(const transport::Completion& completion) {
    const transport::Completion* const run[] = {&completion};
    return push_run(run) == 1;
}

std::size_t CompletionQueue::push_run(std::span<const transport::Completion* const> run) {
    News news;
    std::size_t entered = 0;
    {
        const std::lock_guard guard(lock_);
        while (entered < run.size() && enter(*run[entered], news)) ++entered;
        note_size();
    }
    tell(news);
    return entered;
}

// Under the lock.
bool CompletionQueue::enter(const transport::Completion& completion, News& news) {
    if (ring_.size() >= room_) [[unlikely]] {
        news.overflow = !overflowed_;
        overflowed_ = true;
        return false;
    }
    ring_.push(completion);
    if (arm_ == Arm::Next || (arm_ == Arm::Solicited && asks_for_event(completion))) {
        news.completion = true;
        arm_ = Arm::None;
    }
    return true;
}

void CompletionQueue::tell(const News& news) {
    if (listener_ == nullptr) return;
    if (news.completion) listener_->on_completion_event(*this);
    if (news.overflow) listener_->on_overflow(*this);
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

void CompletionQueue::announce() {
    News news;
    {
        const std::lock_guard guard(lock_);
        news.completion = std::exchange(arm_, Arm::None) != Arm::None;
    }
    tell(news);
}

void CompletionQueue::overrun() {
    News news;
    {
        const std::lock_guard guard(lock_);
        room_ = 0;
        news.overflow = !std::exchange(overflowed_, true);
    }
    tell(news);
}

void CompletionQueue::purge(Qpn qpn) {
    const std::lock_guard guard(lock_);
    remove_if(ring_, [qpn](const transport::Completion& c) { return c.qpn == qpn; });
    note_size();
}

bool CompletionQueue::resize(std::uint32_t capacity) {
    if (capacity == 0) return false;
    // Memory is taken and given back outside of the lock.
    CompletionRing next(capacity);
    const std::lock_guard guard(lock_);
    if (ring_.size() > capacity) return false;
    for (; !ring_.empty(); ring_.pop()) next.push(ring_.front());
    ring_ = std::move(next);
    if (room_ != 0) room_ = capacity;
    capacity_ = capacity;
    return true;
}

void CompletionQueue::close() {
    CompletionRing none;
    const std::lock_guard guard(lock_);
    ring_ = std::move(none);
    capacity_ = 0;
    room_ = 0;
    overflowed_ = true;  // Nobody is to be told of it.
    note_size();
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
