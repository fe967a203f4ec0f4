#include "sim/workload/connection.hpp"

#include <string>
#include <utility>

namespace feroce::sim {

using transport::QpState;
using transport::QpType;

namespace {

// From the oldest packet of the last life that may still be on its way to the first of the next. A
// quarter of all PSNs, and up to a sixteenth more: what was in flight (see Scenario::build()) lies
// behind the first then, by less than half of all.
constexpr std::uint32_t kFar = Psn::kCount / 4;
constexpr std::uint32_t kFarSpread = Psn::kCount / 16;

QpType type_of_second(const ConnectionPlan& plan) {
    return plan.type == QpType::XrcInitiator ? QpType::XrcTarget : plan.type;
}

// By more than an acknowledgement.
bool is_answered(transport::SendOp op) {
    return op == transport::SendOp::Read || op == transport::SendOp::CompareSwap ||
           op == transport::SendOp::FetchAdd;
}

}  // namespace

Connection::Connection(Context& context, Station& a, Station& b, const ConnectionPlan& plan)
    : context_(context),
      plan_(plan),
      a_(context, a, plan_, plan.type),
      b_(context, b, plan_, type_of_second(plan)) {
    a_.set_peer(&b_);
    b_.set_peer(&a_);
}

Psn Connection::draw_psn() {
    // Often shortly before the wrap.
    const std::uint64_t back = context_.random.below(40);
    return context_.random.chance(0.3) ? Psn(static_cast<std::uint32_t>(Psn::kCount - back))
                                       : Psn(static_cast<std::uint32_t>(context_.random.next()));
}

void Connection::open() {
    a_.open();
    b_.open();
    std::array<Psn, 2> first;
    for (std::size_t i = 0; i < 2; ++i)
        first[i] = last_psns_[i]
                       ? *last_psns_[i] +
                             (kFar + static_cast<std::uint32_t>(context_.random.below(kFarSpread)))
                       : draw_psn();
    last_psns_ = {};
    connect({a_.station().node(), *a_.qp(), first[0]}, {b_.station().node(), *b_.qp(), first[1]},
            plan_.options);
    opened_ = true;
    depth_ = plan_.options.read_atomic_max;
    broken_ = undermined_ = draining_ = false;
    stops_ = {};
    a_.station().node().wake();
    b_.station().node().wake();
}

void Connection::fail(Endpoint& side) {
    if (!side.is_open()) return;
    Node& node = side.station().node();
    if (side.qp()->state() != QpState::Err) move_to(node, *side.qp(), QpState::Err);
    node.end_copies(*side.qp());
}

void Connection::end(const Drain& drain) {
    fail(a_);
    fail(b_);
    drain();
    a_.fail_if_busy();
    b_.fail_if_busy();
}

void Connection::close(const Drain& drain) {
    end(drain);
    a_.destroy();
    b_.destroy();
    a_.settle();
    b_.settle();
    last_psns_ = {};
    opened_ = false;
}

void Connection::note_psns() {
    for (std::size_t i = 0; i < 2; ++i)
        if (side(i).is_open()) last_psns_[i] = side(i).qp()->machine().progress().unacknowledged;
}

void Connection::reset(const Drain& drain) {
    note_psns();
    // Not always in good order, but for those of a shared queue: see destroy_side().
    const bool shared = plan_.shared_receives || plan_.type == QpType::XrcInitiator;
    if (shared || context_.random.chance(0.5)) end(drain);
    a_.reset();
    b_.reset();
    a_.settle();
    b_.settle();
    opened_ = false;
}

bool Connection::drain() {
    if (!opened_ || needs_repair() || draining_ || plan_.type != QpType::Rc) return false;
    for (Endpoint* side : {&a_, &b_})
        if (!side->is_open() || side->qp()->state() != QpState::Rts) return false;
    draining_ = true;
    stops_ = {};
    for (Endpoint* side : {&a_, &b_}) move_to(side->station().node(), *side->qp(), QpState::Sqd);
    return true;
}

bool Connection::note_drained(const transport::QueuePair& qp) {
    if (!draining_) return false;
    for (std::size_t i = 0; i < 2; ++i)
        if (side(i).qp() == &qp) stops_[i] = side(i).qp()->machine().progress().next;
    return stops_[0] && stops_[1];
}

void Connection::resume() {
    if (!opened_ || !draining_ || !stops_[0] || !stops_[1]) return;
    draining_ = false;
    for (std::size_t i = 0; i < 2; ++i) {
        if (!side(i).is_open()) return;
        const transport::QueuePair& qp = *side(i).qp();
        // A responder may have failed meanwhile.
        if (qp.state() == QpState::Err) return;
        const bool went_on = side(i).qp()->machine().progress().next != *stops_[i];
        if (!went_on && qp.state() == QpState::Sqd) continue;
        context_.checks.report.fail(Checks::kDrain, "node " + std::to_string(side(i).node()) +
                                                        ": a drained send queue went on");
        return;
    }
    if (context_.random.chance(0.7)) change_depth();
    if (context_.random.chance(0.7)) change_addresses();
    for (Endpoint* side : {&a_, &b_}) {
        move_to(side->station().node(), *side->qp(), QpState::Rts);
        side->station().node().wake();
    }
}

// How many READs and atomics may be outstanding. Nothing is, now.
void Connection::change_depth() {
    transport::QpAttributes to;
    to.read_atomic_max = static_cast<std::uint8_t>(1 + context_.random.below(16));
    to.dest_read_atomic_max = to.read_atomic_max;
    depth_ = to.read_atomic_max;
    const transport::AttributeMask mask{
        static_cast<std::uint32_t>(transport::Attribute::MaxReadAtomic) |
        static_cast<std::uint32_t>(transport::Attribute::MaxDestReadAtomic)};
    for (Endpoint* side : {&a_, &b_}) change(side->station().node(), *side->qp(), to, mask);
}

// Counted in the send queue, not by what the requester believes.
void Connection::check_depth() {
    if (!opened_) return;
    for (Endpoint* side : {&a_, &b_}) {
        if (!side->is_open() || side->qp()->state() == QpState::Err) continue;
        const transport::SendQueue& queue = side->qp()->send_queue();
        std::uint32_t outstanding = 0;
        for (std::uint64_t i = queue.head(); i != queue.tail() && queue.at(i).numbered; ++i)
            if (is_answered(queue.at(i).op)) ++outstanding;
        if (outstanding <= depth_) continue;
        context_.checks.report.fail(
            Checks::kDepth,
            "node " + std::to_string(side->node()) + ": " + std::to_string(outstanding) +
                " READs and atomics are outstanding, agreed were " + std::to_string(depth_));
    }
}

void Connection::change_addresses() {
    World& world = context_.world;
    const Gid here = world.address_of(a_.node(), context_.random.below(2));
    const Gid there = world.address_of(b_.node(), context_.random.below(2));
    const transport::AttributeMask mask{
        static_cast<std::uint32_t>(transport::Attribute::AddressVector)};
    transport::QpAttributes to;
    to.address.source = here;
    to.address.destination = there;
    change(a_.station().node(), *a_.qp(), to, mask);
    std::swap(to.address.source, to.address.destination);
    change(b_.station().node(), *b_.qp(), to, mask);
}

// A receive that a queue pair takes along is lost to the others of a shared queue,
// until that has none left. So the program lets it fail first, and polls what it had.
void Connection::destroy_side(std::size_t i, const Drain& drain) {
    broken_ = true;
    note_psns();
    if (side(i).takes_from_others()) {
        fail(side(i));
        drain();
    }
    side(i).destroy();
}

bool Connection::deregister(std::size_t i, Endpoint::Victim victim) {
    if (!side(i).is_open() || !side(i).deregister(victim)) return false;
    undermined_ = true;
    return true;
}

Allowance Connection::allowance(std::size_t i) {
    Endpoint& peer = side(1 - i);
    const bool peer_gone = !peer.is_open() || peer.qp()->state() == QpState::Err;
    // What named a receive queue that is gone is refused, or told to wait for it.
    const bool queue_gone = undermined_ && plan_.type == QpType::XrcInitiator;
    Allowance allowance;
    allowance.retries = (exposed_ && context_.swarm.retries_may_run_out(plan_)) ||
                        context_.swarm.queue_outlasts(plan_.options) || peer_gone;
    // Others may have all receives of a shared queue in hand, for as long as their messages take.
    const bool starved = peer.is_open() && peer.takes_from_others();
    allowance.rnr = (exposed_ || queue_gone || starved) && plan_.options.rnr_retry != 7;
    allowance.access = undermined_;
    allowance.flush = side(i).qp()->state() == QpState::Err;
    return allowance;
}

bool Connection::idle() {
    for (std::size_t i = 0; i < 2; ++i) {
        Endpoint& end = side(i);
        if (!end.is_open() || !end.idle()) return false;
        if (!plan_.reliable()) continue;
        if (context_.checks.messages.missing({end.node(), end.qp()->qpn().raw, true}) > 0)
            return false;
    }
    return true;
}

}  // namespace feroce::sim
