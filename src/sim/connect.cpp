#include "sim/connect.hpp"

#include "base/assert.hpp"

namespace feroce::sim {

using transport::Attribute;
using transport::AttributeMask;
using transport::QpAttributes;
using transport::QpState;

namespace {

void modify(const Side& side, QpAttributes& attributes, QpState to, AttributeMask mask) {
    attributes.state = to;
    mask.raw |= static_cast<std::uint32_t>(Attribute::State);
    device::Engine& engine = side.node.engine_of(side.qp.qpn());
    const auto done = engine.modify_qp(side.node.now(), side.qp, attributes, mask);
    ASSERT(done.has_value());
}

QpAttributes attributes_for(const Side& self, const Side& peer, const ConnectOptions& options) {
    QpAttributes a;
    a.path_mtu = options.path_mtu;
    a.qkey = options.qkey;
    a.receive_psn = peer.first_psn;
    a.send_psn = self.first_psn;
    a.destination_qpn = peer.qp.qpn();
    a.access = mem::Access::LocalWrite | mem::Access::RemoteWrite | mem::Access::RemoteRead |
               mem::Access::RemoteAtomic;
    a.address.destination = peer.node.address();
    a.address.source = self.node.address();
    a.read_atomic_max = options.read_atomic_max;
    a.dest_read_atomic_max = options.read_atomic_max;
    a.min_rnr_timer = options.min_rnr_timer;
    a.timeout = options.timeout;
    a.retry_count = options.retry_count;
    a.rnr_retry = options.rnr_retry;
    return a;
}

void bring_up(const Side& self, const Side& peer, const ConnectOptions& options) {
    QpAttributes a = attributes_for(self, peer, options);
    for (const QpState to : {QpState::Init, QpState::Rtr, QpState::Rts})
        modify(self, a, to, transport::transition(self.qp.type(), self.qp.state(), to).required);
}

}  // namespace

void connect(const Side& a, const Side& b, const ConnectOptions& options) {
    bring_up(a, b, options);
    bring_up(b, a, options);
}

void move_to(Node& node, transport::QueuePair& qp, QpState state) {
    QpAttributes a;
    AttributeMask mask;
    if (state == QpState::Sqd) {
        a.drain_notify = true;
        mask.raw = static_cast<std::uint32_t>(Attribute::DrainNotify);
    }
    modify({node, qp, Psn()}, a, state, mask);
}

void change(Node& node, transport::QueuePair& qp, QpAttributes attributes, AttributeMask mask) {
    modify({node, qp, Psn()}, attributes, qp.state(), mask);
}

transport::Path path_between(const Node& from, const Node& to, std::uint16_t flow) {
    transport::Path path;
    path.source = from.address();
    path.destination = to.address();
    path.flow = flow;
    return path;
}

}  // namespace feroce::sim
