// Duplicates, and the packets that answer requests. IBTA 9.7.5.1.4: a duplicate SEND or WRITE is
// acknowledged again, a duplicate READ is executed again, a duplicate atomic gets its old answer.
#include <algorithm>

#include "mem/touch.hpp"
#include "transport/rc/credits.hpp"
#include "transport/rc/recovery.hpp"
#include "transport/rc/responder.hpp"

namespace feroce::transport::rc {

using wire::NakCode;
using wire::Syndrome;
using wire::Verb;

void Responder::replay(const wire::Packet& packet, PacketNumber number) {
    if (take_hello(packet)) return;
    qp_.services().counters.add(Counter::DuplicateRequest);
    if (has_begun()) note(NoticeKind::AnswersLost, number);
    if (qp_.recovery() != nullptr) qp_.recovery()->note_duplicate(number);
    switch (packet.info->verb) {
        case Verb::ReadRequest:
            return replay_read(packet, number);
        case Verb::CompareSwap:
        case Verb::FetchAdd:
        case Verb::AtomicWrite:
        case Verb::Flush:
            return replay_atomic(number);
        default:
            ack_owed_ = true;
            return;
    }
}

void Responder::replay_read(const wire::Packet& packet, PacketNumber number) {
    Counters& counters = qp_.services().counters;
    const wire::Reth reth = packet.reth();
    if (expected_ < number + read_packets(reth.length))
        return counters.drop(DropReason::OutOfSequence);
    // Its answer may still be on its way out: asking again changes nothing.
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
        const Job& job = jobs_[i];
        if (job.next <= number && number < job.next + read_packets(job.left))
            return counters.drop(DropReason::DuplicateReadBusy);
    }
    if (too_many_jobs()) return counters.drop(DropReason::DuplicateReadBusy);
    // Not refused: half of all PSNs are duplicates, so who knows no rkey could end the connection.
    if (check_operation(packet) || !may_read(packet))
        return counters.drop(DropReason::DuplicateReadDenied);
    jobs_.push(Job{reth.address, number, reth.length, reth.rkey, pd_of(packet)});
}

bool Responder::may_read(const wire::Packet& packet) const {
    const wire::Reth reth = packet.reth();
    const mem::Fault fault = qp_.services()
                                 .memory
                                 .remote(pd_of(packet), qp_.qpn(), reth.rkey, reth.address,
                                         reth.length, mem::Access::RemoteRead)
                                 .fault;
    return fault == mem::Fault::None || fault == mem::Fault::Far;
}

// The attribute says how many a peer may ask for, the ring how many there is room for.
bool Responder::too_many_jobs() const {
    return jobs_.size() > qp_.attributes().dest_read_atomic_max || jobs_.full();
}

void Responder::replay_atomic(PacketNumber number) {
    Counters& counters = qp_.services().counters;
    if (too_many_jobs()) return counters.drop(DropReason::DuplicateReadBusy);
    for (std::size_t i = 0; i < atomics_.size(); ++i) {
        const AtomicResult& result = atomics_[i];
        if (result.number != number) continue;
        jobs_.push(Job{result.original, number, 0, RKey{}, PdId{}, result.kind});
        return;
    }
    counters.drop(DropReason::DuplicateUnknownAtomic);
}

void Responder::pump(Instant now, std::uint32_t packets_max) {
    if (far_busy_) [[unlikely]]
        settle_far(now);
    for (std::uint32_t i = 0; i < packets_max && !jobs_.empty(); ++i)
        if (!send_job_packet(now, jobs_.front())) return;
}

void Responder::pump_last(Instant now) {
    if (!jobs_.empty()) return;
    if (verdict_ && !owes_memory()) return pass(now, Refusal(*verdict_));
    if (nak_owed_ && !owes_memory()) {
        nak_owed_ = false;
        if (holds_) ack_owed_ = false;  // A NAK acknowledges what came before it.
        return send_ack(expected_, Syndrome::nak(NakCode::SequenceError));
    }
    if (!ack_owed_) return;
    const PacketNumber limit = acknowledge_limit();
    ack_owed_ = limit != expected_ - 1;  // The rest of it follows.
    if (!ack_owed_ || acknowledged_ < limit) send_ack(limit, credits());
}

// None as long as something else must leave before it.
bool Responder::build_owed_ack(AckBytes into) {
    if (!jobs_.empty() || verdict_ || nak_owed_ || !ack_owed_) return false;
    const PacketNumber limit = acknowledge_limit();
    if (limit != expected_ - 1 && limit <= acknowledged_) return false;
    build_ack(into, wire::opcode_of(service_, wire::Opcode::RcAck),
              qp_.attributes().destination_qpn, limit.psn(), {credits(), messages_in_memory()});
    return true;
}

bool Responder::send_job_packet(Instant now, Job& job) {
    if (job.kind == JobKind::Read) return send_read_packet(now, job);
    PacketSpec spec;
    const bool atomic = job.kind == JobKind::Atomic;
    spec.opcode = wire::opcode_of(
        service_, atomic ? wire::Opcode::RcAtomicAck : wire::Opcode::RcReadResponseOnly);
    spec.destination = qp_.attributes().destination_qpn;
    spec.psn = job.next.psn();
    spec.extensions.aeth = {credits(), messages_in_memory()};
    spec.extensions.atomic_ack = {job.value};
    append_packet(qp_, spec);
    note_acknowledged(job.next);
    jobs_.pop();
    return true;
}

bool Responder::send_read_packet(Instant now, Job& job) {
    const std::uint32_t mtu = qp_.attributes().path_mtu;
    std::uint32_t packets = packets_at_once(qp_, read_packets(job.left));
    const mem::Lookup source =
        qp_.services().memory.remote(job.pd, qp_.qpn(), job.rkey, job.value,
                                     std::min(job.left, packets * mtu), mem::Access::RemoteRead);
    mem::Fault fault = source.fault;
    ByteView staged;
    if (fault == mem::Fault::Far && !staged_read(job, packets, fault, staged)) [[unlikely]]
        return false;
    const std::uint32_t full = packets * mtu;
    const bool first = !job.started;
    const bool last = job.left <= full;
    // One fence a READ: it must not see memory from before a delivery that was acknowledged.
    if (first) mem::order_before_read();
    PacketSpec spec;
    const wire::Opcode opcode = first && last ? wire::Opcode::RcReadResponseOnly
                                : first       ? wire::Opcode::RcReadResponseFirst
                                : last        ? wire::Opcode::RcReadResponseLast
                                              : wire::Opcode::RcReadResponseMiddle;
    spec.opcode = wire::opcode_of(service_, opcode);
    spec.destination = qp_.attributes().destination_qpn;
    spec.psn = job.next.psn();
    spec.extensions.aeth = {credits(), messages_in_memory()};
    spec.payload_size = std::min(job.left, full);
    spec.packets = packets;
    const ByteSpan payload = append_packet(qp_, spec);
    if (!staged.empty()) [[unlikely]]
        std::copy_n(staged.begin(), payload.size(), payload.begin());
    else if (fault == mem::Fault::None && !payload.empty() &&
             !mem::read_memory(source.slice, payload))
        fault = mem::Fault::Unmapped;
    if (fault != mem::Fault::None) {
        qp_.services().transmit.retract(wire::packet_size(spec.opcode, spec.payload_size));
        fail_read(now, job, fault);
        return false;
    }
    job.started = true;
    note_acknowledged(job.next + (packets - 1));
    job.next = job.next + packets;
    job.value += spec.payload_size;
    job.left -= static_cast<std::uint32_t>(spec.payload_size);
    if (!staged.empty()) [[unlikely]]
        end_staged_read(job.next);
    if (last) jobs_.pop();
    if (far_busy_ && jobs_.empty()) [[unlikely]]
        drop_staged_reads();
    return true;
}

// The NAK names the packet that could not be read.
void Responder::fail_read(Instant now, const Job& job, mem::Fault fault) {
    expected_ = job.next;
    write_rkey_ = job.rkey;
    write_address_ = job.value;
    write_length_ = job.left;
    jobs_.clear();
    drop_far();
    const bool gone = fault == mem::Fault::Unmapped;
    refuse(now, {Syndrome::nak(gone ? NakCode::RemoteOperational : NakCode::RemoteAccess),
                 gone ? Rule::RemoteMemoryGone : Rule::RemoteKey, WcStatus::Success, fault, 0,
                 mem::Access::RemoteRead});
}

void Responder::send_ack(PacketNumber number, Syndrome syndrome) {
    PacketSpec spec;
    spec.opcode = wire::opcode_of(service_, wire::Opcode::RcAck);
    spec.destination = qp_.attributes().destination_qpn;
    spec.psn = number.psn();
    spec.extensions.aeth = {syndrome, messages_in_memory()};
    append_packet(qp_, spec);
    // A refusal acknowledges what came before it.
    note_acknowledged(syndrome.kind() == Syndrome::Kind::Ack ? number : number - 1);
}

// A shared receive queue belongs to nobody in particular: no credits.
Syndrome Responder::credits() {
    if (qp_.uses_srq() || service_ == wire::Service::Xrc) return Syndrome::ack(wire::kNoCredits);
    return Syndrome::ack(encode_credits(qp_.receive_queue().available()));
}

std::uint32_t Responder::read_packets(std::uint32_t length) const {
    return packets_for(length, qp_.attributes().path_mtu);
}

}  // namespace feroce::transport::rc
