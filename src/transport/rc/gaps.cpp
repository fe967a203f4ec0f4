// What a peer tells of the packets that it keeps (GapList): those have left the network, and all
// that is missing is sent again at once, however many gaps there are. A list is a hint: what it
// says is never an acknowledgement, and at worst something is sent twice. See ADR 34.
#include <algorithm>
#include <utility>

#include "base/assert.hpp"
#include "base/shortage.hpp"
#include "transport/rc/recovery.hpp"
#include "transport/rc/requester.hpp"

namespace feroce::transport::rc {

namespace {

// No round trip is known yet.
constexpr Duration kPatienceAtFirst = std::chrono::milliseconds(3);

}  // namespace

bool Requester::hears_lists() const {
    return qp_.recovery() != nullptr && qp_.recovery()->peer_sends_lists;
}

// A peer that lists what it keeps answers a packet of a message that was needless by a word. A READ
// it would answer once more.
bool Requester::may_probe_early() const {
    return hears_lists() && !qp_.window()->is_by_ring() &&
           !needs_response(qp_.send_queue().at(qp_.send_queue().head()).op);
}

// A duplicate, which a peer of another kind acknowledges again: see ask_peer() for what it may not
// be. Not by XRC: a target has no number to answer under.
void Requester::say_hello() {
    if (service_ != wire::Service::Rc || !qp_.make_recovery()) return;
    if (flight_.una == PacketNumber::first(qp_.attributes().send_psn)) return;
    if (!qp_.recovery()->should_say_hello()) return;
    PacketSpec spec;
    spec.opcode = wire::Opcode::RcWriteOnly;
    spec.destination = qp_.attributes().destination_qpn;
    spec.psn = (flight_.una - 1).psn();
    spec.extensions.reth = hello();
    append_packet(qp_, spec);
}

// With an acknowledgement that is no news.
void Requester::take_list(Instant now, ByteView payload) {
    const auto list = GapList::parse(payload);
    if (!list || !qp_.make_recovery())
        return qp_.services().counters.drop(DropReason::UnexpectedResponse);
    qp_.recovery()->heard = *list;
    on_gap_list(now);
}

void Requester::on_gap_list(Instant now) {
    if (flight_.bytes == 0 || far_lands_ || is_failing()) return;
    Recovery& recovery = *qp_.recovery();
    PacketNumber number = flight_.una.nearest(recovery.heard.base);
    if (position_number() <= number) return;
    recovery.peer_sends_lists = true;
    recovery.peer.note_kept();
    tests_peer_ = false;
    PacketNumber end = number;
    for (const std::uint16_t run : recovery.heard.runs) end = end + run;
    if (end <= flight_.una || !open_board()) return;
    const PacketNumber limit = std::min(position_number(), board_limit());
    const SendQueue& queue = qp_.send_queue();
    std::uint64_t index = index_of(std::max(number, flight_.una));
    bool kept = false;
    // What follows may only have been overtaken.
    const PacketNumber judged = std::max(end, recovery.board->end()) - overtaken_max();
    for (const std::uint16_t run : recovery.heard.runs) {
        for (std::uint32_t i = 0; i < run && number < limit; ++i, number = number + 1) {
            if (number < flight_.una) continue;
            while (queue.at(index).end() <= number) ++index;
            if (kept)
                mark_kept(now, queue.at(index), number);
            else if (number < judged)
                mark_missing(now, queue.at(index), number);
        }
        kept = !kept;
    }
    settle_arrived(std::min(judged, limit));
    arm(now);
}

// What was sent before has come, or is lost. What no list told of is neither kept nor missing, but
// not on its way either.
void Requester::settle_arrived(PacketNumber end) {
    Recovery& recovery = *qp_.recovery();
    Scoreboard& board = *recovery.board;
    PacketNumber number = std::max(recovery.arrived_end, flight_.una + 1);
    if (end <= number) return;
    const SendQueue& queue = qp_.send_queue();
    std::uint64_t index = index_of(number);
    for (; number < end; number = number + 1) {
        while (queue.at(index).end() <= number) ++index;
        const SendWqe& wqe = queue.at(index);
        if (needs_response(wqe.op) || board.was_repeated(number)) continue;
        const std::uint64_t packet = number - wqe.first_packet;
        const std::uint32_t bytes = board.note_arrived(number, cost(wqe, packet, packet + 1));
        flight_.bytes -= bytes;
        qp_.window()->on_forgotten(bytes);
    }
    recovery.arrived_end = end;
}

void Requester::mark_kept(Instant now, const SendWqe& wqe, PacketNumber number) {
    if (number == flight_.una || needs_response(wqe.op)) return;
    Scoreboard& board = *qp_.recovery()->board;
    if (board.is_kept(number)) return;
    if (is_late(now, number)) qp_.recovery()->reordering.note_late(board.end() - number);
    if (sample_.runs() && sample_.packet == number) {
        qp_.window()->on_rtt(now, now - sample_.sent);
        qp_.services().counters.round_trips.add(now - sample_.sent);
        sample_.stop();
    }
    const std::uint64_t packet = number - wqe.first_packet;
    const std::uint32_t bytes = board.note_kept(number, cost(wqe, packet, packet + 1));
    flight_.bytes -= bytes;
    qp_.window()->on_acked(now, bytes);
}

// One that was sent again lately may be on its way. Of a READ a packet asks for a whole piece.
void Requester::mark_missing(Instant now, const SendWqe& wqe, PacketNumber number) {
    const bool is_read = wqe.op == SendOp::Read;
    if (is_read && (number - wqe.first_packet) % wqe.operand != 0) return;
    Scoreboard& board = *qp_.recovery()->board;
    const Duration round_trip = qp_.window()->smoothed_rtt();
    const Duration patience = round_trip == Duration(0) ? kPatienceAtFirst : round_trip * 5 / 4;
    if (!board.is_missing(number, now - patience)) return;
    // A peer that has not seen the READ would execute a part of it, and refuse all that follows.
    const PacketNumber end = is_read ? piece_end(wqe, number) : number + 1;
    if (board_limit() < end) return;
    if (!board.was_repeated(number)) note_loss(now, wqe, number);
    if (is_read) qp_.recovery()->note_lost_request();
    for (PacketNumber lost = number; lost < end && !board.is_kept(lost); lost = lost + 1)
        lose(wqe, lost);
}

// By a NAK. What is before it is acknowledged up to `reach`, where a READ has no answer yet.
void Requester::on_named_gap(Instant now, PacketNumber reach, PacketNumber number) {
    qp_.services().counters.add(Counter::ReceivedSequenceError);
    advance(now, reach);
    if (qp_.state() == QpState::Err) return;
    check_promise();
    if (reach != number) {
        note_acknowledged(number);
        if (may_judge()) judge_answers(now, number);
        if (qp_.state() == QpState::Err || flight_.bytes == 0) return;
    }
    GapList& list = qp_.recovery()->heard;
    list = GapList{};
    list.base = number.psn();
    list.runs[0] = 1;
    on_gap_list(now);
}

// Of what is acknowledged now, the bytes that left the window already.
std::uint32_t Requester::forget_told(Instant now, PacketNumber to) {
    Scoreboard& board = *qp_.recovery()->board;
    if (probe_.repeated == 0 && !is_answered(flight_.una) && is_late(now, flight_.una))
        qp_.recovery()->reordering.note_late(board.end() - flight_.una);
    const std::uint32_t bytes = board.forget_before(to);
    qp_.recovery()->forget_asked_before(to);
    if (board.end() <= to) drop_board();
    return bytes;
}

void Requester::drop_board() {
    if (!has_board_) return;
    qp_.recovery()->board.reset();
    qp_.recovery()->asked_again.clear();
    has_board_ = sends_again_ = false;
}

// As in the network, whatever became of it: something is always waited for. An answer that is here
// is about to be taken, and is not the oldest then.
void Requester::count_oldest() {
    if (qp_.recovery()->board->is_kept(flight_.una) && is_answered(flight_.una)) return;
    const std::uint32_t bytes = qp_.recovery()->board->count_oldest(flight_.una);
    flight_.bytes += bytes;
    qp_.window()->adopt(bytes);
}

// The oldest was kept once, but the peer acknowledges no more than what is before it: all that it
// kept is gone. The answer to a READ does not say so, since an acknowledgement may follow it.
void Requester::check_promise() {
    if (!has_board_ || flight_.bytes == 0) return;
    if (!qp_.recovery()->board->is_kept(flight_.una)) return;
    if (needs_response(qp_.send_queue().at(qp_.send_queue().head()).op)) return;
    rewind(Counter::ResentBySequence);
}

PacketNumber Requester::board_limit() const {
    return flight_.una + (qp_.recovery()->board->size() - 1);
}

// Further ahead a peer keeps nothing, or we could not note it. One that keeps 64 MiB has no more
// than three quarters of it for one queue pair.
bool Requester::is_full() const {
    constexpr std::uint64_t kKeptMax = 32 << 20;
    const std::uint64_t ahead = position_number() - flight_.una;
    return board_limit() <= position_number() || ahead * qp_.attributes().path_mtu >= kKeptMax;
}

// The oldest is in the window whether it was lost or not.
bool Requester::may_send_missing(Instant now) const {
    if (asks_too_much()) return false;
    return qp_.window()->may_send(now) || qp_.recovery()->board->is_due(flight_.una);
}

void Requester::note_repeated(Instant now, PacketNumber from, std::uint32_t packets) {
    std::uint32_t bytes = 0;
    for (std::uint32_t i = 0; i < packets; ++i)
        bytes += qp_.recovery()->board->note_repeated(from + i, now);
    flight_.bytes += bytes;
    qp_.window()->on_sent(now, bytes);
}

bool Requester::send_missing(Instant now) {
    Scoreboard& board = *qp_.recovery()->board;
    const PacketNumber number = board.next_due();
    sends_again_ = number < board.end();
    if (!sends_again_) return true;
    const Position before = position_;
    const PacketNumber sent_end = flight_.sent_end;
    position_.index = index_of(number);
    const SendWqe& wqe = qp_.send_queue().at(position_.index);
    position_.packet = static_cast<std::uint32_t>(number - wqe.first_packet);
    const bool asks = needs_response(wqe.op);
    const Counter cause =
        std::exchange(probe_.cause, asks ? Counter::ResentByResponse : Counter::ResentBySequence);
    const std::uint32_t packets = asks ? due_answers(wqe, number) : 1;
    // First, so that the one that closes the window asks for an acknowledgement.
    if (!asks) note_repeated(now, number, 1);
    probe_.sending = true;
    probe_.run = 0;
    const bool sent = send_next(now);
    probe_.run = 1;
    // It failed, or waits for far memory, and starts again.
    if (!sent || !probe_.sending || qp_.state() == QpState::Err || is_failing()) return false;
    probe_.sending = false;
    probe_.cause = cause;
    if (asks) note_repeated(now, number, packets);
    if (asks) qp_.recovery()->asked_again.push({number, number + packets, sent_end});
    position_ = before;
    sends_again_ = board.next_due() < board.end();
    return true;
}

}  // namespace feroce::transport::rc
