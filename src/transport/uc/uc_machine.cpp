#include "transport/uc/uc_machine.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "mem/touch.hpp"
#include "transport/local_work.hpp"
#include "transport/packet_builder.hpp"
#include "transport/send_error.hpp"

namespace feroce::transport {

namespace {

using wire::Header;
using wire::Opcode;
using wire::Verb;

Opcode opcode_of(SendOp op, bool is_first, bool is_last) {
    const bool is_write = op == SendOp::Write || op == SendOp::WriteImmediate;
    const bool is_immediate = op == SendOp::SendImmediate || op == SendOp::WriteImmediate;
    if (is_first && is_last) {
        if (is_write) return is_immediate ? Opcode::UcWriteOnlyImmediate : Opcode::UcWriteOnly;
        return is_immediate ? Opcode::UcSendOnlyImmediate : Opcode::UcSendOnly;
    }
    if (is_first) return is_write ? Opcode::UcWriteFirst : Opcode::UcSendFirst;
    if (!is_last) return is_write ? Opcode::UcWriteMiddle : Opcode::UcSendMiddle;
    if (is_write) return is_immediate ? Opcode::UcWriteLastImmediate : Opcode::UcWriteLast;
    return is_immediate ? Opcode::UcSendLastImmediate : Opcode::UcSendLast;
}

}  // namespace

void UcMachine::pump(Instant now, std::uint32_t packets_max) {
    far_.settle(now);
    while (packets_max > 0 && may_send())
        if (advance_head(now)) --packets_max;
    tell_when_drained();
}

bool UcMachine::wants_to_send(Instant) const {
    return may_send() || far_.has_landed();
}

// In SQD a message that was begun is finished; no new one is.
bool UcMachine::may_send() const {
    if (qp_.send_queue().empty() || far_.waits()) return false;
    return qp_.state() == QpState::Rts || (qp_.state() == QpState::Sqd && sent_of_head_ > 0);
}

bool UcMachine::advance_head(Instant now) {
    SendQueue& queue = qp_.send_queue();
    const SendWqe& wqe = queue.at(queue.head());
    if (is_local(wqe.op)) {
        run_local(now, wqe);
        return false;
    }
    send_packet(now, wqe);
    return true;
}

void UcMachine::send_packet(Instant now, const SendWqe& wqe) {
    SendQueue& queue = qp_.send_queue();
    const std::uint64_t mtu = qp_.attributes().path_mtu;
    const std::uint64_t offset = sent_of_head_ * mtu;
    const bool is_first = sent_of_head_ == 0;
    const bool is_last = wqe.length <= offset + mtu;

    PacketSpec spec;
    spec.opcode = opcode_of(wqe.op, is_first, is_last);
    spec.destination = qp_.attributes().destination_qpn;
    spec.psn = next_psn_;
    spec.solicited = is_last && wqe.solicited;
    spec.payload_size = static_cast<std::size_t>(std::min(mtu, wqe.length - offset));
    spec.extensions.reth = {wqe.remote_address, wqe.rkey, wqe.length};
    spec.extensions.immediate = wqe.operand;
    TransmitBatch& batch = qp_.services().transmit;
    const ByteSpan payload = append_packet(batch, qp_.path(), spec);
    const mem::Fault fault = far_.gather(offset, payload);
    if (fault != mem::Fault::None) {
        batch.retract(wire::packet_size(spec.opcode, spec.payload_size));
        if (far_.waits()) return;
        sent_of_head_ = 0;
        return fail_unreliable_send(now, qp_, next_psn_, key_failure(fault));
    }
    next_psn_ = next_psn_ + 1;
    ++sent_of_head_;
    if (!is_last) return;
    sent_of_head_ = 0;
    qp_.complete_send(now, wqe, WcStatus::Success, 0);
    queue.retire();
}

void UcMachine::run_local(Instant now, const SendWqe& wqe) {
    const SendFailure failure = far_.execute();
    if (far_.waits()) return;
    if (failure.rule != Rule::None) return fail_unreliable_send(now, qp_, next_psn_, failure);
    qp_.complete_send(now, wqe, WcStatus::Success, 0);
    qp_.send_queue().retire();
}

void UcMachine::tell_when_drained() {
    if (!drain_pending_ || sent_of_head_ > 0) return;
    drain_pending_ = false;
    qp_.tell_drained();
}

void UcMachine::on_packet(Instant now, const wire::Packet& packet, const Arrival&) {
    Counters& counters = qp_.services().counters;
    if (packet.info->service != wire::Service::Uc) return counters.drop(DropReason::WrongQpType);
    if (!receives(qp_.state())) return counters.drop(DropReason::WrongQpState);
    if (!std::exchange(established_, true) && qp_.state() == QpState::Rtr)
        qp_.services().events.qp_event(qp_, AsyncEventType::CommunicationEstablished);
    if (!check_sequence(packet)) return;
    if (!check_length(packet)) return;
    if (packet.info->starts_message() && !begin(packet)) return;
    if (!store(now, packet)) return;
    if (packet.info->ends_message()) finish(now, packet);
}

// IBTA 9.8.2.2.1: after a gap only the beginning of a message is taken, and it sets the number to
// expect. What lay before it is lost, and so is a message that was under way.
bool UcMachine::check_sequence(const wire::Packet& packet) {
    const bool starts = packet.info->starts_message();
    const bool is_expected = packet.bth.psn == expected_psn_;
    if (!is_expected && !starts) return drop(DropReason::UcGap);
    expected_psn_ = packet.bth.psn + 1;
    if (starts) {
        if (message_.open) drop(is_expected ? DropReason::UcBroken : DropReason::UcGap);
        return true;
    }
    if (!message_.open || message_.verb != packet.info->verb) return drop(DropReason::UcBroken);
    return true;
}

bool UcMachine::check_length(const wire::Packet& packet) {
    const std::size_t size = packet.payload.size();
    const std::size_t mtu = qp_.attributes().path_mtu;
    bool fits = size <= mtu;
    if (!packet.info->ends_message()) fits = size == mtu;
    if (packet.info->position == wire::Position::Last) fits = fits && size > 0;
    return fits || drop(DropReason::UcBroken);
}

bool UcMachine::begin(const wire::Packet& packet) {
    message_ = Message{};
    message_.open = true;
    message_.verb = packet.info->verb;
    if (packet.info->verb == Verb::Write) return begin_write(packet.reth());
    return receive_.take() || drop(DropReason::NoReceive);
}

bool UcMachine::begin_write(const wire::Reth& reth) {
    message_.reth = reth;
    if (reth.length > kMessageBytesMax) return drop(DropReason::UcBroken);
    const bool is_enabled = qp_.attributes().access.has(mem::Access::RemoteWrite);
    const mem::Fault fault = qp_.services()
                                 .memory
                                 .remote(qp_.init().pd, qp_.qpn(), reth.rkey, reth.address,
                                         reth.length, mem::Access::RemoteWrite)
                                 .fault;
    const bool may_write =
        fault == mem::Fault::None || (fault == mem::Fault::Far && qp_.services().copies != nullptr);
    return (is_enabled && may_write) || drop(DropReason::UcAccess);
}

bool UcMachine::store(Instant now, const wire::Packet& packet) {
    if (packet.info->verb == Verb::Send) return store_send(now, packet);
    return store_write(packet);
}

bool UcMachine::store_send(Instant now, const wire::Packet& packet) {
    if (message_.received + packet.payload.size() > receive_.length())
        return drop(DropReason::ReceiveTooSmall);
    mem::Fault fault = mem::Fault::None;
    if (!far_.lands()) fault = receive_.write(message_.received, packet.payload);
    if (far_.takes(fault)) [[unlikely]]
        return stage(packet);
    if (fault != mem::Fault::None) {
        receive_.fail(now, packet.bth.psn, fault);
        return false;
    }
    message_.received += packet.payload.size();
    return true;
}

bool UcMachine::store_write(const wire::Packet& packet) {
    const std::uint64_t size = packet.payload.size();
    const std::uint64_t end = message_.received + size;
    const wire::Reth& reth = message_.reth;
    const bool is_last = packet.info->ends_message();
    if (is_last ? end != reth.length : end >= reth.length) return drop(DropReason::UcBroken);
    if (packet.info->has(Header::Immediate) && !receive_.take()) return drop(DropReason::NoReceive);
    // Looked up again for each packet: the region may be gone since the first.
    const mem::Lookup target = qp_.services().memory.remote(qp_.init().pd, qp_.qpn(), reth.rkey,
                                                            reth.address + message_.received, size,
                                                            mem::Access::RemoteWrite);
    const bool exists = target.fault == mem::Fault::None || target.fault == mem::Fault::Far;
    if (exists && far_.takes(target.fault)) [[unlikely]]
        return stage(packet);
    if (target.fault != mem::Fault::None || !mem::write_memory(target.slice, packet.payload))
        return drop(DropReason::UcAccess);
    message_.received = end;
    return true;
}

// What the message goes to, as far as it is known: a receive may be longer.
Landings::Target UcMachine::target_of(const wire::Packet& packet) const {
    const std::uint64_t end = message_.received + packet.payload.size();
    if (packet.info->verb == Verb::Write)
        return {
            .list = {qp_.init().pd,
                     mem::Access::RemoteWrite,
                     true,
                     {{message_.reth.address, message_.reth.length, LKey{message_.reth.rkey.raw}}}},
            .length = message_.reth.length,
            .is_write = true,
            .psn = packet.bth.psn};
    const auto list = receive_.list();
    return {.list = {qp_.receive_queue().pd(),
                     mem::Access::LocalWrite,
                     false,
                     {list.begin(), list.end()}},
            .length = packet.info->ends_message() ? end : receive_.length(),
            .is_write = false,
            .psn = packet.bth.psn};
}

bool UcMachine::stage(const wire::Packet& packet) {
    if (!far_.add(target_of(packet), message_.received, packet.payload))
        return drop(DropReason::CopiesBehind);
    message_.received += packet.payload.size();
    return true;
}

void UcMachine::finish(Instant now, const wire::Packet& packet) {
    message_.open = false;
    const bool completes = packet.info->verb == Verb::Send || packet.info->has(Header::Immediate);
    if (!far_.lands()) [[likely]] {
        if (completes) receive_.complete(completion_of(now, packet));
        return;
    }
    std::optional<Completion> receive;
    if (completes) receive = completion_of(now, packet);
    if (!far_.end(target_of(packet), receive))
        drop(DropReason::CopiesBehind);
    else if (completes)
        receive_.forget();
}

Completion UcMachine::completion_of(Instant now, const wire::Packet& packet) const {
    const bool is_write = packet.info->verb == Verb::Write;
    const bool has_immediate = packet.info->has(Header::Immediate);
    Completion completion = receive_.completion(now);
    if (is_write) completion.opcode = WcOpcode::ReceiveWriteImmediate;
    completion.byte_length = static_cast<std::uint32_t>(message_.received);
    completion.source_qpn = qp_.attributes().destination_qpn;
    completion.solicited = packet.bth.solicited;
    completion.has_immediate = has_immediate;
    if (has_immediate) completion.immediate = packet.immediate();
    return completion;
}

bool UcMachine::drop(DropReason reason) {
    message_.open = false;
    far_.break_off();
    qp_.services().counters.drop(reason);
    return false;
}

Progress UcMachine::progress() const {
    Progress out;
    out.next = out.unacknowledged = next_psn_;
    out.expected = expected_psn_;
    out.draining = qp_.state() == QpState::Sqd && sent_of_head_ > 0;
    return out;
}

const char* UcMachine::check_invariants() const {
    if (const char* broken = far_.check_invariants()) return broken;
    if (sent_of_head_ > 0 && qp_.send_queue().empty()) return "a message was begun that is gone";
    if (drain_pending_ && qp_.state() != QpState::Sqd) return "waits for a drain outside of SQD";
    return nullptr;
}

void UcMachine::on_modify(Instant now, QpState from) {
    const QpState to = qp_.state();
    if (to == QpState::Reset || to == QpState::Err) {
        far_.stop(now);
        if (to == QpState::Err) receive_.flush(now);
        receive_.forget();
        message_.open = established_ = drain_pending_ = false;
        sent_of_head_ = 0;
        if (to == QpState::Reset) next_psn_ = expected_psn_ = Psn();
        return;
    }
    if (from == QpState::Init && to == QpState::Rtr) expected_psn_ = qp_.attributes().receive_psn;
    if (from == QpState::Rtr && to == QpState::Rts) next_psn_ = qp_.attributes().send_psn;
    if (to == QpState::Rts) drain_pending_ = false;
    if (from == QpState::Rts && to == QpState::Sqd) {
        drain_pending_ = qp_.attributes().drain_notify;
        tell_when_drained();
    }
}

}  // namespace feroce::transport
