#include "transport/held_completions.hpp"

#include "transport/queue_pair.hpp"

namespace feroce::transport {

namespace {

// Completions of one look at the network, as a rule.
constexpr std::size_t kUsual = 256;

}  // namespace

HeldCompletions::HeldCompletions() {
    held_.reserve(kUsual);
}

void HeldCompletions::hold(QueuePair& qp, PacketNumber number, CompletionSink& sink,
                           const Completion& completion) {
    held_.push_back({&qp, number, &sink, completion});
}

void HeldCompletions::push(QueuePair& qp, CompletionSink& sink, const Completion& completion) {
    if (held_.empty()) return qp.give(sink, completion);
    held_.push_back({&qp, PacketNumber{}, &sink, completion});
}

QueuePair* HeldCompletions::release() {
    std::size_t kept = 0, next = 0;
    QueuePair* lost = nullptr;
    while (next < held_.size() && lost == nullptr) {
        const Held& held = held_[next++];
        if (held.qp->state() == QpState::Err || held.qp->machine().acknowledged(held.number)) {
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

void HeldCompletions::drop(const QueuePair& qp) {
    std::erase_if(held_, [&qp](const Held& held) { return held.qp == &qp; });
}

void HeldCompletions::drop(const CompletionSink& sink) {
    std::erase_if(held_, [&sink](const Held& held) { return held.sink == &sink; });
}

}  // namespace feroce::transport
