#include "transport/held_completions.hpp"

#include <algorithm>
#include <array>
#include <span>

#include "base/assert.hpp"
#include "transport/queue_pair.hpp"

namespace feroce::transport {

namespace {

// As many as pollers take at once (verbs/cq.cpp).
constexpr std::size_t kRunMax = 16;

}  // namespace

HeldCompletions::HeldCompletions() {
    held_.reserve(kPlaces);
}

bool HeldCompletions::full_for(const QueuePair& qp) const {
    return held_.size() == kPlaces || qp.completions_held() >= kPlacesOfOne;
}

void HeldCompletions::put(const Held& held) {
    ASSERT(held_.size() < kPlaces);
    held_.push_back(held);
    held.qp->set_completions_held(held.qp->completions_held() + 1);
}

void HeldCompletions::hold(QueuePair& qp, PacketNumber number, CompletionSink& sink,
                           const Completion& completion) {
    put({&qp, number, &sink, completion});
}

void HeldCompletions::push(QueuePair& qp, CompletionSink& sink, const Completion& completion) {
    if (held_.size() == kPlaces && qp.completions_held() > 0) give_all(qp);
    const bool waits = qp.completions_held() > 0 || qp.delivers();
    if (!waits || held_.size() == kPlaces) return qp.give(sink, completion);
    put({&qp, PacketNumber{}, &sink, completion});
}

void HeldCompletions::give_all(QueuePair& qp) {
    if (qp.completions_held() == 0) return;
    qp.services().transmit.flush();
    std::erase_if(held_, [&qp](const Held& held) {
        if (held.qp != &qp) return false;
        qp.give(*held.sink, held.completion);
        return true;
    });
    qp.set_completions_held(0);
    waiting_ = 0;
}

bool HeldCompletions::waits_for_copies(const Held& held) {
    return held.qp->state() == QpState::Err && held.qp->delivers();
}

bool HeldCompletions::may_be_seen(const Held& held) {
    if (held.qp->state() == QpState::Err) return !waits_for_copies(held);
    return held.qp->machine().acknowledged(held.number);
}

// Those from `first` on that may be seen and are for one queue: that queue's lock is taken once for
// all of them. How many are held no more.
std::size_t HeldCompletions::give_run(std::size_t first, QueuePair*& lost) {
    std::array<const Completion*, kRunMax> run;
    CompletionSink& sink = *held_[first].sink;
    std::size_t count = 0;
    for (; count < kRunMax && first + count < held_.size(); ++count) {
        const Held& held = held_[first + count];
        if (held.sink != &sink || !may_be_seen(held)) break;
        run[count] = &held.completion;
    }
    if (count == 0) return 0;
    const std::size_t entered = sink.push_run(std::span(run).first(count));
    if (entered < count) [[unlikely]] {
        lost = held_[first + entered].qp;
        lost->lose_completion();
        count = entered + 1;
    }
    for (std::size_t i = first; i < first + count; ++i)
        held_[i].qp->set_completions_held(held_[i].qp->completions_held() - 1);
    return count;
}

QueuePair* HeldCompletions::release() {
    std::size_t kept = 0, next = 0;
    QueuePair* lost = nullptr;
    while (next < held_.size() && lost == nullptr) {
        const std::size_t given = give_run(next, lost);
        next += given;
        if (given > 0) continue;
        if (kept != next) held_[kept] = held_[next];
        ++kept, ++next;
    }
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(kept),
                held_.begin() + static_cast<std::ptrdiff_t>(next));
    waiting_ =
        static_cast<std::size_t>(std::count_if(held_.begin(), held_.end(), waits_for_copies));
    return lost;
}

void HeldCompletions::drop(QueuePair& qp) {
    std::erase_if(held_, [&qp](const Held& held) { return held.qp == &qp; });
    qp.set_completions_held(0);
    waiting_ = 0;
}

void HeldCompletions::drop(const CompletionSink& sink) {
    std::erase_if(held_, [&sink](const Held& held) {
        if (held.sink != &sink) return false;
        held.qp->set_completions_held(held.qp->completions_held() - 1);
        return true;
    });
    waiting_ = 0;
}

}  // namespace feroce::transport
