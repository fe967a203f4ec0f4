#include <algorithm>

#include "lint/rules.hpp"

namespace feroce::lint {
namespace {

constexpr std::uint64_t kGrhBytes = 40;
// More sends than a program needs that flushes a failed queue by a last request of its own.
constexpr std::uint32_t kSendsAfterFailureMax = 8;

std::string number(std::uint64_t value) {
    return std::to_string(value);
}

std::string range(std::uint64_t address, std::uint64_t length) {
    return number(length) + " bytes at " + hex(address);
}

std::string what_is_wrong(const Sge& sge, const SgeTrouble& trouble) {
    const std::string region = range(trouble.region_address, trouble.region_length);
    switch (trouble.fault) {
        case SgeFault::NoSuchKey:
            if (trouble.region_length == 0) return "no region has that lkey, nor that memory";
            return "no region has that lkey; the memory is in the region of lkey " +
                   hex(trouble.region_key) + " (" + region + ")";
        case SgeFault::WrongPd:
            return "the region of that lkey is of another protection domain than the queue";
        case SgeFault::NotWritable:
            return "the region of that lkey lacks IBV_ACCESS_LOCAL_WRITE";
        case SgeFault::OutOfBounds:
        case SgeFault::None:
            break;
    }
    const std::uint64_t end = sge.address + sge.length;
    const std::uint64_t region_end = trouble.region_address + trouble.region_length;
    const std::string past =
        end > region_end ? number(end - region_end) + " bytes past the end" : "before the begin";
    return "that is " + past + " of the region of that lkey (" + region + ")";
}

const char* mend_of(SgeFault fault) {
    switch (fault) {
        case SgeFault::NoSuchKey:
            return "use the lkey of the ibv_mr that was registered for this memory, and keep it "
                   "registered until the completion was polled";
        case SgeFault::WrongPd:
            return "register the memory with the protection domain of the queue pair";
        case SgeFault::NotWritable:
            return "register memory that receives, READs or atomics fill with "
                   "IBV_ACCESS_LOCAL_WRITE";
        default:
            return "register all of the buffer, or shorten the SGE";
    }
}

}  // namespace

void check_inline(const QueuePair& qp, const Request& request, Reporter& out) {
    if (!request.inlined || request.bytes <= qp.made.inline_max) return;
    out.found({Kind::InlineTooLong,
               describe(request, qp.made.qpn) + " is inlined, but the queue pair takes " +
                   number(qp.made.inline_max) + " bytes inline",
               "posted", request.place,
               "ask ibv_create_qp for max_inline_data, read back what it grants, and send longer "
               "messages without IBV_SEND_INLINE"});
}

void check_datagram(const QueuePair& qp, const Request& request, Reporter& out) {
    if (qp.made.type != QpType::Ud) return;
    if (request.op == Op::Receive && request.bytes < kGrhBytes)
        out.found({Kind::Datagram,
                   describe(request, qp.made.qpn) +
                       " has no room for the 40 bytes of GRH that come before each datagram",
                   "posted", request.place,
                   "post receives of a UD queue pair with 40 bytes more than the message"});
    if (request.op == Op::Send && request.bytes > qp.made.datagram_max)
        out.found({Kind::Datagram,
                   describe(request, qp.made.qpn) + " is longer than the MTU of " +
                       number(qp.made.datagram_max) + " bytes, and a datagram is one packet",
                   "posted", request.place,
                   "send at most active_mtu of ibv_query_port at once, or use RC"});
}

void check_sges(std::uint32_t qpn, const Request& request, Reporter& out) {
    const SgeTrouble& trouble = request.trouble;
    if (trouble.fault == SgeFault::None || trouble.index >= request.sge_count) return;
    const Sge& sge = request.sges[trouble.index];
    if (sge.length == kPoison) return;  // check_poison() knows better what is wrong.
    out.found({Kind::BadSge,
               "SGE " + number(trouble.index) + " of " + describe(request, qpn) + " names " +
                   range(sge.address, sge.length) + " by lkey " + hex(sge.key) + ", but " +
                   what_is_wrong(sge, trouble),
               "posted", request.place, mend_of(trouble.fault)});
}

void check_poison(std::uint32_t qpn, const Request& request, Reporter& out) {
    const auto* end = request.sges.begin() + request.sge_count;
    if (std::none_of(request.sges.begin(), end, [](const Sge& s) { return s.length == kPoison; }))
        return;
    out.found({Kind::ErrorIgnored,
               describe(request, qpn) + " has the length that lint writes into byte_len of failed "
                                        "completions, where the field has no meaning",
               "posted", request.place,
               "look at status first; of a failed completion only wr_id, status, qp_num and "
               "vendor_err mean something"});
}

void check_signals(const QueuePair& qp, Place place, Reporter& out) {
    if (qp.lossy || qp.sends.size() <= qp.made.send_max) return;
    if (std::any_of(qp.sends.begin(), qp.sends.end(), [](const Request& r) { return r.signaled; }))
        return;
    out.found({Kind::Unsignaled,
               describe(qp.sends.back(), qp.made.qpn) + " is send " + number(qp.sends.size()) +
                   " in a row without a signal in a queue of max_send_wr " +
                   number(qp.made.send_max) +
                   ": a card frees their slots only by a completion after them, and refuses this "
                   "one with ENOMEM for ever",
               "posted", place,
               "set IBV_SEND_SIGNALED on at least one of every max_send_wr sends, and poll its "
               "completion"});
}

void check_room(Ledger& ledger, const QueuePair& qp, Place place, Reporter& out) {
    for (const Handle handle : {qp.made.send_cq, qp.made.receive_cq}) {
        const auto found = ledger.cqs().find(handle);
        if (found == ledger.cqs().end() || qp.lossy) continue;
        const CompletionQueue& cq = found->second;
        if (cq.entries == 0 || cq.owed <= cq.entries) continue;
        out.found({Kind::CqTooSmall,
                   number(cq.owed) +
                       " requests are posted whose completions go to a completion "
                       "queue of " +
                       number(cq.entries) + " entries, the last on queue pair " +
                       qpn_text(qp.made.qpn) +
                       ": it overruns if they complete before the program polls",
                   "posted", place,
                   "create the completion queue with the sum of max_send_wr and max_recv_wr of all "
                   "its queue pairs"});
    }
}

void check_failed_queue(QueuePair& qp, Place place, Reporter& out) {
    if (!qp.failed || ++qp.sends_after_failure <= kSendsAfterFailureMax) return;
    out.found({Kind::ErrorIgnored,
               number(qp.sends_after_failure) + " sends were posted on queue pair " +
                   qpn_text(qp.made.qpn) +
                   " after a failed completion of it was polled: none of them "
                   "will be carried out",
               "posted", place,
               "look at wc.status of every completion; after a failure move the queue pair to "
               "RESET and connect it again"});
}

}  // namespace feroce::lint
