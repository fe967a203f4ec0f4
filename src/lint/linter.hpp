// Linter: what happens in a verbs program goes in, findings come out. Passive as an engine: it
// makes no thread, takes no lock and prints nothing; its caller holds a lock.
#pragma once

#include <cstdint>
#include <span>

#include "lint/ledger.hpp"
#include "lint/reporter.hpp"
#include "lint/rules.hpp"

namespace feroce::lint {

class Linter {
public:
    Linter(Memory& memory, Reporter::Tell tell) : memory_(memory), reporter_(std::move(tell)) {}

    // Whose limits the program is held to as well; null: no card's.
    void hold_to(const Card* card) { card_ = card; }
    bool has_card() const { return card_ != nullptr; }

    void cq_made(Handle cq, Handle channel, std::uint32_t entries, bool one_thread = false);
    void cq_resized(Handle cq, std::uint32_t entries) { ledger_.cq(cq).entries = entries; }
    void qp_made(const QpMade& qp, Place place) { ledger_.made(qp, place); }
    // What the program asks for, if it is held to a card.
    void asks_cq(std::uint32_t entries, Place place);
    void asks_qp(const QpAsked& asked, Place place);
    void asks_srq(std::uint32_t requests, std::uint32_t sges, Place place);
    void modified(const Modify& modify);
    void registration_refused(const Registration& r) { check_registration(r, reporter_); }
    void used_after_fork(const char* call, Place place) { check_fork(call, place, reporter_); }
    void deregisters(std::uint32_t key, Place place);
    bool misses_acknowledgements(Handle cq);
    void cq_destroys(Handle cq);  // Before the call waits for events.
    void cq_destroyed(Handle cq) { ledger_.forget_cq(cq); }
    void qp_destroyed(std::uint32_t qpn);
    void srq_destroyed(Handle srq) { ledger_.forget_srq(srq); }

    // Around a post: before it; then those that were refused, if any; then that it is over.
    void posts(std::uint32_t qpn, std::span<Request> requests);
    void refused(std::uint32_t qpn, std::span<const Request> requests);
    void posted(std::uint32_t qpn, Place place, bool sends);
    // Not to `follow` is for a queue whose completions do not name it.
    void posts_shared(Handle srq, std::span<Request> requests, bool follow = true);
    void refused_shared(Handle srq, std::span<const Request> requests);

    // Around a call on an object of one thread at a time, if it was promised: true if the call
    // shall take long. And around a post whose list is watched: true if two threads have posted it.
    bool enters(std::uint32_t qpn, Thread thread, const char* call, Place place);
    void leaves(std::uint32_t qpn, Thread thread);
    bool enters(Handle cq, Thread thread, const char* call, Place place);
    void leaves(Handle cq, Thread thread) { ledger_.cq(cq).turn.leave(thread); }
    bool shares(Handle list, Thread thread) { return lists_.posted(list, thread); }
    void list_changed(const char* call, Handle list, Place place);

    void polled(Handle cq) { ledger_.cq(cq).held_at_arm = 0; }
    void completed(const Completion& done);  // Before the program sees it.
    void field_read(const Completion& done, const char* field, Place place);
    void armed(Handle cq, std::uint32_t held, Place place);
    void sleeps(Handle channel) { check_sleep(ledger_, channel, reporter_); }
    void event_taken(Handle cq, Place place);
    void events_acknowledged(Handle cq, std::uint32_t count);
    void noticed(const Notice& notice);
    void cm_destroys(const CmEvents& e, Place p) { check_cm_acknowledged(e, p, reporter_); }
    void trusts_order(Place place) { report_order(place, reporter_); }

    const QueuePair* qp(std::uint32_t qpn) { return ledger_.qp(qpn); }

private:
    bool entered(Turn& turn, Thread thread, const std::string& call, Place place);
    void mark(const QueuePair& qp, Request& request);
    void unmark(const QueuePair& qp);  // All of its READs.

    Memory& memory_;
    Ledger ledger_;
    Reporter reporter_;
    SharedLists lists_;
    const Card* card_ = nullptr;
};

}  // namespace feroce::lint
