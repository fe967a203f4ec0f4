// Answers that are missing. A requester sees itself which responses of READs and atomics are lost,
// since a peer answers in the order in which it is asked: when what was asked for later is
// answered, all that is still missing of what was asked for before is asked for again at once,
// however many gaps there are, each within the piece of its READ. See ADR 34.
#include <algorithm>
#include <utility>

#include "base/assert.hpp"
#include "base/shortage.hpp"
#include "transport/rc/recovery.hpp"
#include "transport/rc/requester.hpp"

namespace feroce::transport::rc {

bool Requester::open_board() {
    Recovery& recovery = *qp_.recovery();
    if (has_board_) {
        // Without memory for a larger one no more is sent than this one has places for.
        const std::uint32_t size = recovery.board->size();
        if (size < Scoreboard::kPacketsMax && flight_.una + size / 2 < position_number())
            static_cast<void>(with_memory([&] { recovery.board->grow(); }));
        return true;
    }
    if (!with_memory([&] { recovery.board = std::make_unique<Scoreboard>(flight_.una); }))
        return false;
    recovery.judged_end = recovery.arrived_end = flight_.una;
    recovery.asked_again.clear();
    has_board_ = true;
    return true;
}

// Else all that is not answered is asked for again.
bool Requester::may_judge() {
    return flight_.bytes > 0 && !far_lands_ && qp_.make_recovery() && open_board();
}

void Requester::note_loss(Instant now, const SendWqe& wqe, PacketNumber number) {
    const std::uint64_t packet = number - wqe.first_packet;
    qp_.window()->on_repaired_loss(now, cost(wqe, packet, packet + 1));
    qp_.recovery()->reordering.note_lost();
}

// As many packets as may come before one that is only late. Not more than are sent in a fourth of a
// round trip: what waits for more would wait for the timer.
std::uint64_t Requester::overtaken_max() const {
    return std::min<std::uint64_t>(qp_.recovery()->reordering.packets(),
                                   (position_number() - flight_.una) / 4);
}

// It was sent again, but came before that can have made a difference.
bool Requester::is_late(Instant now, PacketNumber number) const {
    const Scoreboard& board = *qp_.recovery()->board;
    return board.was_repeated_once(number) &&
           now < board.repeated_at(number) + qp_.window()->smoothed_rtt() / 2;
}

// It is not in the network until it is sent again. The oldest counts nevertheless.
void Requester::lose(const SendWqe& wqe, PacketNumber number) {
    const std::uint64_t packet = number - wqe.first_packet;
    const std::uint32_t own = number == flight_.una ? 0 : cost(wqe, packet, packet + 1);
    const std::uint32_t bytes = qp_.recovery()->board->note_missing(number, own);
    flight_.bytes -= bytes;
    qp_.window()->on_forgotten(bytes);
    sends_again_ = true;
    if (sample_.packet == number) sample_.stop();
}

// It came early, for the first time.
void Requester::count_answer(PacketNumber number) {
    std::size_t low = 0, high = flight_.asked.size();
    while (low < high) {
        const std::size_t middle = (low + high) / 2;
        if (flight_.asked[middle].end <= number)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == flight_.asked.size()) return;
    if (!std::exchange(flight_.asked[low].executed, true)) ++qp_.recovery()->executed;
}

void Requester::forget_asked() {
    flight_.asked.clear();
    if (qp_.recovery() != nullptr) qp_.recovery()->executed = 0;
}

// One has come, in its turn or early.
void Requester::note_answer(Instant now, PacketNumber number) {
    if (!was_sent(number) || far_lands_ || !is_answered(number)) return;
    Recovery& recovery = *qp_.recovery();
    if (recovery.board->is_due(number) || is_late(now, number)) {
        if (number < recovery.rewound_end) return;
        return recovery.reordering.note_late(std::max(recovery.judged_end, number) - number);
    }
    if (recovery.board->was_repeated(number)) {
        const auto has_it = [number](const Recovery::AskedAgain& asked) {
            return asked.begin <= number && number < asked.end;
        };
        std::size_t before = 0;
        while (before < recovery.asked_again.size() && !has_it(recovery.asked_again[before]))
            ++before;
        if (before == recovery.asked_again.size()) return;
        bool lost = false;
        for (; before > 0; --before) lost = expire_ask(now) || lost;
        Recovery::AskedAgain& asked = recovery.asked_again.front();
        if (asked.end == number + 1) {
            asked.end = number;
            lost = expire_ask(now) || lost;
        }
        if (lost) report_lost_answer(now);
    } else if (sample_.runs() && sample_.packet == number) {
        qp_.window()->on_rtt(now, now - sample_.sent);
        qp_.services().counters.round_trips.add(now - sample_.sent);
        sample_.stop();
    }
    if (has_board_) judge_answers(now, number);
}

// The peer has answered all that was sent before `end`.
void Requester::judge_answers(Instant now, PacketNumber end) {
    Recovery& recovery = *qp_.recovery();
    end = std::min(end, position_number());  // What is behind is sent again anyway.
    bool lost = false;
    while (!recovery.asked_again.empty() && recovery.asked_again.front().sent_end < end)
        lost = expire_ask(now) || lost;
    const std::uint64_t overtaken = overtaken_max();
    if (recovery.judged_end + overtaken < end) {
        end = end - overtaken;
        const PacketNumber from = std::exchange(recovery.judged_end, end);
        lost = lose_answers(now, from, end, Asked::Once) || lost;
    }
    if (lost) report_lost_answer(now);
}

// Those of [from, to) that did not come. True if there are any.
bool Requester::lose_answers(Instant now, PacketNumber from, PacketNumber to, Asked which) {
    Scoreboard& board = *qp_.recovery()->board;
    const SendQueue& queue = qp_.send_queue();
    PacketNumber number = std::max(from, flight_.una);
    to = std::min({to, position_number(), board_limit()});
    bool lost = false;
    if (to <= number) return false;
    std::uint64_t index = index_of(number);
    while (number < to) {
        while (queue.at(index).end() <= number) ++index;
        const SendWqe& wqe = queue.at(index);
        if (!needs_response(wqe.op)) {
            number = wqe.end();
            continue;
        }
        const bool once = !board.was_repeated(number);
        const bool counts = once == (which == Asked::Once);
        if (counts && !board.is_kept(number) && !board.is_due(number)) {
            if (once) note_loss(now, wqe, number);
            lose(wqe, number);
            lost = true;
        }
        number = number + 1;
    }
    return lost;
}

// The oldest of those that were asked for again: what is missing of it is lost again.
bool Requester::expire_ask(Instant now) {
    const Recovery::AskedAgain asked = qp_.recovery()->asked_again.front();
    qp_.recovery()->asked_again.pop();
    return lose_answers(now, asked.begin, asked.end, Asked::Again);
}

// Once until progress is made.
void Requester::report_lost_answer(Instant now) {
    if (gap_reported_) return;
    gap_reported_ = true;
    say_hello();
    qp_.services().counters.add(Counter::CompleterRetry);
    qp_.services().counters.add(Counter::ImpliedNaks);
    spend_retry(now, Rule::RetryLimit, 0);
}

// Nothing tells so but time: all that was asked for again is as old, and what is before one that
// has come was not only overtaken.
void Requester::lose_oldest_answer(Instant now) {
    Recovery& recovery = *qp_.recovery();
    recovery.repeated_at = now;
    while (!recovery.asked_again.empty()) expire_ask(now);
    recovery.reordering.note_waited_in_vain();
    judge_answers(now, std::max(recovery.judged_end, recovery.board->kept_end()));
    if (qp_.state() == QpState::Err) return;
    const SendWqe& oldest = qp_.send_queue().at(qp_.send_queue().head());
    const PacketNumber end = piece_end(oldest, flight_.una);
    for (PacketNumber number = flight_.una; number < end; number = number + 1) {
        if (recovery.board->is_kept(number)) break;
        lose(oldest, number);
    }
}

// One past the last answer of the piece of a READ; others have one answer.
PacketNumber Requester::piece_end(const SendWqe& wqe, PacketNumber number) const {
    if (wqe.op != SendOp::Read) return number + 1;
    const std::uint64_t packet = number - wqe.first_packet;
    const std::uint64_t end = packet - packet % wqe.operand + wqe.operand;
    return std::min(wqe.first_packet + end, wqe.end());
}

std::uint32_t Requester::due_answers(const SendWqe& wqe, PacketNumber number) const {
    const PacketNumber limit = piece_end(wqe, number);
    PacketNumber end = number + 1;
    while (end < limit && qp_.recovery()->board->is_due(end)) end = end + 1;
    return static_cast<std::uint32_t>(end - number);
}

// The ring may be larger. A peer may remember no more requests than it keeps answers of, so all
// that follow the oldest count. A Feroce answers any READ again: of one that is cut the requests
// that it has executed do not count, as any answer tells.
bool Requester::may_ask(const SendWqe& wqe) const {
    const std::size_t most = qp_.attributes().read_atomic_max;
    if (flight_.asked.empty()) return true;
    if (flight_.asked.full()) return false;
    if (flight_.asked.size() < most) return true;
    if (wqe.op != SendOp::Read || !hears_lists()) return false;
    if (flight_.asked.size() - qp_.recovery()->executed >= most) return false;
    if (position_.packet > 0) return true;
    std::size_t before = 0;
    for (std::uint64_t i = qp_.send_queue().head(); i != position_.index && before < most; ++i)
        before += needs_response(qp_.send_queue().at(i).op);
    return before < most;
}

// More than a peer may keep at a time is not asked for again.
bool Requester::asks_too_much() const {
    const Recovery& recovery = *qp_.recovery();
    // A Feroce answers any READ again, and drops what comes too fast: then it is lost again.
    constexpr std::size_t kOfOthers = 16;
    const std::size_t most =
        hears_lists() ? Recovery::kAskedAgainMax
                      : std::clamp<std::size_t>(qp_.attributes().read_atomic_max, 1, kOfOthers);
    if (recovery.asked_again.size() < most) return false;
    const PacketNumber number = recovery.board->next_due();
    return number < recovery.board->end() && is_answered(number);
}

}  // namespace feroce::transport::rc
