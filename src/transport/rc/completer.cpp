// The answers to what the requester sent: acknowledgements, NAKs, READ and atomic responses. Moves
// the oldest packet forward, retires requests in post order, and decides when to go back.
#include <algorithm>

#include "base/assert.hpp"
#include "base/probe.hpp"
#include "mem/scatter.hpp"
#include "transport/rc/credits.hpp"
#include "transport/rc/nak_status.hpp"
#include "transport/rc/recovery.hpp"
#include "transport/rc/requester.hpp"

namespace feroce::transport::rc {

namespace {

constexpr int kRunMax = 64;

}  // namespace

void Requester::on_response(Instant now, const wire::Packet& packet, std::uint32_t packets) {
    if (is_failing()) return qp_.services().counters.drop(DropReason::StaleAck);
    const PacketNumber number = flight_.una.nearest(packet.bth.psn);
    switch (packet.info->verb) {
        case wire::Verb::ReadResponse:
        case wire::Verb::AtomicAck:
            if (has_board_) [[unlikely]]
                note_answer(now, number);
            if (qp_.state() == QpState::Err) return;  // It spent the last retry.
            take_response(now, packet, number, packets);
            if (qp_.recovery() != nullptr) [[unlikely]]
                take_held(now);
            return;
        default:
            break;
    }
    if (!packet.payload.empty()) [[unlikely]]
        return take_list(now, packet.payload);
    const wire::Aeth aeth = packet.aeth();
    switch (aeth.syndrome.kind()) {
        case wire::Syndrome::Kind::Ack:
            return on_ack(now, number, aeth);
        case wire::Syndrome::Kind::Rnr:
            return on_rnr(now, number, aeth.syndrome.value());
        case wire::Syndrome::Kind::Nak:
            return on_nak(now, number, aeth.syndrome);
        case wire::Syndrome::Kind::Reserved:
            break;
    }
    qp_.services().counters.drop(DropReason::UnexpectedResponse);
}

void Requester::take_response(Instant now, const wire::Packet& packet, PacketNumber number,
                              std::uint32_t packets) {
    if (packet.info->verb == wire::Verb::ReadResponse)
        on_read_response(now, packet, number, packets);
    else
        on_atomic_response(now, packet, number);
}

bool Requester::expects(Psn psn) const {
    return was_sent(flight_.una.nearest(psn));
}

// So there is a window: nothing was sent without one.
bool Requester::was_sent(PacketNumber number) const {
    return flight_.una <= number && number < flight_.sent_end;
}

// The first packet in [una, end) that waits for a response of its own; `end` if there is none.
PacketNumber Requester::first_unanswered_before(PacketNumber end) const {
    const SendQueue& queue = qp_.send_queue();
    for (std::uint64_t i = queue.head(); i != queue.tail(); ++i) {
        const SendWqe& wqe = queue.at(i);
        if (!wqe.numbered || end <= wqe.first_packet) break;
        // One that is answered may still wait for its bytes to land.
        if (needs_response(wqe.op) && flight_.una < wqe.end())
            return std::max(flight_.una, wqe.first_packet);
    }
    return end;
}

void Requester::on_ack(Instant now, PacketNumber number, wire::Aeth aeth) {
    if (!was_sent(number)) {
        // The credits of a repeated acknowledgement may be news: a receive was posted meanwhile.
        if (number + 1 == flight_.una) {
            if (qp_.recovery() != nullptr) [[unlikely]]
                note_echo(now);
            return update_credits(aeth);
        }
        return qp_.services().counters.drop(DropReason::StaleAck);
    }
    const PacketNumber end = number + 1;
    const PacketNumber reach = first_unanswered_before(end);
    advance(now, reach);
    update_credits(aeth);
    if (qp_.state() == QpState::Err) return;
    if (reach == end) return check_promise();
    // IBTA 9.7.5.1.2: acknowledging past an unanswered READ means its response was lost.
    if (may_judge()) {
        note_acknowledged(end);
        return judge_answers(now, end);
    }
    if (gap_reported_) return;
    gap_reported_ = true;
    qp_.services().counters.add(Counter::CompleterRetry);
    qp_.services().counters.add(Counter::ImpliedNaks);
    go_back(now, Counter::ResentByResponse, Rule::RetryLimit, aeth.syndrome.raw);
}

void Requester::update_credits(wire::Aeth aeth) {
    const std::uint8_t field = aeth.syndrome.value();
    credits_.known = field < kCreditCounts.size();
    if (credits_.known) credits_.limit = widen(credits_.next, aeth.msn) + kCreditCounts[field];
}

void Requester::on_nak(Instant now, PacketNumber number, wire::Syndrome syndrome) {
    // A sequence NAK names the packet that is missing, which may be one we sent long ago.
    if (!was_sent(number)) return qp_.services().counters.drop(DropReason::StaleAck);
    FEROCE_PROBE3(nak, qp_.qpn().raw, syndrome.raw, number.psn().raw());
    const PacketNumber reach = first_unanswered_before(number);
    const bool sequence = syndrome.nak_code() == wire::NakCode::SequenceError;
    if (sequence) note_taken(number);
    if (sequence && is_being_repaired(now, number)) return go_on_repairing(now, number);
    if (sequence && hears_lists()) return on_named_gap(now, reach, number);
    if (sequence) say_hello();
    // All that was repeated has come, and the next is missing too: twice as many from now on. A
    // peer that goes back is not told by that.
    const bool beside =
        probe_.is_repair && probe_.repeated > 0 && number == flight_.una + probe_.repeated;
    const int run = beside ? std::min(2 * probe_.repeated, kRunMax) : 1;
    if (beside && sequence) probe_.of_message = false;
    // One NAK a gap: that of this one came twice. The timeout still counts.
    const bool again = probe_.is_repair && number == flight_.una;
    advance(now, reach);
    if (qp_.state() == QpState::Err) return;
    if (sequence || reach != number) {
        qp_.services().counters.add(Counter::ReceivedSequenceError);
        if (!sequence || reach != number || !may_repair()) {
            qp_.window()->on_loss(now);
            return go_back(now, Counter::ResentBySequence, Rule::PeerRefused, syndrome.raw);
        }
        note_loss(now, qp_.send_queue().at(qp_.send_queue().head()), flight_.una);
        if (again || spend_retry(now, Rule::PeerRefused, syndrome.raw))
            repair(Counter::ResentBySequence, static_cast<std::uint8_t>(run));
        return;
    }
    fail_head(now, Rule::PeerRefused, status_of(syndrome.nak_code()), syndrome.raw);
}

// The peer has more than it ever had: patience starts again, even if answers of READs before that
// are missing, so that nothing new is acknowledged.
void Requester::note_taken(PacketNumber number) {
    if (number <= flight_.taken) return;
    flight_.taken = number;
    retries_left_ = qp_.attributes().retry_count;
}

void Requester::on_rnr(Instant now, PacketNumber number, std::uint8_t timer) {
    if (!was_sent(number)) return qp_.services().counters.drop(DropReason::StaleAck);
    qp_.services().counters.add(Counter::ReceivedRnr);
    if (probe_.is_repair) probe_.of_message = false;  // What follows is not asked for.
    advance(now, first_unanswered_before(number));
    if (qp_.state() == QpState::Err) return;
    constexpr std::uint8_t kForEver = 7;
    if (qp_.attributes().rnr_retry != kForEver) {
        if (rnr_left_ == 0) {
            qp_.services().counters.add(Counter::RnrRetryExceeded);
            return fail_head(now, Rule::RnrLimit, WcStatus::RnrRetryExceededError,
                             wire::Syndrome::rnr(timer).raw);
        }
        --rnr_left_;
    }
    rewind(Counter::ResentByRnr);
    rnr_until_ = now + std::chrono::microseconds(wire::rnr_timer_us(timer));
}

// The READ or atomic that the packet belongs to, if it is the next one that must be answered. The
// packet was sent and is not answered, so a request in the queue has its number.
std::optional<std::uint64_t> Requester::awaiting_response(PacketNumber number) {
    const SendQueue& queue = qp_.send_queue();
    for (std::uint64_t i = queue.head();; ++i) {
        const SendWqe& wqe = queue.at(i);
        if (number < wqe.end()) return needs_response(wqe.op) ? std::optional(i) : std::nullopt;
        if (needs_response(wqe.op) && flight_.una < wqe.end())
            return std::nullopt;  // An earlier one is still open.
    }
}

void Requester::on_read_response(Instant now, const wire::Packet& packet, PacketNumber number,
                                 std::uint32_t packets) {
    if (!was_sent(number) || !was_sent(number + (packets - 1)))
        return qp_.services().counters.drop(DropReason::StaleAck);
    const PacketNumber open = first_unanswered_before(number + 1);
    if (open == number + 1) return qp_.services().counters.drop(DropReason::UnexpectedResponse);
    if (open != number) return on_early_response(now, packet, number, packets);
    const std::optional<std::uint64_t> index = awaiting_response(number);
    const SendWqe* const wqe = index ? &qp_.send_queue().at(*index) : nullptr;
    const bool is_atomic =
        wqe != nullptr && (wqe->op == SendOp::CompareSwap || wqe->op == SendOp::FetchAdd);
    if (wqe == nullptr || is_atomic)
        return qp_.services().counters.drop(DropReason::UnexpectedResponse);
    const std::uint64_t mtu = qp_.attributes().path_mtu;
    const std::uint64_t offset = (number - wqe->first_packet) * mtu;
    const std::uint64_t expected =
        wqe->op == SendOp::Read ? std::min(packets * mtu, wqe->length - offset) : 0;
    if (probe_.is_repair) probe_.of_message = false;  // Nothing before it is lost.
    advance(now, number);  // What was sent before is acknowledged by implication.
    if (qp_.state() == QpState::Err) return;
    const ByteView payload = packet.payload;
    // One that says to stand for more would acknowledge what follows the request.
    const bool counts_right =
        packets == packets_for(static_cast<std::uint32_t>(expected), qp_.attributes().path_mtu);
    if (payload.size() != expected || !counts_right)
        return fail_response(now, payload.size(), expected);
    if (store_response(now, *index, offset, payload)) advance(now, number + packets);
}

void Requester::on_atomic_response(Instant now, const wire::Packet& packet, PacketNumber number) {
    if (!was_sent(number)) return qp_.services().counters.drop(DropReason::StaleAck);
    const std::optional<std::uint64_t> index = awaiting_response(number);
    const SendWqe* const wqe = index ? &qp_.send_queue().at(*index) : nullptr;
    const bool is_atomic =
        wqe != nullptr && (wqe->op == SendOp::CompareSwap || wqe->op == SendOp::FetchAdd);
    const bool may_keep = wqe == nullptr && qp_.services().hold_budget != nullptr;
    if (may_keep && first_unanswered_before(number) != number)
        return on_early_response(now, packet, number, 1);
    if (!is_atomic) return qp_.services().counters.drop(DropReason::UnexpectedResponse);
    if (probe_.is_repair) probe_.of_message = false;
    advance(now, number);
    if (qp_.state() == QpState::Err) return;
    const std::uint64_t original = packet.atomic_ack().original;
    if (store_response(now, *index, 0, std::as_bytes(std::span(&original, 1))))
        advance(now, number + 1);
}

// A response that is too long or, with more to come, too short for our path MTU was cut by another.
void Requester::fail_response(Instant now, std::size_t length, std::uint64_t expected) {
    const std::uint32_t mtu = qp_.attributes().path_mtu;
    const bool mismatch = length > mtu || expected == mtu;
    Reason reason;
    reason.rule = mismatch ? Rule::MtuMismatch : Rule::ResponseMalformed;
    reason.status = WcStatus::BadResponseError;
    reason.length = static_cast<std::uint32_t>(length);
    reason.path_mtu = mtu;
    fail_head(now, reason);
}

// Into the buffers of the oldest request that is not answered.
bool Requester::store_response(Instant now, std::uint64_t index, std::uint64_t offset,
                               ByteView bytes) {
    if (bytes.empty()) return true;
    const SendQueue& queue = qp_.send_queue();
    mem::Fault fault =
        mem::scatter(qp_.services().memory, qp_.init().pd, queue.sges(index), offset, bytes);
    if (fault == mem::Fault::Far) [[unlikely]]
        fault = land(index, offset, bytes);
    if (far_lands_ && fault == mem::Fault::None && offset + bytes.size() == queue.at(index).length)
        fault = close_landing(index);
    if (fault == mem::Fault::None) return true;
    drop_landings(index);
    fail_head(now, fault == mem::Fault::Unmapped ? Rule::LocalMemoryGone : Rule::LocalKey,
              WcStatus::LocalProtectionError, 0, fault);
    return false;
}

// Everything before `to` is acknowledged.
void Requester::advance(Instant now, PacketNumber to) {
    if (to <= flight_.una) return;
    const PacketNumber sent_before = position_number();
    if (has_board_ && sample_.packet < to) sample_.stop();  // It may have waited there.
    const bool is_lost = rest_is_lost(to);
    const Counter cause = probe_.cause;
    if (probe_.is_repair) [[unlikely]]
        judge_peer(to);
    settle_flight(now, to);
    take_sample(now);
    note_progress();
    retire_finished(now);
    if (qp_.state() == QpState::Err) return;
    if (is_lost && flight_.bytes > 0) {
        qp_.window()->on_loss(now);
        rewind(cause);
    }
    // An answer to what was sent before a rewind may overtake the position: nothing to resend
    // there.
    if (sent_before < flight_.una) rewind(position_.resend_cause);
    if (flight_.bytes > 0) arm(now);
}

// What the packets [from, to) count in the window.
std::uint32_t Requester::bytes_between(PacketNumber from, PacketNumber to) const {
    std::uint32_t bytes = 0;
    const SendQueue& queue = qp_.send_queue();
    for (std::uint64_t i = queue.head(); i != queue.tail(); ++i) {
        const SendWqe& wqe = queue.at(i);
        if (!wqe.numbered || to <= wqe.first_packet) break;
        const PacketNumber begin = std::max(from, wqe.first_packet);
        const PacketNumber end = std::min(to, wqe.end());
        if (begin < end) bytes += cost(wqe, begin - wqe.first_packet, end - wqe.first_packet);
    }
    return bytes;
}

// What is acknowledged leaves the window.
void Requester::settle_flight(Instant now, PacketNumber to) {
    const PacketNumber position = position_number();
    const std::uint32_t told = has_board_ ? forget_told(now, to) : 0;
    const std::uint32_t acknowledged =
        to < position ? bytes_between(flight_.una, to) - told : flight_.bytes;
    ASSERT(acknowledged <= flight_.bytes);
    flight_.bytes -= acknowledged;
    qp_.window()->on_acked(now, acknowledged);
    flight_.una = to;
    if (has_board_) [[unlikely]]
        count_oldest();
    for (; !flight_.asked.empty() && flight_.asked.front().end <= to; flight_.asked.pop())
        if (flight_.asked.front().executed) --qp_.recovery()->executed;
}

void Requester::take_sample(Instant now) {
    if (!sample_.runs() || flight_.una <= sample_.packet) return;
    qp_.window()->on_rtt(now, now - sample_.sent);
    qp_.services().counters.round_trips.add(now - sample_.sent);
    sample_.stop();
}

// The peer is there: all patience starts again.
void Requester::note_progress() {
    retries_left_ = qp_.attributes().retry_count;
    rnr_left_ = qp_.attributes().rnr_retry;
    gap_reported_ = false;
    retry_deadline_ = kNever;
    probe_ = Probe{};
    tests_peer_ = false;
}

void Requester::retire_finished(Instant now) {
    SendQueue& queue = qp_.send_queue();
    while (!queue.empty()) {
        const SendWqe& wqe = queue.at(queue.head());
        if (!wqe.numbered || flight_.una < wqe.end()) break;
        if (far_lands_ && lands_for(queue.head())) break;
        if (wqe.packets == 0 && !wqe.executed) break;
        has_carried_full_ |= wqe.length >= qp_.attributes().path_mtu;
        qp_.complete_send(now, wqe, WcStatus::Success, 0);
        queue.retire();
    }
    if (position_.index < queue.head()) {
        position_.index = queue.head();
        position_.packet = 0;
    }
    fail_if_faulty_head(now);
}

// The position goes back to una. What was in flight is forgotten: all of it will be sent again.
void Requester::rewind(Counter cause) {
    position_.resend_cause = cause;
    if (qp_.recovery() != nullptr) qp_.recovery()->rewound_end = flight_.sent_end;
    qp_.window()->on_forgotten(flight_.bytes);
    flight_.bytes = 0;
    forget_asked();
    sample_.stop();
    far_gathers_ = false;
    probe_.due = probe_.of_message = probe_.is_repair = false;
    probe_.repeated = 0;
    drop_board();
    drop_held();
    retry_deadline_ = probe_.deadline = kNever;
    flight_.since_ack_request = 0;
    seek_unanswered();
}

void Requester::seek_unanswered() {
    const SendQueue& queue = qp_.send_queue();
    position_.index = queue.head();
    position_.packet = 0;
    if (queue.empty()) return;
    const auto is_answered = [&](const SendWqe& wqe) {  // And waits for its bytes to land.
        return wqe.numbered && wqe.packets > 0 && wqe.end() <= flight_.una;
    };
    while (far_lands_ && position_.index != queue.tail() && is_answered(queue.at(position_.index)))
        ++position_.index;
    if (position_.index == queue.tail()) return;
    const SendWqe& wqe = queue.at(position_.index);
    if (wqe.numbered && wqe.packets > 0)
        position_.packet = static_cast<std::uint32_t>(flight_.una - wqe.first_packet);
}

// A retry is a resend. With nothing in flight the position is back already, and nothing was sent
// since: an answer that asks for it again is about the same flight, and is not counted.
void Requester::go_back(Instant now, Counter cause, Rule rule, std::uint8_t syndrome) {
    if (flight_.bytes == 0 || spend_retry(now, rule, syndrome)) rewind(cause);
}

bool Requester::spend_retry(Instant now, Rule rule, std::uint8_t syndrome) {
    if (retries_left_ > 0) {
        --retries_left_;
        return true;
    }
    qp_.services().counters.add(Counter::RetryExceeded);
    fail_head(now, rule, WcStatus::RetryExceededError, syndrome);
    return false;
}

void Requester::fail_head(Instant now, Rule rule, WcStatus status, std::uint8_t syndrome,
                          mem::Fault fault) {
    Reason reason;
    reason.rule = rule;
    reason.status = status;
    reason.fault = fault;
    reason.syndrome = syndrome;
    reason.retries =
        rule == Rule::RnrLimit ? qp_.attributes().rnr_retry : qp_.attributes().retry_count;
    fail_head(now, reason);
}

void Requester::fail_head(Instant now, Reason reason) {
    SendQueue& queue = qp_.send_queue();
    ASSERT(!queue.empty());
    if (postpone(reason)) return;
    reason.psn = flight_.una.psn();
    const SendWqe& head = queue.at(queue.head());
    reason.wr_id = head.wr_id;
    const std::uint32_t path_mtu = qp_.attributes().path_mtu;
    if (reason.rule == Rule::RetryLimit && head.length >= path_mtu && !has_carried_full_)
        reason.path_mtu = path_mtu;
    stop();
    qp_.fail_send(now, reason);
}

void Requester::fail_if_faulty_head(Instant now) {
    SendQueue& queue = qp_.send_queue();
    if (queue.empty() || qp_.state() == QpState::Err) return;
    const SendWqe& wqe = queue.at(queue.head());
    if (wqe.fault == mem::Fault::None) return;
    // Packets of it that did go out are never acknowledged as a message; it is the oldest: fail.
    fail_head(now, wqe.fault == mem::Fault::Unmapped ? Rule::LocalMemoryGone : Rule::LocalKey,
              WcStatus::LocalProtectionError, 0, wqe.fault);
}

}  // namespace feroce::transport::rc
