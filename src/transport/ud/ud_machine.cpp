#include "transport/ud/ud_machine.hpp"

#include <algorithm>

#include "transport/packet_builder.hpp"
#include "transport/send_error.hpp"
#include "transport/ud/grh.hpp"

namespace feroce::transport {

namespace {

// IBTA 10.2.5: a request whose Q_Key has the top bit set is sent with the queue pair's own, so that
// only those who may set that one can use the controlled half of all Q_Keys.
constexpr std::uint32_t kControlledQkey = 0x8000'0000;

}  // namespace

void UdMachine::pump(Instant now, std::uint32_t packets_max) {
    far_.settle(now);
    for (; packets_max > 0 && may_send(); --packets_max) send_head(now);
}

bool UdMachine::wants_to_send(Instant) const {
    return may_send() || far_.has_landed();
}

bool UdMachine::may_send() const {
    return qp_.state() == QpState::Rts && !qp_.send_queue().empty() && !far_.waits();
}

void UdMachine::send_head(Instant now) {
    SendQueue& queue = qp_.send_queue();
    const SendWqe& wqe = queue.at(queue.head());
    const DatagramTarget& target = queue.datagram(queue.head());
    if (wqe.length > qp_.attributes().path_mtu)
        return fail_unreliable_send(now, qp_, next_psn_, {.rule = Rule::MessageTooLong});

    PacketSpec spec;
    spec.opcode = wqe.op == SendOp::SendImmediate ? wire::Opcode::UdSendOnlyImmediate
                                                  : wire::Opcode::UdSendOnly;
    spec.destination = target.qpn;
    spec.psn = next_psn_;
    spec.solicited = wqe.solicited;
    spec.payload_size = wqe.length;
    spec.extensions.immediate = wqe.operand;
    const bool is_controlled = (target.qkey.raw & kControlledQkey) != 0;
    spec.extensions.deth = {.qkey = is_controlled ? qp_.attributes().qkey : target.qkey,
                            .source = qp_.qpn()};
    TransmitBatch& batch = qp_.services().transmit;
    const ByteSpan payload = append_packet(batch, target.path, spec);
    const mem::Fault fault = far_.gather(0, payload);
    if (fault != mem::Fault::None) {
        batch.retract(wire::packet_size(spec.opcode, spec.payload_size));
        if (far_.waits()) return;
        return fail_unreliable_send(now, qp_, next_psn_, key_failure(fault));
    }
    next_psn_ = next_psn_ + 1;
    qp_.complete_send(now, wqe, WcStatus::Success, 0);
    queue.retire();
}

void UdMachine::on_packet(Instant now, const wire::Packet& packet, const Arrival& arrival) {
    Counters& counters = qp_.services().counters;
    if (packet.info->service != wire::Service::Ud) return counters.drop(DropReason::WrongQpType);
    if (!receives(qp_.state())) return counters.drop(DropReason::WrongQpState);
    if (packet.deth().qkey != qp_.attributes().qkey) return refuse_qkey(packet, arrival);
    if (!receive_.take()) {
        counters.drop(DropReason::NoReceive);
        return note(NoticeKind::UnreceivedDatagram, packet, arrival, 0, 0);
    }
    // A datagram that does not fit is dropped and the receive waits for the next one: IBTA's class
    // D of responder errors, which rxe follows too.
    if (receive_.length() < kGrhBytes + packet.payload.size()) {
        counters.drop(DropReason::ReceiveTooSmall);
        return note(NoticeKind::LongDatagram, packet, arrival,
                    static_cast<std::uint32_t>(packet.payload.size()),
                    static_cast<std::uint32_t>(receive_.length()));
    }
    deliver(now, packet, arrival);
}

void UdMachine::refuse_qkey(const wire::Packet& packet, const Arrival& arrival) {
    qp_.services().counters.drop(DropReason::BadQkey);
    note(NoticeKind::WrongQkey, packet, arrival, qp_.attributes().qkey.raw, packet.deth().qkey.raw);
}

// The sender is never told. The connection manager's own queue pair is nobody's to look after.
void UdMachine::note(NoticeKind kind, const wire::Packet& packet, const Arrival& arrival,
                     std::uint32_t wanted, std::uint32_t found) {
    if (qp_.qpn() == kGeneralServicesQpn) return;
    Notice notice;
    notice.kind = kind;
    notice.state = qp_.state();
    notice.qpn = qp_.qpn();
    notice.peer = packet.deth().source;
    notice.psn = packet.bth.psn;
    notice.wanted = wanted;
    notice.found = found;
    notice.source = arrival.source;
    qp_.services().reasons.notices.note(notice);
}

void UdMachine::deliver(Instant now, const wire::Packet& packet, const Arrival& arrival) {
    const auto grh = make_grh(arrival, wire::packet_size(packet.bth.opcode, packet.payload.size()));
    mem::Fault fault = mem::Fault::None;
    if (!far_.lands()) fault = receive_.write(0, grh);
    if (!far_.lands() && fault == mem::Fault::None)
        fault = receive_.write(kGrhBytes, packet.payload);
    const Completion completion = completion_of(now, packet, arrival);
    if (far_.takes(fault)) [[unlikely]]
        return stage(grh, packet, completion);
    if (fault != mem::Fault::None) return receive_.fail(now, packet.bth.psn, fault);
    receive_.complete(completion);
}

// By way of far memory, or behind what goes there.
void UdMachine::stage(ByteView grh, const wire::Packet& packet, const Completion& completion) {
    const auto list = receive_.list();
    const Landings::Target target{.list = {qp_.receive_queue().pd(),
                                           mem::Access::LocalWrite,
                                           false,
                                           {list.begin(), list.end()}},
                                  .length = grh.size() + packet.payload.size(),
                                  .is_write = false,
                                  .psn = packet.bth.psn};
    if (far_.add(target, 0, grh) && far_.add(target, grh.size(), packet.payload) &&
        far_.end(target, completion))
        return receive_.forget();
    far_.break_off();
    qp_.services().counters.drop(DropReason::CopiesBehind);
}

Completion UdMachine::completion_of(Instant now, const wire::Packet& packet,
                                    const Arrival& arrival) const {
    Completion completion = receive_.completion(now);
    completion.has_grh = true;
    completion.over_ipv6 = !arrival.destination.is_v4();
    completion.solicited = packet.bth.solicited;
    completion.byte_length = kGrhBytes + static_cast<std::uint32_t>(packet.payload.size());
    completion.source_qpn = packet.deth().source;
    completion.has_immediate = packet.info->has(wire::Header::Immediate);
    if (completion.has_immediate) completion.immediate = packet.immediate();
    return completion;
}

Progress UdMachine::progress() const {
    Progress out;
    out.next = out.unacknowledged = next_psn_;
    return out;
}

void UdMachine::on_modify(Instant now, QpState from) {
    const QpState to = qp_.state();
    if (to == QpState::Reset || to == QpState::Err) far_.stop(now);
    if (to == QpState::Reset) {
        receive_.forget();
        next_psn_ = Psn();
    }
    if (to == QpState::Err) receive_.flush(now);
    if (from == QpState::Rtr && to == QpState::Rts) next_psn_ = qp_.attributes().send_psn;
    // A datagram is sent as soon as it is begun, so there is never anything left to drain. One
    // whose bytes are gathered is not begun.
    if (from == QpState::Rts && to == QpState::Sqd && qp_.attributes().drain_notify)
        qp_.tell_drained();
}

}  // namespace feroce::transport
