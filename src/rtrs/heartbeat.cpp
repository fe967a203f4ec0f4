// See heartbeat.hpp.
#include "rtrs/heartbeat.hpp"

namespace feroce::rtrs {

Heartbeat::Action Heartbeat::on_timer(Instant now) {
    if (now < due_) return Action::Nothing;
    // We ourselves were held up: what the peer sent meanwhile may still wait to be read.
    const bool late = now - due_ > options_.interval / 2;
    due_ = now + options_.interval;
    if (missed_ > options_.misses) return late ? Action::Nothing : Action::Dead;
    if (missed_ != 0) {
        if (!late) ++missed_;
        return Action::Nothing;
    }
    missed_ = 1;
    if (unanswered_ && peer_ == Peer::Ours) return Action::Probe;
    sent_ = now;
    unanswered_ = true;
    return Action::Send;
}

void Heartbeat::on_ack(Instant now) {
    on_traffic();
    if (!unanswered_) return;
    unanswered_ = false;
    latency_ = now - sent_;
}

}  // namespace feroce::rtrs
