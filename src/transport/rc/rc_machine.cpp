#include "transport/rc/rc_machine.hpp"

namespace feroce::transport::rc {

namespace {

wire::Service service_of(QpType type) {
    return type == QpType::Rc ? wire::Service::Rc : wire::Service::Xrc;
}

bool is_response(wire::Verb verb) {
    return verb == wire::Verb::ReadResponse || verb == wire::Verb::Ack ||
           verb == wire::Verb::AtomicAck;
}

}  // namespace

RcMachine::RcMachine(QueuePair& qp)
    : qp_(qp),
      service_(service_of(qp.type())),
      requester_(qp, service_),
      responder_(qp, service_) {}

void RcMachine::on_packet(Instant now, const wire::Packet& packet, const Arrival& arrival) {
    Counters& counters = qp_.services().counters;
    if (packet.info->service != service_) return counters.drop(DropReason::WrongQpType);
    const bool response = is_response(packet.info->verb);
    const QpState state = qp_.state();
    if (state == QpState::Err && !response) return responder_.repeat_last_word(packet);
    const bool sends = state == QpState::Rts || state == QpState::Sqd;
    if (response) {
        if (!sends || qp_.type() == QpType::XrcTarget)
            return counters.drop(DropReason::WrongQpState);
        requester_.on_response(now, packet, arrival.packets);
        return tell_when_drained();
    }
    if ((!sends && state != QpState::Rtr) || qp_.type() == QpType::XrcInitiator)
        return counters.drop(DropReason::WrongQpState);
    responder_.on_request(now, packet, arrival.packets);
}

bool RcMachine::expects(const wire::Packet& packet) const {
    const Psn psn = packet.bth.psn;
    return is_response(packet.info->verb) ? requester_.expects(psn) : responder_.expects(psn);
}

void RcMachine::pump(Instant now, std::uint32_t packets_max) {
    // Answers first: they free the peer's window. A bare acknowledgement comes last, because it is
    // short: behind a request it rides in the same segmented send.
    if (requester_.has_landed()) [[unlikely]]
        requester_.settle_far(now);
    responder_.pump(now, packets_max);
    requester_.pump(now, packets_max);
    responder_.pump_last(now);
    if (responder_.owes_list()) [[unlikely]]
        responder_.send_lists();
    tell_when_drained();
}

bool RcMachine::wants_to_send(Instant now) const {
    return responder_.wants_to_send() || requester_.wants_to_send(now) || requester_.has_landed();
}

bool RcMachine::owes_only_ack(Instant now) const {
    return responder_.owes_only_ack() && !requester_.wants_to_send(now);
}

void RcMachine::on_timer(Instant now) {
    requester_.on_timer(now);
}

// Not in SQD: nothing leaves by itself there. An XRC target has nothing to ask with.
bool RcMachine::ask_peer() {
    return qp_.type() != QpType::XrcTarget && qp_.state() == QpState::Rts && requester_.ask_peer();
}

Progress RcMachine::progress() const {
    Progress out;
    requester_.report(out);
    responder_.report(out);
    out.draining = qp_.state() == QpState::Sqd && !requester_.idle();
    return out;
}

// Of both halves, whatever the step is: an attribute that is not set is the default, or the last.
void RcMachine::reserve() {
    requester_.reserve();
    responder_.reserve();
}

void RcMachine::on_modify(Instant now, QpState from) {
    const QpState to = qp_.state();
    if (to == QpState::Reset || to == QpState::Err) {
        requester_.stop();
        responder_.stop(now);
        drain_pending_ = false;
        return;
    }
    if (from == QpState::Init && to == QpState::Rtr) responder_.start();
    if (from == QpState::Rtr && to == QpState::Rts) requester_.start();
    if (from == QpState::Rts && to == QpState::Sqd) {
        drain_pending_ = qp_.attributes().drain_notify;
        tell_when_drained();
    }
    if (to == QpState::Rts) drain_pending_ = false;
    requester_.on_attributes(now);
}

const char* RcMachine::check_invariants() const {
    if (drain_pending_ && qp_.state() != QpState::Sqd) return "waits for a drain outside of SQD";
    if (const char* broken = requester_.check_invariants()) return broken;
    return responder_.check_invariants();
}

void RcMachine::tell_when_drained() {
    if (!drain_pending_ || qp_.state() != QpState::Sqd || !requester_.idle()) return;
    drain_pending_ = false;
    qp_.tell_drained();
}

}  // namespace feroce::transport::rc
