#include "transport/rc/responder.hpp"

#include <algorithm>

#include "base/assert.hpp"
#include "base/ring_tools.hpp"
#include "transport/memory_names.hpp"
#include "transport/rc/nak_status.hpp"
#include "transport/rc/recovery.hpp"

namespace feroce::transport::rc {

namespace {

using wire::NakCode;
using wire::Syndrome;
using wire::Verb;

bool is_atomic(Verb verb) {
    return verb == Verb::CompareSwap || verb == Verb::FetchAdd;
}

bool takes_receive(const wire::Packet& packet) {
    if (packet.info->verb == Verb::Send) return packet.info->starts_message();
    return packet.info->has(wire::Header::Immediate);  // WRITE with immediate, at its end.
}

bool completes_receive(const wire::Packet& packet) {
    const Verb verb = packet.info->verb;
    return packet.info->ends_message() &&
           (verb == Verb::Send || packet.info->has(wire::Header::Immediate));
}

// READs and atomics always ask.
bool asks_with_a_message(const wire::Packet& packet) {
    const Verb verb = packet.info->verb;
    return packet.bth.ack_request && (verb == Verb::Send || verb == Verb::Write);
}

}  // namespace

Responder::Responder(QueuePair& qp, wire::Service service)
    : qp_(qp),
      service_(service),
      jobs_(1),
      atomics_(1),
      // Each request to an XRC target may name another queue.
      receive_(qp.type() == QpType::XrcTarget ? kSgeMax : qp.receive_queue().sge_max()) {}

void Responder::start() {
    expected_ = PacketNumber::first(qp_.attributes().receive_psn);
    acknowledged_ = expected_ - 1;
    msn_ = 0;
    jobs_.clear();
    atomics_.clear();
    established_ = last_word_valid_ = first_came_ = false;
    if (qp_.recovery() != nullptr) qp_.recovery()->start_responder();
}

// Twice: what is asked for once, and what is asked for again at the same time.
std::size_t Responder::jobs_max() const {
    return 2 * std::size_t{qp_.attributes().dest_read_atomic_max} + 2;
}

std::size_t Responder::atomics_max() const {
    return std::max<std::size_t>(qp_.attributes().dest_read_atomic_max, 1);
}

void Responder::reserve() {
    if (jobs_.capacity() < jobs_max()) regrow(jobs_, jobs_max());
    if (atomics_.capacity() < atomics_max()) regrow(atomics_, atomics_max());
}

void Responder::stop(Instant now) {
    stop_far(now);
    drop_held();
    if (receive_held_ && qp_.state() == QpState::Err && !receive_lost()) {
        Completion flushed = receive_completion(now);
        flushed.status = WcStatus::FlushError;
        flushed.byte_length = 0;
        flushed.reason = qp_.first_reason();
        qp_.services().held.push(qp_, *receive_source().cq, flushed);
    }
    jobs_.clear();
    atomics_.clear();
    verdict_.reset();
    message_ = Message::None;
    receive_held_ = nak_sent_ = nak_owed_ = ack_owed_ = false;
    if (qp_.state() == QpState::Reset) expected_ = PacketNumber();
}

void Responder::on_request(Instant now, const wire::Packet& packet, std::uint32_t packets) {
    establish();
    if (is_over()) return qp_.services().counters.drop(DropReason::WrongQpState);
    const PacketNumber number = expected_.nearest(packet.bth.psn);
    if (far_busy_ && keep_for_later(packet, number, packets)) [[unlikely]]
        return;
    const PacketNumber before = expected_;
    take_request(now, packet, packets, number);
    if (holds_ && expected_ != before) [[unlikely]]
        execute_held(now, asks_with_a_message(packet));
}

void Responder::take_request(Instant now, const wire::Packet& packet, std::uint32_t packets,
                             PacketNumber number) {
    if (number != expected_) return on_unexpected(packet, packets, number);
    nak_sent_ = nak_owed_ = false;
    verdict_.reset();
    if (auto refusal = check_sequence(packet)) return refuse(now, *refusal);
    if (auto refusal = check_operation(packet)) return refuse(now, *refusal);
    if (auto refusal = check_length(packet, packets)) return refuse(now, *refusal);
    mem::Lookup target;
    if (auto refusal = check_rkey(packet, target)) {
        // It uses up the receive that it would have completed.
        if (takes_receive(packet) && !receive_held_) take_receive(packet);
        return refuse(now, *refusal);
    }
    if (completes_receive(packet) && qp_.services().held.full_for(qp_)) return on_full();
    if (auto refusal = check_resources(packet)) return refuse(now, *refusal);
    if (auto refusal = execute(now, packet, packets, target)) return refuse(now, *refusal);
    // READs and atomics are acknowledged by their responses.
    const Verb verb = packet.info->verb;
    if (packet.bth.ack_request && (verb == Verb::Send || verb == Verb::Write)) ack_owed_ = true;
}

// A program in RTR learns that its peer is there from the first request.
void Responder::establish() {
    if (established_) return;
    established_ = true;
    if (qp_.state() == QpState::Rtr)
        qp_.services().events.qp_event(qp_, AsyncEventType::CommunicationEstablished);
}

void Responder::on_unexpected(const wire::Packet& packet, std::uint32_t packets,
                              PacketNumber number) {
    // The number before the first is that of a peer that asks whether we live.
    if (!has_begun() && number + 1 != expected_) note(NoticeKind::FirstPsn, number);
    if (is_copy(packet, number)) return qp_.services().counters.drop(DropReason::DuplicateReadBusy);
    // A wide packet that begins before what is expected is a duplicate, wherever it ends: its
    // sender hears how far we are, and sends the rest again.
    if (number < expected_) return replay(packet, number);
    on_gap(packet, packets, number);
}

// A requester that was told of the gap and asks for an acknowledgement may not have heard: it gets
// the last one again, which is no news to one that goes back.
void Responder::on_gap(const wire::Packet& packet, std::uint32_t packets, PacketNumber number) {
    Counters& counters = qp_.services().counters;
    counters.add(Counter::OutOfSequenceRequest);
    if (!hold(packet, packets, number)) counters.drop(DropReason::OutOfSequence);
    if (!nak_sent_) return say_gap();
    if (!holds_ || !packet.bth.ack_request) return;
    owe_lists(true);
    if (!nak_owed_ && has_begun()) ack_owed_ = true;
}

void Responder::say_gap() {
    nak_sent_ = true;
    nak_owed_ = !jobs_.empty() || owes_memory();  // What was asked before is answered before.
    if (!nak_owed_) send_ack(expected_, Syndrome::nak(NakCode::SequenceError));
}

// As if the network had lost it. The responses that hold up this queue pair's completions are
// followed by a word that makes the peer send it again; else the peer finds out by itself.
void Responder::on_full() {
    qp_.services().counters.drop(DropReason::CompletionsHeld);
    drop_held();
    first_came_ = true;
    nak_sent_ = nak_owed_ = !jobs_.empty() || owes_memory();
}

// IBTA 9.7.4.1.2: the order of FIRST, MIDDLE, LAST and ONLY.
Responder::Check Responder::check_sequence(const wire::Packet& packet) const {
    const wire::OpcodeInfo& info = *packet.info;
    const Message kind = info.verb == Verb::Send    ? Message::Send
                         : info.verb == Verb::Write ? Message::Write
                                                    : Message::None;
    const bool continues = !info.starts_message();
    const bool fits = continues ? message_ == kind : message_ == Message::None;
    if (fits) return {};
    return Refusal{Syndrome::nak(NakCode::InvalidRequest), Rule::OperationSequence};
}

Responder::Check Responder::check_operation(const wire::Packet& packet) const {
    mem::AccessSet need;
    switch (packet.info->verb) {
        case Verb::Send:
            break;
        case Verb::Write:
        case Verb::AtomicWrite:
            need = mem::Access::RemoteWrite;
            break;
        case Verb::ReadRequest:
            need = mem::Access::RemoteRead;
            break;
        case Verb::CompareSwap:
        case Verb::FetchAdd:
            need = mem::Access::RemoteAtomic;
            break;
        // The flush bits are in no queue pair attribute of this ABI; the region's key decides.
        case Verb::Flush:
            break;
        // Answers go to the requester, and a CNP to no machine: see RcMachine::on_packet().
        case Verb::ReadResponse:
        case Verb::Ack:
        case Verb::AtomicAck:
        case Verb::Cnp:
            ASSERT(false);
    }
    if (qp_.attributes().access.covers(need)) return {};
    Refusal refusal{Syndrome::nak(NakCode::InvalidRequest), Rule::OperationNotEnabled};
    refusal.need = need;
    return refusal;
}

// IBTA 9.7.4.1.7: every packet but the last is full; the last has at least a byte.
Responder::Check Responder::check_length(const wire::Packet& packet, std::uint32_t packets) const {
    const wire::OpcodeInfo& info = *packet.info;
    const std::size_t full = std::size_t{packets} * qp_.attributes().path_mtu;
    const std::size_t size = packet.payload.size();
    const Refusal refusal{Syndrome::nak(NakCode::InvalidRequest), Rule::MessageLength};
    Refusal mismatch{Syndrome::nak(NakCode::InvalidRequest), Rule::MtuMismatch};
    mismatch.length = static_cast<std::uint32_t>(size);
    if (info.verb == Verb::AtomicWrite) return size == 8 ? Check{} : Check{refusal};
    const bool has_length =
        info.verb == Verb::ReadRequest || (info.verb == Verb::Write && info.starts_message());
    const std::uint64_t told = has_length ? packet.reth().length : 0;
    if (told > kMessageBytesMax) return refusal;
    if (info.verb != Verb::Send && info.verb != Verb::Write) return {};
    if (packets != packets_for(mismatch.length, qp_.attributes().path_mtu)) return mismatch;
    if (!info.ends_message() && size != full) return mismatch;
    if (info.position == wire::Position::Last && size == 0) return refusal;
    if (info.verb == Verb::Send) return {};
    const std::uint64_t length = info.starts_message() ? told : write_length_;
    const std::uint64_t before = info.starts_message() ? 0 : received_bytes_;
    const bool adds_up = info.ends_message() ? before + size == length : before + size < length;
    return adds_up ? Check{} : Check{refusal};
}

// `lookup` is what the packet names, if it names memory.
Responder::Check Responder::check_rkey(const wire::Packet& packet, mem::Lookup& lookup) {
    const wire::OpcodeInfo& info = *packet.info;
    const mem::Memory& memory = qp_.services().memory;
    const PdId pd = pd_of(packet);
    if (is_atomic(info.verb)) {
        const wire::AtomicEth eth = packet.atomic_eth();
        if (eth.address % 8 != 0)
            return Refusal{Syndrome::nak(NakCode::InvalidRequest), Rule::Misaligned};
        lookup = memory.remote(pd, qp_.qpn(), eth.rkey, eth.address, 8, mem::Access::RemoteAtomic);
    } else if (info.has(wire::Header::Reth)) {
        // The whole range at once: a WRITE that would leave its region writes nothing at all.
        const wire::Reth reth = packet.reth();
        const mem::AccessSet need = info.verb == Verb::ReadRequest ? mem::Access::RemoteRead
                                    : info.verb == Verb::Flush     ? mem::AccessSet{}
                                                                   : mem::Access::RemoteWrite;
        lookup = memory.remote(pd, qp_.qpn(), reth.rkey, reth.address, reth.length, need);
    }
    if (lookup.fault == mem::Fault::None) return {};
    if (lookup.fault == mem::Fault::Far && qp_.services().copies != nullptr) {
        if (!is_atomic(info.verb) && info.verb != Verb::AtomicWrite) return {};
        // Copies to the host and back would not be atomic for anybody else.
        Refusal refusal = refuse_key(packet, lookup.fault, WcStatus::Success);
        refusal.syndrome = Syndrome::nak(NakCode::RemoteOperational);
        return refusal;
    }
    return refuse_key(packet, lookup.fault,
                      takes_receive(packet) ? WcStatus::LocalAccessError : WcStatus::Success);
}

// For the memory that it names, or that the first packet of its WRITE named.
Responder::Refusal Responder::refuse_key(const wire::Packet& packet, mem::Fault fault,
                                         WcStatus receive_status) {
    Refusal out{Syndrome::nak(NakCode::RemoteAccess), Rule::RemoteKey, receive_status, fault};
    out.need = mem::Access::RemoteWrite;
    if (is_atomic(packet.info->verb)) {
        const wire::AtomicEth eth = packet.atomic_eth();
        out.need = mem::Access::RemoteAtomic;
        write_length_ = 8;
        write_rkey_ = eth.rkey;
        write_address_ = eth.address;
    } else if (packet.info->has(wire::Header::Reth)) {
        const wire::Reth reth = packet.reth();
        if (packet.info->verb == Verb::ReadRequest) out.need = mem::Access::RemoteRead;
        write_length_ = reth.length;
        write_rkey_ = reth.rkey;
        write_address_ = reth.address;
    }
    return out;
}

Responder::Check Responder::check_resources(const wire::Packet& packet) {
    const Verb verb = packet.info->verb;
    if (verb == Verb::ReadRequest || is_atomic(verb) || verb == Verb::AtomicWrite ||
        verb == Verb::Flush) {
        if (qp_.attributes().dest_read_atomic_max > 0 && jobs_.size() < jobs_max()) return {};
        return Refusal{Syndrome::nak(NakCode::InvalidRequest), Rule::TooManyReads};
    }
    if (!takes_receive(packet) || receive_held_ || take_receive(packet)) return {};
    return Refusal{Syndrome::rnr(qp_.attributes().min_rnr_timer)};
}

// What was asked before is answered before, a turn's packets at a time.
void Responder::refuse(Instant now, const Refusal& refusal) {
    drop_held();  // The peer sends it again, or there is nothing more to come.
    if (jobs_.empty() && !owes_memory()) return pass(now, refusal);
    verdict_ = refusal;
    nak_sent_ = true;
}

void Responder::pass(Instant now, const Refusal& verdict) {
    Services& services = qp_.services();
    verdict_.reset();
    send_ack(expected_, verdict.syndrome);
    if (verdict.syndrome.kind() != Syndrome::Kind::Rnr) return fail(now, verdict);
    services.counters.add(Counter::SentRnr);
    services.counters.drop(DropReason::NoReceive);
    note(NoticeKind::NoReceive, expected_);
    nak_sent_ = first_came_ = true;
}

mem::Attempt Responder::attempt_of(const Refusal& verdict) const {
    if (verdict.rule == Rule::ReceiveKey)
        return first_bad(qp_.services().memory, receive_pd_, receive_.list(),
                         mem::Access::LocalWrite);
    if (verdict.rule == Rule::RemoteKey)
        return {write_rkey_.raw, verdict.need, write_address_, write_length_};
    return {0, verdict.need, 0, 0};
}

void Responder::fail(Instant now, const Refusal& verdict) {
    last_word_ = verdict.syndrome;
    last_word_valid_ = true;
    Reason reason;
    reason.rule = verdict.rule;
    reason.fault = verdict.fault;
    reason.syndrome = verdict.syndrome.raw;
    reason.at_responder = true;
    reason.length = verdict.length;
    reason.attempt = attempt_of(verdict);
    reason.path_mtu = qp_.attributes().path_mtu;
    reason.psn = expected_.psn();
    reason.wr_id = receive_held_ ? receive_.wr_id : 0;
    reason.status = verdict.receive_status;
    if (reason.status == WcStatus::Success)  // The peer's alone; as it will call it.
        reason.status = status_of(verdict.syndrome.nak_code());
    const bool access = verdict.syndrome == Syndrome::nak(NakCode::RemoteAccess) ||
                        verdict.rule == Rule::InvalidateRefused;
    qp_.services().events.qp_event(
        qp_, access ? AsyncEventType::QpAccessError : AsyncEventType::QpRequestError);
    // A receive in hand that is not at fault is flushed like the others.
    const bool receive_at_fault = verdict.receive_status != WcStatus::Success;
    if (!receive_held_ || !receive_at_fault || receive_lost()) return qp_.fail(now, reason);
    receive_held_ = false;
    qp_.fail_receive(now, reason, receive_completion(now), receive_source().cq);
}

void Responder::note(NoticeKind kind, PacketNumber number) const {
    Notice notice;
    notice.kind = kind;
    notice.state = qp_.state();
    notice.qpn = qp_.qpn();
    notice.peer = qp_.attributes().destination_qpn;
    notice.psn = number.psn();
    notice.expected = expected_.psn();
    notice.source = qp_.attributes().address.destination;
    qp_.services().reasons.notices.note(notice);
}

void Responder::report(Progress& out) const {
    out.expected = expected_.psn();
    out.msn = msn_;
}

void Responder::repeat_last_word(const wire::Packet& packet) {
    if (last_word_valid_ && packet.bth.psn == expected_.psn()) send_ack(expected_, last_word_);
}

}  // namespace feroce::transport::rc
