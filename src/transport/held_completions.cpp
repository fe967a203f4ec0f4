#include "transport/held_completions.hpp"

#include "base/assert.hpp"
#include "transport/queue_pair.hpp"

namespace feroce::transport {

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
    if (qp.completions_held() == 0) return qp.give(sink, completion);
    put({&qp, PacketNumber{}, &sink, completion});
}

void HeldCompletions::give_all(QueuePair& qp) {
    qp.services().transmit.flush();
    std::erase_if(held_, [&qp](const Held& held) {
        if (held.qp != &qp) return false;
        qp.give(*held.sink, held.completion);
        return true;
    });
    qp.set_completions_held(0);
}

QueuePair* HeldCompletions::release() {
    std::size_t kept = 0, next = 0;
    QueuePair* lost = nullptr;
    while (next < held_.size() && lost == nullptr) {
        const Held& held = held_[next++];
        if (held.qp->state() == QpState::Err || held.qp->machine().acknowledged(held.number)) {
            held.qp->set_completions_held(held.qp->completions_held() - 1);
            held.qp->give(*held.sink, held.completion);
            if (held.qp->lost_completion()) lost = held.qp;
        } else if (++kept != next) {
            held_[kept - 1] = held;
        }
    }
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(kept),
                held_.begin() + static_cast<std::ptrdiff_t>(next));
    return lost;
}

void HeldCompletions::drop(QueuePair& qp) {
    std::erase_if(held_, [&qp](const Held& held) { return held.qp == &qp; });
    qp.set_completions_held(0);
}

void HeldCompletions::drop(const CompletionSink& sink) {
    std::erase_if(held_, [&sink](const Held& held) {
        if (held.sink != &sink) return false;
        held.qp->set_completions_held(held.qp->completions_held() - 1);
        return true;
    });
}

}  // namespace feroce::transport
