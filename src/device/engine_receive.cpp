// From a datagram to the queue pair it is for. Nothing of a packet is believed before its ICRC is
// verified, and nothing of it reaches a queue pair unless it comes from that queue pair's peer.
#include <algorithm>
#include <array>

#include "base/assert.hpp"
#include "base/probe.hpp"
#include "device/engine.hpp"
#include "transport/packet_builder.hpp"
#include "wire/mad.hpp"

namespace feroce::device {

using transport::Counter;
using transport::DropReason;
using transport::NoticeKind;
using transport::QpType;
using transport::QueuePair;

namespace {

DropReason drop_reason(wire::ParseError error) {
    switch (error) {
        case wire::ParseError::UnknownOpcode:
            return DropReason::UnknownOpcode;
        case wire::ParseError::BadVersion:
            return DropReason::BadVersion;
        case wire::ParseError::BadPad:
            return DropReason::BadPad;
        case wire::ParseError::BadLength:
            return DropReason::BadLength;
        default:
            return DropReason::TooShort;
    }
}

// The top bit tells full from limited members; the partition is the rest.
bool same_partition(Pkey pkey) {
    return (pkey.raw & 0x7fff) == (kDefaultPkey.raw & 0x7fff);
}

constexpr std::uint8_t kCongestionExperienced = 3;
// A marked flow hears of it at most this often: the reaction takes a round trip anyway.
constexpr Duration kCongestionNoticeGap = std::chrono::microseconds(50);

}  // namespace

void Engine::expect(ByteView packet) {
    if (packet.size() < wire::Bth::kSize) return;
    const Qpn qpn = wire::Bth::parse(packet.first<wire::Bth::kSize>()).destination;
    if (qpn == expected_) return;  // Packets of a message come in a row.
    expected_ = qpn;
    if (const QueuePair* qp = qps_.peek(qpn)) qp->prefetch();
}

void Engine::receive(Instant now, const Datagram& datagram) {
    counters_.add(Counter::ReceivedPackets);
    counters_.add(Counter::ReceivedBytes, datagram.bytes.size());
    wire::Packet packet;
    if (const wire::ParseError error = wire::parse_packet(datagram.bytes, packet);
        error != wire::ParseError::None)
        return counters_.drop(drop_reason(error));
    FEROCE_PROBE4(pkt_rx, packet.bth.destination.raw, packet.bth.opcode, datagram.bytes.size(),
                  packet.bth.psn.raw());
    if (!datagram.sealed) return receive_unsealed(now, packet, datagram);
    if (datagram.destination.is_zero()) return receive_somewhere(now, packet, datagram);
    examine(now, packet, datagram);
}

// What is checked must be what is used later: a copy of the headers. The payload is copied once.
void Engine::receive_unsealed(Instant now, wire::Packet& packet, const Datagram& datagram) {
    std::array<std::byte, wire::kExtensionMax> headers;
    ASSERT(packet.extension.size() <= headers.size());
    std::copy(packet.extension.begin(), packet.extension.end(), headers.begin());
    packet.extension = ByteView(headers).first(packet.extension.size());
    counters_.add(Counter::RingReceivedPackets);
    examine(now, packet, datagram);
}

// A connected queue pair knows the address at which its peer reaches it, and the ICRC tells whether
// the packet was sent there. So may the owner of one that landed here. Nobody else does: what is
// dropped here is repeated if it matters.
void Engine::receive_somewhere(Instant now, const wire::Packet& packet, const Datagram& datagram) {
    const QueuePair* qp = qps_.find(packet.bth.destination);
    const Gid own = qp != nullptr ? qp->attributes().address.source : Gid{};
    if (!own.is_zero() && own.is_v4() == datagram.source.is_v4()) {
        Datagram complete = datagram;
        complete.destination = own;
        return examine(now, packet, complete);
    }
    parts_.port.tell_destinations();
    if (!is_ours(packet, datagram) && parts_.port.hand_over(datagram))
        return counters_.add(Counter::HandedOver);
    counters_.drop(DropReason::NoSuchQp);
}

void Engine::examine(Instant now, const wire::Packet& packet, const Datagram& datagram) {
    if (config_.verify_icrc && datagram.sealed) {
        const IcrcVerdict verdict = icrc_.verify(now, datagram);
        if (verdict == IcrcVerdict::Bad) return counters_.drop(DropReason::BadIcrc);
        if (verdict == IcrcVerdict::Unsolvable) return counters_.drop(DropReason::UnsolvableId);
    }
    if (!same_partition(packet.bth.pkey)) return counters_.drop(DropReason::BadPkey);
    dispatch(now, packet, datagram);
}

void Engine::dispatch(Instant now, const wire::Packet& packet, const Datagram& datagram) {
    if (packet.bth.destination == kMulticastQpn) return deliver_multicast(now, packet, datagram);
    QueuePair* qp = qps_.find(packet.bth.destination);
    // Every process has a QP1.
    if ((qp == nullptr || packet.bth.destination == kGeneralServicesQpn) &&
        !is_ours(packet, datagram) && parts_.port.hand_over(datagram))
        return counters_.add(Counter::HandedOver);
    if (qp == nullptr) {
        note_drop(
            qps_.was_given(packet.bth.destination) ? NoticeKind::DestroyedQp : NoticeKind::NoSuchQp,
            packet, datagram, nullptr);
        return counters_.drop(DropReason::NoSuchQp);
    }
    deliver(now, *qp, packet, datagram);
}

// A message of the connection manager that names no process is for any.
bool Engine::is_ours(const wire::Packet& packet, const Datagram& datagram) const {
    const SlotNumber slot = wire::steered_slot(datagram.bytes);
    const bool is_for_any = slot == 0 && packet.bth.destination == kGeneralServicesQpn;
    return is_for_any || slot == config_.slot;
}

void Engine::deliver_multicast(Instant now, const wire::Packet& packet, const Datagram& datagram) {
    const auto members = groups_.members(datagram.destination);
    if (members.empty() || packet.info->service != wire::Service::Ud)
        return counters_.drop(DropReason::MulticastNoGroup);
    for (QueuePair* qp : members) deliver(now, *qp, packet, datagram);
}

void Engine::deliver(Instant now, QueuePair& qp, const wire::Packet& packet,
                     const Datagram& datagram) {
    if (qp.state() == transport::QpState::Reset || qp.state() == transport::QpState::Init) {
        note_drop(NoticeKind::WrongState, packet, datagram, &qp);
        return counters_.drop(DropReason::WrongQpState);
    }
    if (qp.type() != QpType::Ud && !comes_from_peer(qp, packet, datagram)) return;
    if (packet.info->verb == wire::Verb::Cnp) {
        counters_.add(Counter::CongestionNotifications);
        if (qp.window() != nullptr) qp.window()->on_congestion_mark(now);
        return;
    }
    if ((datagram.traffic_class & 3) == kCongestionExperienced) notify_congestion(now, qp);
    qp.count_received();
    const transport::Arrival arrival{datagram.source,      datagram.destination,
                                     datagram.source_port, datagram.traffic_class,
                                     datagram.hop_limit,   datagram.packets};
    call_machine(now, qp,
                 [&](transport::Machine& machine) { machine.on_packet(now, packet, arrival); });
    settle(now, qp);
}

bool Engine::comes_from_peer(QueuePair& qp, const wire::Packet& packet, const Datagram& datagram) {
    const transport::AddressVector& peer = qp.attributes().address;
    if (datagram.source != peer.destination || datagram.destination != peer.source) {
        note_drop(NoticeKind::WrongSource, packet, datagram, &qp);
        counters_.drop(DropReason::WrongSource);
        return false;
    }
    if (!datagram.sealed) return true;
    // Learnt from a packet with the right PSN: a stranger who was first would lock the peer out.
    if (qp.device().peer_source_port == 0 && qp.machine().expects(packet))
        qp.device().peer_source_port = datagram.source_port;
    if (qp.device().peer_source_port == 0 || qp.device().peer_source_port == datagram.source_port)
        return true;
    counters_.drop(DropReason::WrongSourcePort);
    return false;
}

// Responses are late words to a queue pair that is gone: nobody waits for what they are.
void Engine::note_drop(NoticeKind kind, const wire::Packet& packet, const Datagram& datagram,
                       const QueuePair* qp) {
    const wire::Verb verb = packet.info->verb;
    if (verb == wire::Verb::Ack || verb == wire::Verb::AtomicAck ||
        verb == wire::Verb::ReadResponse || verb == wire::Verb::Cnp)
        return;
    transport::Notice notice;
    notice.kind = kind;
    notice.qpn = packet.bth.destination;
    notice.psn = packet.bth.psn;
    notice.source = datagram.source;
    if (qp != nullptr) {
        notice.state = qp->state();
        notice.destination = qp->attributes().address.destination;
    }
    reasons_.notices.note(notice);
}

void Engine::notify_congestion(Instant now, QueuePair& qp) {
    const bool first = qp.device().last_congestion_notice == Instant{};
    if (qp.type() == QpType::Ud ||
        (!first && now - qp.device().last_congestion_notice < kCongestionNoticeGap))
        return;
    qp.device().last_congestion_notice = now;
    transport::PacketSpec spec;
    spec.opcode = wire::Opcode::Cnp;
    spec.destination = qp.attributes().destination_qpn;
    spec.payload_size = 16;  // Reserved bytes, zero.
    const ByteSpan payload = transport::append_packet(transmit_, qp.path(), spec);
    std::fill(payload.begin(), payload.end(), std::byte{0});
}

}  // namespace feroce::device
