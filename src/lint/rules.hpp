// The rules: each looks at the ledger and one event and tells the Reporter what is wrong, or
// nothing. None keeps state of its own; none reports what a correct program may do.
#pragma once

#include "lint/cards.hpp"
#include "lint/ledger.hpp"
#include "lint/reporter.hpp"
#include "lint/words.hpp"

namespace feroce::lint {

// How the bytes of a request look now. The edge reads them, guarded against memory that is gone.
class Memory {
public:
    virtual ~Memory() = default;
    virtual Fingerprint look(std::uint32_t pd, const Request& request) = 0;
    // Writes kMark over the begin of a READ's target, and tells what was there; and puts that back
    // where the marks still are.
    virtual Marks mark(std::uint32_t pd, const Request& request) = 0;
    virtual void unmark(std::uint32_t pd, const Request& request) = 0;
};

// What the edge writes into byte_len of a failed completion: a program that uses it shows.
inline constexpr std::uint32_t kPoison = 0xbadfee1d;

// rules_posts.cpp. Of a request before it is posted; a shared queue has no queue pair.
void check_inline(const QueuePair& qp, const Request& request, Reporter& out);
void check_datagram(const QueuePair& qp, const Request& request, Reporter& out);
void check_sges(std::uint32_t qpn, const Request& request, Reporter& out);
void check_poison(std::uint32_t qpn, const Request& request, Reporter& out);
// Of a queue after the device has taken requests.
void check_signals(const QueuePair& qp, Place place, Reporter& out);
void check_room(Ledger& ledger, const QueuePair& qp, Place place, Reporter& out);
void check_failed_queue(QueuePair& qp, Place place, Reporter& out);

// rules_completions.cpp. Before the program sees the completion.
void check_buffer(const QueuePair& qp, const Request& request, Memory& memory, Reporter& out);
void check_status(const QueuePair& qp, const Request& request, const Completion& done,
                  Reporter& out);
void check_notice(Ledger& ledger, const QueuePair& qp, const Notice& notice, Reporter& out);

// rules_events.cpp
void check_sleep(Ledger& ledger, Handle channel, Reporter& out);
void check_acknowledged(const CompletionQueue& cq, Reporter& out);
void check_cm_acknowledged(const CmEvents& events, Place place, Reporter& out);
void check_field(const Completion& done, const char* field, Place place, Reporter& out);

// rules_setup.cpp
void check_registration(const Registration& registration, Reporter& out);
void check_modify(const Modify& modify, Reporter& out);
void check_fork(const char* call, Place place, Reporter& out);
void check_deregistration(Ledger& ledger, std::uint32_t key, Place place, Reporter& out);

// rules_card.cpp
void check_card_qp(const Card& card, const QpAsked& asked, Place place, Reporter& out);
void check_card_cq(const Card& card, std::uint32_t entries, Place place, Reporter& out);
void check_card_srq(const Card& card, std::uint32_t requests, std::uint32_t sges, Place place,
                    Reporter& out);
void check_card_reads(const Card& card, std::uint32_t reads, std::uint32_t served, Place place,
                      Reporter& out);
void check_card_request(const Card& card, std::uint32_t qpn, const Request& request, Reporter& out);

// rules_values.cpp
// A fence lets a request use what earlier READs of the queue bring.
bool waits_for_reads(const QueuePair& qp, const Request& request);
// Whether nothing else uses the target of a READ.
bool may_mark(const Ledger& ledger, const Request& request);
void check_marks(std::uint32_t qpn, const Request& request, Reporter& out);
void check_immediate(QueuePair& qp, const Request& request, Reporter& out);
// True if it is one: nothing else needs to be said of that SGE.
bool check_length_of_immediate(const Ledger& ledger, std::uint32_t qpn, const Request& request,
                               Reporter& out);

// rules_threads.cpp: of what the edge and a Turn have seen. `call` names the call and the object.
void report_crowd(const std::string& call, Place place, Reporter& out);
void report_changed_list(const char* call, std::uint64_t address, Place place, Reporter& out);

// rules_order.cpp: the program went on when only the last bytes of a WRITE were there.
void report_order(Place place, Reporter& out);

}  // namespace feroce::lint
