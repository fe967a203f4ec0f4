// What holds between any two calls of the requester and of the responder.
#include "transport/rc/recovery.hpp"
#include "transport/rc/requester.hpp"
#include "transport/rc/responder.hpp"

namespace feroce::transport::rc {

namespace {

// As many packets as a PSN can tell apart from those that are already answered.
constexpr std::uint64_t kOutstandingMax = Psn::kCount / 2;

}  // namespace

const char* Requester::check_invariants() const {
    if (qp_.state() != QpState::Rts && qp_.state() != QpState::Sqd) return check_stopped();
    if (const char* broken = check_numbers()) return broken;
    if (far_lands_ != (far_work() != nullptr && !far_work()->landings.empty()))
        return "answers land, but nobody knows";
    return is_failing() ? check_stopped() : check_flight();
}

const char* Requester::check_stopped() const {
    if (flight_.bytes != 0 || !flight_.asked.empty()) return "stopped with packets in flight";
    if (has_board_ || sends_again_) return "stopped with packets to be sent again";
    if (deadline() != kNever || probe_.due) return "stopped with a timer running";
    if (holds_ || tests_peer_) return "stopped with responses kept or a repair on its way";
    return check_held();
}

// Requests own the numbers [una, fresh) without a gap, in post order.
const char* Requester::check_numbers() const {
    const SendQueue& queue = qp_.send_queue();
    if (position_.index < queue.head() || position_.index > queue.tail())
        return "the position is outside of the send queue";
    PacketNumber next = flight_.una;
    bool numbered = true;
    for (std::uint64_t i = queue.head(); i != queue.tail(); ++i) {
        const SendWqe& wqe = queue.at(i);
        if (wqe.numbered && !numbered) return "a request has numbers, but one before it has none";
        numbered = wqe.numbered;
        if (!numbered) continue;
        const bool is_head = i == queue.head();
        if (is_head ? wqe.first_packet > next : wqe.first_packet != next)
            return "there is a gap in the requests' numbers";
        if (is_head && wqe.packets > 0 && wqe.end() <= flight_.una && !far_lands_)
            return "an answered request is not retired";
        next = wqe.end();
    }
    if (next != flight_.fresh) return "numbers are owned by no request";
    const PacketNumber position = position_number();
    if (position < flight_.una) return "the position is before the oldest unanswered packet";
    if (position > flight_.sent_end) return "the position is past what was sent";
    if (flight_.sent_end > flight_.fresh) return "packets were sent that no request owns";
    if (flight_.una + kOutstandingMax < flight_.sent_end) return "too many packets outstanding";
    return nullptr;
}

const char* Requester::check_flight() const {
    if (has_board_ != (qp_.recovery() != nullptr && qp_.recovery()->board != nullptr))
        return "something was told, but nobody knows";
    const std::uint32_t kept = has_board_ ? qp_.recovery()->board->bytes_out() : 0;
    if (flight_.bytes + kept != bytes_between(flight_.una, position_number()))
        return "the bytes in flight are not those of the packets in flight";
    if (flight_.bytes > 0 && qp_.window() == nullptr) return "packets in flight without a window";
    if (flight_.bytes > 0 && flight_.bytes > qp_.window()->in_flight())
        return "more bytes in flight than the window knows of";
    PacketNumber before = flight_.una;
    std::size_t executed = 0;
    for (std::size_t i = 0; i < flight_.asked.size(); ++i) {
        const PacketNumber end = flight_.asked[i].end;
        executed += flight_.asked[i].executed;
        if (end <= before || end > flight_.sent_end) return "outstanding READs are not in order";
        before = end;
    }
    if (executed != (qp_.recovery() == nullptr ? 0 : qp_.recovery()->executed))
        return "executed requests are counted wrong";
    const bool has_timeout = qp_.attributes().timeout != 0;
    if (flight_.bytes > 0 && has_timeout && retry_deadline_ == kNever)
        return "packets in flight without a timer";
    if (flight_.bytes == 0 && (retry_deadline_ != kNever || probe_.deadline != kNever))
        return "a timer runs for nothing";
    if (probe_.sending) return "a probe did not end";
    if (tests_peer_ && (flight_.bytes == 0 || !probe_.is_repair))
        return "an answer is waited for that nobody owes";
    return check_held();
}

// Kept responses lie between the oldest that is missing and what was sent.
const char* Requester::check_held() const {
    const Recovery* const recovery = qp_.recovery();
    if (holds_ != (recovery != nullptr && !recovery->responses.empty()))
        return "responses are kept, but nobody knows";
    if (!has_board_ && recovery != nullptr && !recovery->asked_again.empty())
        return "answers were asked for again, but nobody knows which";
    if (!holds_) return nullptr;
    if (!has_board_) return "responses are kept, but what is missing is not known";
    const auto [first, last] = recovery->responses.bounds();
    if (first <= flight_.una) return "a response is kept that could be taken";
    if (last >= flight_.sent_end) return "a response is kept for what was not sent";
    return nullptr;
}

const char* Responder::check_invariants() const {
    const QpState state = qp_.state();
    if (state != QpState::Rtr && state != QpState::Rts && state != QpState::Sqd) {
        if (holds_) return "stopped with requests kept";
        return !wants_to_send() && !receive_held_ ? nullptr
                                                  : "stopped with an answer owed or a receive held";
    }
    if (const char* broken = check_held()) return broken;
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
        const Job& job = jobs_[i];
        const std::uint32_t packets = job.kind == JobKind::Read ? read_packets(job.left) : 1;
        if (expected_ < job.next + packets) return "an answer to what was not yet asked";
    }
    for (std::size_t i = 0; i < atomics_.size(); ++i) {
        const PacketNumber after = i + 1 < atomics_.size() ? atomics_[i + 1].number : expected_;
        if (after <= atomics_[i].number) return "remembered atomics are not in order";
    }
    if (const char* broken = check_far()) return broken;
    return verdict_ ? nullptr : check_message();  // A refused message is as far as it came.
}

// Kept requests lie behind the one that is missing, which is not among them. None are behind a
// refusal: the peer sends them again.
const char* Responder::check_held() const {
    const Recovery* const recovery = qp_.recovery();
    if (holds_ != (recovery != nullptr && !recovery->requests.empty()))
        return "requests are kept, but nobody knows";
    if (!holds_) return nullptr;
    const auto [first, last] = recovery->requests.bounds();
    if (first <= expected_) return "a request is kept that could be executed";
    if (last >= expected_ + OutOfOrderStore::kPackets) return "a request is kept too far ahead";
    if (verdict_) return "requests are kept behind one that is refused";
    if (has_pieces()) return "requests are kept behind bytes on their way to far memory";
    return nullptr;
}

// What is acknowledged is in memory, but for messages that have not ended.
const char* Responder::check_far() const {
    if (far_work() == nullptr)
        return far_busy_ ? "copies are on their way, but there are none" : nullptr;
    if (!far_busy_ && !far_work()->idle())
        return "copies are on their way, and nobody waits for them";
    std::size_t bytes = 0, waiting = 0;
    for (const FarInbound::Piece& piece : far_work()->pieces) {
        bytes += piece.cost();
        if (piece.ends && acknowledged(piece.last)) return "acknowledged what is not in memory";
        if (!piece.closed && &piece != &far_work()->pieces.back()) return "a piece was forgotten";
        if (piece.waits()) ++waiting;
    }
    if (waiting != far_work()->waiting) return "pieces that wait are counted wrong";
    if (waiting > 0 && far_work()->pieces.front().waits()) return "a piece waits for nothing";
    for (const FarInbound::Kept& kept : far_work()->kept) bytes += kept.cost();
    return bytes == far_work()->bytes ? nullptr : "staged bytes are counted wrong";
}

const char* Responder::check_message() const {
    if (receive_held_ != (message_ == Message::Send))
        return "a receive is held without a SEND, or a SEND has none";
    if (receive_held_ && received_bytes_ > receive_.length)
        return "more was received than the receive has room for";
    if (message_ == Message::Write && received_bytes_ >= write_length_)
        return "an open WRITE has all of its bytes";
    return nullptr;
}

}  // namespace feroce::transport::rc
