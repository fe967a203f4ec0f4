#include "lint/linter.hpp"

#include <string>

namespace feroce::lint {

void Linter::cq_made(Handle cq, Handle channel, std::uint32_t entries, bool one_thread) {
    CompletionQueue& made = ledger_.cq(cq);
    made = {};  // A queue that was destroyed may have had the same address.
    made.channel = channel;
    made.entries = entries;
    made.one_thread = one_thread;
}

void Linter::asks_cq(std::uint32_t entries, Place place) {
    if (card_ != nullptr) check_card_cq(*card_, entries, place, reporter_);
}

void Linter::asks_qp(const QpAsked& asked, Place place) {
    if (card_ != nullptr) check_card_qp(*card_, asked, place, reporter_);
}

void Linter::asks_srq(std::uint32_t requests, std::uint32_t sges, Place place) {
    if (card_ != nullptr) check_card_srq(*card_, requests, sges, place, reporter_);
}

void Linter::modified(const Modify& modify) {
    check_modify(modify, reporter_);
    if (card_ != nullptr)
        check_card_reads(*card_, modify.reads, modify.served, modify.place, reporter_);
    QueuePair* qp = ledger_.qp(modify.qpn);
    if (modify.refused || qp == nullptr) return;
    // Nothing fills the targets of its READs any more.
    if (modify.to == QpState::Reset || modify.to == QpState::Error) unmark(*qp);
    if (modify.to == QpState::Reset) ledger_.clear(*qp);
    if (modify.to == QpState::Connected && qp->state != QpState::Connected)
        qp->connected_at = modify.place;
    qp->state = modify.to;
}

void Linter::deregisters(std::uint32_t key, Place place) {
    check_deregistration(ledger_, key, place, reporter_);
    for (const auto& [qpn, qp] : ledger_.qps())
        for (const Request& request : qp.sends)
            if (request.marks.bytes > 0 && request.sges[0].key == key)
                memory_.unmark(qp.made.pd, request);
}

void Linter::qp_destroyed(std::uint32_t qpn) {
    if (const QueuePair* qp = ledger_.qp(qpn)) unmark(*qp);
    ledger_.forget_qp(qpn);
}

void Linter::mark(const QueuePair& qp, Request& request) {
    if (may_mark(ledger_, request)) request.marks = memory_.mark(qp.made.pd, request);
}

void Linter::unmark(const QueuePair& qp) {
    for (const Request& request : qp.sends)
        if (request.marks.bytes > 0) memory_.unmark(qp.made.pd, request);
}

bool Linter::entered(Turn& turn, Thread thread, const std::string& call, Place place) {
    const Turn::Entry entry = turn.enter(thread);
    if (entry == Turn::Entry::Crowded) report_crowd(call, place, reporter_);
    return entry == Turn::Entry::Long;
}

bool Linter::enters(std::uint32_t qpn, Thread thread, const char* call, Place place) {
    QueuePair* qp = ledger_.qp(qpn);
    if (qp == nullptr || !qp->made.one_thread) return false;
    const std::string what = std::string(call) + " was called on queue pair " + qpn_text(qpn);
    return entered(qp->turn, thread, what, place);
}

void Linter::leaves(std::uint32_t qpn, Thread thread) {
    if (QueuePair* qp = ledger_.qp(qpn)) qp->turn.leave(thread);
}

bool Linter::enters(Handle cq, Thread thread, const char* call, Place place) {
    CompletionQueue& queue = ledger_.cq(cq);
    if (!queue.one_thread) return false;
    return entered(queue.turn, thread, std::string(call) + " was called on a completion queue",
                   place);
}

void Linter::list_changed(const char* call, Handle list, Place place) {
    report_changed_list(call, reinterpret_cast<std::uintptr_t>(list), place, reporter_);
}

bool Linter::misses_acknowledgements(Handle cq) {
    const CompletionQueue& queue = ledger_.cq(cq);
    return queue.events_taken > queue.events_acknowledged;
}

void Linter::cq_destroys(Handle cq) {
    check_acknowledged(ledger_.cq(cq), reporter_);
}

void Linter::posts(std::uint32_t qpn, std::span<Request> requests) {
    QueuePair* qp = ledger_.qp(qpn);
    if (qp == nullptr) return;
    for (Request& request : requests) {
        check_inline(*qp, request, reporter_);
        check_datagram(*qp, request, reporter_);
        if (!check_length_of_immediate(ledger_, qpn, request, reporter_))
            check_sges(qpn, request, reporter_);
        check_poison(qpn, request, reporter_);
        check_immediate(*qp, request, reporter_);
        const bool waits = waits_for_reads(*qp, request);
        if (!waits) check_marks(qpn, request, reporter_);
        // The bytes will be others, and that was said, or is right.
        if (waits || request.carries) request.print.known = false;
        if (card_ != nullptr) check_card_request(*card_, qpn, request, reporter_);
        mark(*qp, request);
        ledger_.enter(*qp, {&request, 1});
    }
}

void Linter::refused(std::uint32_t qpn, std::span<const Request> requests) {
    QueuePair* qp = ledger_.qp(qpn);
    if (qp == nullptr) return;
    for (const Request& request : requests)
        if (request.marks.bytes > 0) memory_.unmark(qp->made.pd, request);
    ledger_.strike(*qp, requests);
}

void Linter::posted(std::uint32_t qpn, Place place, bool sends) {
    QueuePair* qp = ledger_.qp(qpn);
    if (qp == nullptr) return;
    check_signals(*qp, place, reporter_);
    check_room(ledger_, *qp, place, reporter_);
    if (sends) check_failed_queue(*qp, place, reporter_);
}

void Linter::posts_shared(Handle srq, std::span<Request> requests, bool follow) {
    for (const Request& request : requests) {
        check_sges(0, request, reporter_);
        check_poison(0, request, reporter_);
    }
    if (follow) ledger_.enter(ledger_.srq(srq), requests);
}

void Linter::refused_shared(Handle srq, std::span<const Request> requests) {
    ledger_.strike(ledger_.srq(srq), requests);
}

void Linter::completed(const Completion& done) {
    QueuePair* qp = ledger_.qp(done.qpn);
    if (qp == nullptr) return;
    if (done.status != 0) qp->failed = true;
    if (done.receive) qp->heard = ledger_.next_sequence();
    if (done.immediate) ledger_.note_immediate(*done.immediate);
    std::uint64_t last = 0;
    Request failing;
    ledger_.complete(*qp, done, [&](const Request& request) {
        if (!done.receive) check_buffer(*qp, request, memory_, reporter_);
        if (done.status != 0 && request.marks.bytes > 0) memory_.unmark(qp->made.pd, request);
        last = request.sequence;
        failing = request;
    });
    if (done.status != 0 && last != 0) check_status(*qp, failing, done, reporter_);
}

void Linter::field_read(const Completion& done, const char* field, Place place) {
    check_field(done, field, place, reporter_);
}

void Linter::armed(Handle cq, std::uint32_t held, Place place) {
    CompletionQueue& queue = ledger_.cq(cq);
    queue.held_at_arm = held;
    queue.armed_at = place;
}

void Linter::event_taken(Handle cq, Place place) {
    ++ledger_.cq(cq).events_taken;
    ledger_.cq(cq).event_taken_at = place;
}

void Linter::events_acknowledged(Handle cq, std::uint32_t count) {
    ledger_.cq(cq).events_acknowledged += count;
}

void Linter::noticed(const Notice& notice) {
    if (const QueuePair* qp = ledger_.qp(notice.qpn)) check_notice(ledger_, *qp, notice, reporter_);
}

}  // namespace feroce::lint
