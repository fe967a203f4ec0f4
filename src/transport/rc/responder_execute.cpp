// What a request does once all checks have passed. Only memory can still refuse: it may have been
// unmapped, or a receive may name a bad key.
#include <cstring>

#include "base/assert.hpp"
#include "mem/scatter.hpp"
#include "mem/touch.hpp"
#include "transport/rc/responder.hpp"

namespace feroce::transport::rc {

using wire::NakCode;
using wire::Syndrome;
using wire::Verb;

Responder::Check Responder::execute(Instant now, const wire::Packet& packet, std::uint32_t packets,
                                    const mem::Lookup& target) {
    switch (packet.info->verb) {
        case Verb::ReadRequest:
            return execute_read(packet);
        case Verb::CompareSwap:
        case Verb::FetchAdd:
            return execute_atomic(packet);
        case Verb::AtomicWrite:
            return execute_atomic_write(packet);
        case Verb::Flush:
            return execute_flush();
        case Verb::Write:
            if (auto refusal = execute_write(packet, target)) return refusal;
            break;
        default:
            if (auto refusal = execute_send(packet)) return refusal;
            break;
    }
    if (far_busy_) [[unlikely]]
        if (auto refusal = close_message(packet)) return refusal;
    received_bytes_ += packet.payload.size();
    expected_ = expected_ + packets;
    if (!packet.info->ends_message()) return {};
    message_ = Message::None;
    msn_ = (msn_ + 1) & 0xff'ffff;
    if (has_pieces()) [[unlikely]] {
        end_far_message(now, packet);
    } else if (receive_held_) {
        complete_receive(now, packet);
    }
    return {};
}

Responder::Check Responder::execute_send(const wire::Packet& packet) {
    if (packet.info->starts_message()) {
        message_ = Message::Send;
        received_bytes_ = 0;
    }
    if (receive_lost())
        return Refusal{Syndrome::nak(NakCode::RemoteOperational), Rule::ReceiveQueueGone};
    if (received_bytes_ + packet.payload.size() > receive_.length)
        return Refusal{Syndrome::nak(NakCode::InvalidRequest), Rule::ReceiveTooSmall,
                       WcStatus::LocalLengthError};
    if (!packet.payload.empty()) {
        mem::Fault fault = mem::scatter(qp_.services().memory, receive_pd_, receive_.list(),
                                        received_bytes_, packet.payload);
        if (fault == mem::Fault::Far) [[unlikely]]
            fault = stage(packet);
        if (fault != mem::Fault::None) return refuse_memory(packet, fault);
    }
    if (!packet.info->has(wire::Header::Ieth)) return {};
    const mem::Fault fault =
        qp_.services().memory.invalidate_remote(pd_of(packet), qp_.qpn(), packet.invalidate());
    if (fault == mem::Fault::None) return {};
    // IBTA's class J: the message itself was good, so the peer hears no NAK.
    msn_ = (msn_ + 1) & 0xff'ffff;
    return Refusal{Syndrome::ack(wire::kNoCredits), Rule::InvalidateRefused,
                   WcStatus::RemoteInvalidRequestError, fault};
}

Responder::Check Responder::execute_write(const wire::Packet& packet, const mem::Lookup& message) {
    const bool starts = packet.info->starts_message();
    if (starts) {
        const wire::Reth reth = packet.reth();
        message_ = Message::Write;
        received_bytes_ = 0;
        write_address_ = reth.address;
        write_length_ = reth.length;
        write_rkey_ = reth.rkey;
    }
    if (packet.payload.empty()) return {};
    ASSERT(!starts || packet.payload.size() <= message.slice.length);
    // The first one has just been looked up; each that follows is, again: the region may have been
    // deregistered meanwhile.
    const mem::Lookup target =
        starts ? mem::Lookup{message.fault, message.slice.part(0, packet.payload.size())}
               : qp_.services().memory.remote(pd_of(packet), qp_.qpn(), write_rkey_,
                                              write_address_ + received_bytes_,
                                              packet.payload.size(), mem::Access::RemoteWrite);
    mem::Fault fault = target.fault;
    if (fault == mem::Fault::Far) [[unlikely]]
        fault = stage(packet);
    else if (fault == mem::Fault::None && !mem::write_memory(target.slice, packet.payload))
        fault = mem::Fault::Unmapped;
    return fault == mem::Fault::None ? Check{} : refuse_memory(packet, fault);
}

Responder::Check Responder::execute_read(const wire::Packet& packet) {
    const wire::Reth reth = packet.reth();
    jobs_.push(Job{reth.address, expected_, reth.length, reth.rkey, pd_of(packet)});
    expected_ = expected_ + read_packets(reth.length);
    msn_ = (msn_ + 1) & 0xff'ffff;
    return {};
}

Responder::Check Responder::execute_atomic(const wire::Packet& packet) {
    const wire::AtomicEth eth = packet.atomic_eth();
    const mem::Lookup target = qp_.services().memory.remote(
        pd_of(packet), qp_.qpn(), eth.rkey, eth.address, 8, mem::Access::RemoteAtomic);
    const bool found = target.fault == mem::Fault::None;
    std::optional<std::uint64_t> original;
    if (found)
        original = packet.info->verb == Verb::CompareSwap
                       ? mem::compare_swap(target.slice, eth.compare, eth.swap_or_add)
                       : mem::fetch_add(target.slice, eth.swap_or_add);
    if (original) return answer_once(JobKind::Atomic, *original);
    if (!found) return refuse_key(packet, target.fault, WcStatus::Success);
    return Refusal{Syndrome::nak(NakCode::RemoteOperational), Rule::RemoteMemoryGone,
                   WcStatus::Success, mem::Fault::Unmapped};
}

Responder::Check Responder::execute_atomic_write(const wire::Packet& packet) {
    const wire::Reth reth = packet.reth();
    const mem::Lookup target = qp_.services().memory.remote(
        pd_of(packet), qp_.qpn(), reth.rkey, reth.address, 8, mem::Access::RemoteWrite);
    if (target.fault != mem::Fault::None)
        return refuse_key(packet, target.fault, WcStatus::Success);
    if (!mem::is_aligned_word(target.slice))
        return Refusal{Syndrome::nak(NakCode::InvalidRequest), Rule::Misaligned};
    std::uint64_t value = 0;
    std::memcpy(&value, packet.payload.data(), sizeof value);
    if (mem::atomic_write(target.slice, value)) return answer_once(JobKind::Empty, 0);
    return Refusal{Syndrome::nak(NakCode::RemoteOperational), Rule::RemoteMemoryGone,
                   WcStatus::Success, mem::Fault::Unmapped};
}

// Stores of a soft NIC are visible to the CPU when they are made; the answer need only come later.
Responder::Check Responder::execute_flush() {
    mem::order_before_read();
    return answer_once(JobKind::Empty, 0);
}

Responder::Check Responder::answer_once(JobKind kind, std::uint64_t original) {
    while (atomics_.size() >= atomics_max()) atomics_.pop();
    atomics_.push(AtomicResult{expected_, kind, original});
    jobs_.push(Job{original, expected_, 0, RKey{}, PdId{}, kind});
    expected_ = expected_ + 1;
    msn_ = (msn_ + 1) & 0xff'ffff;
    return {};
}

PdId Responder::pd_of(const wire::Packet& packet) const {
    if (service_ != wire::Service::Xrc) return qp_.init().pd;
    const XrcTarget target =
        qp_.services().events.find_xrc_srq(packet.xrceth().srq, qp_.init().xrc_domain);
    return target.queue == nullptr ? PdId{} : target.queue->pd();
}

XrcTarget Responder::receive_source() const {
    if (service_ == wire::Service::Xrc)
        return qp_.services().events.find_xrc_srq(receive_srq_, qp_.init().xrc_domain);
    return {&qp_.receive_queue(), qp_.init().receive_cq};
}

bool Responder::receive_lost() {
    if (service_ != wire::Service::Xrc || receive_source().cq != nullptr) return false;
    receive_held_ = false;
    return true;
}

bool Responder::take_receive(const wire::Packet& packet) {
    if (service_ == wire::Service::Xrc) receive_srq_ = packet.xrceth().srq;
    ReceiveQueue* const queue = receive_source().queue;
    if (queue == nullptr || !qp_.take_receive(*queue, receive_)) return false;
    receive_held_ = true;
    receive_pd_ = queue->pd();
    return true;
}

Completion Responder::receive_completion(Instant now) const {
    Completion completion = qp_.completion_of(now, receive_.wr_id);
    completion.opcode = WcOpcode::Receive;
    completion.byte_length = static_cast<std::uint32_t>(received_bytes_);
    completion.source_qpn = qp_.attributes().destination_qpn;
    return completion;
}

Completion Responder::completion_of_message(Instant now, const wire::Packet& packet) const {
    Completion completion = receive_completion(now);
    if (packet.info->verb == Verb::Write) completion.opcode = WcOpcode::ReceiveWriteImmediate;
    completion.solicited = packet.bth.solicited;
    if (packet.info->has(wire::Header::Immediate)) {
        completion.has_immediate = true;
        completion.immediate = packet.immediate();
    }
    if (packet.info->has(wire::Header::Ieth)) {
        completion.has_invalidate = true;
        completion.immediate = packet.invalidate().raw;
    }
    return completion;
}

void Responder::complete_receive(Instant now, const wire::Packet& packet) {
    receive_held_ = false;
    ack_owed_ = true;
    qp_.services().counters.add(Counter::RdmaReceives);
    qp_.services().held.hold(qp_, expected_ - 1, *receive_source().cq,
                             completion_of_message(now, packet));
}

}  // namespace feroce::transport::rc
