#include "sim/workload/connection.hpp"

namespace feroce::sim {

using transport::QpState;
using transport::QpType;

Connection::Connection(Context& context, Station& a, Station& b, const ConnectionPlan& plan)
    : context_(context), plan_(plan), a_(context, a, plan_), b_(context, b, plan_) {
    a_.set_peer(&b_);
    b_.set_peer(&a_);
}

Psn Connection::draw_psn() {
    // Often shortly before the wrap.
    const std::uint64_t back = context_.random.below(40);
    return context_.random.chance(0.3) ? Psn(static_cast<std::uint32_t>(0x100'0000 - back))
                                       : Psn(static_cast<std::uint32_t>(context_.random.next()));
}

void Connection::open() {
    a_.open();
    b_.open();
    connect({a_.station().node(), *a_.qp(), draw_psn()},
            {b_.station().node(), *b_.qp(), draw_psn()}, plan_.options);
    opened_ = true;
    broken_ = undermined_ = false;
    a_.station().node().wake();
    b_.station().node().wake();
}

void Connection::close(const Drain& drain) {
    for (Endpoint* side : {&a_, &b_}) {
        if (side->is_open() && side->qp()->state() != QpState::Err)
            move_to_error(side->station().node(), *side->qp());
    }
    drain();
    a_.fail_if_busy();
    b_.fail_if_busy();
    a_.destroy();
    b_.destroy();
    a_.settle();
    b_.settle();
    opened_ = false;
}

void Connection::destroy_side(std::size_t i) {
    side(i).destroy();
    broken_ = true;
}

bool Connection::deregister(std::size_t i, Endpoint::Victim victim) {
    if (!side(i).is_open() || !side(i).deregister(victim)) return false;
    undermined_ = true;
    return true;
}

Allowance Connection::allowance(std::size_t i) {
    Endpoint& peer = side(1 - i);
    const bool peer_gone = !peer.is_open() || peer.qp()->state() == QpState::Err;
    Allowance allowance;
    allowance.retries = (exposed_ && context_.swarm.retries_may_run_out(plan_)) || peer_gone;
    allowance.rnr = exposed_ && plan_.options.rnr_retry != 7;
    allowance.access = undermined_;
    allowance.flush = side(i).qp()->state() == QpState::Err;
    return allowance;
}

bool Connection::idle() {
    for (std::size_t i = 0; i < 2; ++i) {
        Endpoint& end = side(i);
        if (!end.is_open() || !end.idle()) return false;
        if (plan_.type != QpType::Rc) continue;
        if (context_.checks.messages.missing({end.node(), end.qp()->qpn().raw, true}) > 0)
            return false;
    }
    return true;
}

}  // namespace feroce::sim
