// Repairs: after a loss only what is missing is sent again, to a peer that keeps what follows it.
// Such a peer is told from one that goes back by what it acknowledges; see PeerKind. Responses that
// came before one that is missing are kept here, whatever the peer does: it has answered all of
// them. See ADR 34.
#include <algorithm>

#include "transport/rc/recovery.hpp"
#include "transport/rc/requester.hpp"

namespace feroce::transport::rc {

// Whether the oldest packet alone may be sent again, now that the peer has refused what follows it.
// The answer to a READ or an atomic says nothing about what follows, so the first repair that tries
// a peer is one of a message.
bool Requester::may_repair() {
    if (flight_.bytes == 0 || far_lands_ || !qp_.make_recovery()) return false;
    PeerKind& peer = qp_.recovery()->peer;
    const SendWqe& oldest = qp_.send_queue().at(qp_.send_queue().head());
    return needs_response(oldest.op) ? peer.keeps() : peer.may_keep();
}

// A peer that is not known is tried with nothing behind the repair: one that goes back would refuse
// that too.
void Requester::repair(Counter cause, std::uint8_t run) {
    probe_.due = probe_.is_repair = true;
    probe_.cause = cause;
    probe_.run = run;
    probe_.repeated = 0;
    probe_.of_message = false;
    sample_.stop();  // What is in flight waits for the repair.
    tests_peer_ = cause == Counter::ResentBySequence && !qp_.recovery()->peer.is_known();
}

// The NAK was on its way when the packet that it names was sent again.
bool Requester::is_being_repaired(Instant now, PacketNumber number) const {
    if (!probe_.is_repair) return false;
    if (probe_.due && number == flight_.una) return true;
    const bool repeated = number == flight_.una
                              ? probe_.repeated > 0
                              : probe_.of_message && number < flight_.una + probe_.repeated;
    return repeated && now <= qp_.recovery()->repeated_at + qp_.window()->smoothed_rtt();
}

void Requester::go_on_repairing(Instant now, PacketNumber number) {
    if (number == flight_.una) return;
    Probe rest = probe_;
    rest.repeated -= static_cast<std::uint8_t>(number - flight_.una);
    const bool tests = tests_peer_;
    advance(now, number);
    if (qp_.state() == QpState::Err || flight_.bytes == 0) return;
    probe_ = rest;
    tests_peer_ = tests;
    arm(now);
}

// No more than the probe is acknowledged: what followed it the first time is lost, or the peer did
// not keep it. A peer that was only slow acknowledges more.
bool Requester::rest_is_lost(PacketNumber to) const {
    return probe_.of_message && to == flight_.una + probe_.repeated;
}

// Everything before `to` is acknowledged.
void Requester::judge_peer(PacketNumber to) {
    if (!probe_.of_message) return;
    PeerKind& peer = qp_.recovery()->peer;
    const PacketNumber repeated_end = flight_.una + probe_.repeated;
    if (repeated_end < to) peer.note_kept();
    if (repeated_end == to && to < position_number()) peer.note_went_back();
}

// The last acknowledgement again. A peer that keeps packets says so that it still waits for the
// oldest: the NAK was lost, or the repair.
void Requester::note_echo(Instant now) {
    Recovery& recovery = *qp_.recovery();
    if (hears_lists()) return;  // One comes with it.
    if (!recovery.peer.keeps() || flight_.bytes == 0 || probe_.due || far_lands_) return;
    if (needs_response(qp_.send_queue().at(qp_.send_queue().head()).op)) return;
    const Duration round_trip = qp_.window()->smoothed_rtt();
    constexpr std::uint8_t kEchoesOfOne = 2;  // One is the answer to a duplicate.
    if (probe_.repeated == 0) {
        if (++probe_.echoes < kEchoesOfOne) return;
    } else if (now < recovery.repeated_at + round_trip * 5 / 4) {
        return;
    }
    repair(Counter::ResentBySequence, 1);
}

// Past a READ or an atomic without an answer: counts when that has come.
void Requester::note_acknowledged(PacketNumber end) {
    if (!qp_.make_recovery()) return;
    qp_.recovery()->acked_end = std::max(qp_.recovery()->acked_end, end);
}

// By a response: the packet is of a READ or an atomic. It was sent and is not acknowledged.
bool Requester::is_answered(PacketNumber number) const {
    return needs_response(qp_.send_queue().at(index_of(number)).op);
}

// One of the other kind would be dropped in its turn, and never be asked for again.
bool Requester::fits(const wire::Packet& packet, PacketNumber number) const {
    const SendOp op = qp_.send_queue().at(index_of(number)).op;
    const bool is_atomic = op == SendOp::CompareSwap || op == SendOp::FetchAdd;
    return is_atomic == (packet.info->verb == wire::Verb::AtomicAck);
}

bool Requester::hold_response(Instant now, const wire::Packet& packet, PacketNumber number,
                              std::uint32_t packets) {
    if (packets != 1 || position_number() <= number || !is_answered(number)) return false;
    if (!fits(packet, number) || !may_judge()) return false;
    Recovery& recovery = *qp_.recovery();
    if (!recovery.responses.hold(flight_.una, number, packet, qp_.attributes().path_mtu))
        return false;
    holds_ = true;
    const SendWqe& wqe = qp_.send_queue().at(index_of(number));
    const std::uint64_t at = number - wqe.first_packet;
    const std::uint32_t bytes = recovery.board->note_kept(number, cost(wqe, at, at + 1));
    flight_.bytes -= bytes;
    qp_.window()->on_acked(now, bytes);
    count_answer(number);
    return true;
}

// A response before this one is missing. If none can be kept, all are asked for again.
void Requester::on_early_response(Instant now, const wire::Packet& packet, PacketNumber number,
                                  std::uint32_t packets) {
    const bool held = hold_response(now, packet, number, packets);
    if (!held && (holds_ || gap_reported_)) qp_.services().counters.drop(DropReason::OutOfSequence);
    if (!holds_ && gap_reported_) return;
    advance(now, first_unanswered_before(number));
    if (qp_.state() == QpState::Err) return;
    if (holds_ && has_board_ && !far_lands_) return judge_answers(now, number);
    gap_reported_ = true;
    qp_.services().counters.add(Counter::CompleterRetry);
    qp_.services().counters.add(Counter::ImpliedNaks);
    qp_.window()->on_loss(now);
    go_back(now, Counter::ResentByResponse, Rule::RetryLimit, 0);
}

// After a response: those that waited for it follow, then what was acknowledged behind them.
void Requester::take_held(Instant now) {
    Recovery& recovery = *qp_.recovery();
    OutOfOrderStore::Taken next;
    if (holds_) {
        recovery.responses.drop_before(flight_.una);
        holds_ = !recovery.responses.empty();
    }
    while (holds_) {
        const PacketNumber first = recovery.responses.first_from(flight_.una);
        if (first_unanswered_before(first + 1) != first) break;
        recovery.responses.take(first, next);
        holds_ = !recovery.responses.empty();
        take_response(now, next.packet, first, 1);
    }
    if (qp_.state() == QpState::Err || is_failing()) return;
    if (flight_.una < recovery.acked_end) advance(now, first_unanswered_before(recovery.acked_end));
    if (!holds_ || qp_.state() == QpState::Err) return;
    advance(now, first_unanswered_before(recovery.responses.first_from(flight_.una)));
}

void Requester::drop_held() {
    tests_peer_ = false;
    if (qp_.recovery() == nullptr) return;
    if (holds_) qp_.recovery()->responses.clear();
    holds_ = false;
}

}  // namespace feroce::transport::rc
