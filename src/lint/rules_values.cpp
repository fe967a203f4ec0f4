// What programs do with bytes and numbers that they got: too early, or in the wrong byte order.
#include <algorithm>
#include <bit>

#include "lint/rules.hpp"

namespace feroce::lint {
namespace {

// Numbers that a program counts or measures with; what uses the upper half has another meaning.
constexpr std::uint32_t kSmall = 1U << 16;
// A correct program would have to leave the lower half of its immediates empty in all of these.
constexpr std::size_t kTelling = 16;

constexpr std::uint32_t swapped(std::uint32_t value) {
    return value >> 24 | (value >> 8 & 0xff00) | (value << 8 & 0xff'0000) | value << 24;
}

constexpr const char* kReceiverMend =
    "imm_data is in network byte order: read it as ntohl(wc.imm_data), or with "
    "ntohl(ibv_wc_read_imm_data(cq))";

}  // namespace

bool waits_for_reads(const QueuePair& qp, const Request& request) {
    return request.fenced && std::any_of(qp.sends.begin(), qp.sends.end(), [](const Request& r) {
               return r.op == Op::Read || r.op == Op::Atomic;
           });
}

bool may_mark(const Ledger& ledger, const Request& request) {
    if (request.op != Op::Read || request.trouble.fault != SgeFault::None) return false;
    if (request.sge_count == 0 || request.sges[0].length < sizeof kMark) return false;
    // Memory of this process may be what is read.
    const Sge& target = request.sges[0];
    const bool itself = target.address < request.remote + request.bytes &&
                        request.remote < target.address + target.length;
    return !itself && !ledger.overlaps(request);
}

void check_marks(std::uint32_t qpn, const Request& request, Reporter& out) {
    if (!request.carries) return;
    out.found({Kind::ReadEarly,
               describe(request, qpn) +
                   " carries bytes of a READ's target from before that READ completed: lint had "
                   "marked them, and on a card they may be any",
               "posted", request.place,
               "read the target of a READ only after its completion was polled; a request that "
               "sends it on can wait for it by IBV_SEND_FENCE"});
}

void check_immediate(QueuePair& qp, const Request& request, Reporter& out) {
    if constexpr (std::endian::native == std::endian::big) return;
    if (!request.immediate || *request.immediate == 0 || !qp.judge_immediates) return;
    const std::uint32_t value = *request.immediate;
    qp.judge_immediates = value < kSmall;
    if (!qp.judge_immediates) return qp.small_immediates.clear();
    qp.small_immediates.insert(value);
    if (qp.small_immediates.size() < kTelling) return;
    qp.judge_immediates = false;  // It is said once.
    qp.small_immediates.clear();
    out.found({Kind::ImmediateOrder,
               std::to_string(kTelling) +
                   " different immediates were posted that are small numbers in this machine's "
                   "byte order and none in the network's: the last, " +
                   std::to_string(value) + " in " + describe(request, qp.made.qpn) + ", is " +
                   std::to_string(swapped(value)) + " for a peer that reads it by ntohl()",
               "posted", request.place,
               "imm_data is in network byte order: post htonl(value), and read "
               "ntohl(wc.imm_data)"});
}

bool check_length_of_immediate(const Ledger& ledger, std::uint32_t qpn, const Request& request,
                               Reporter& out) {
    const SgeTrouble& trouble = request.trouble;
    if (trouble.fault != SgeFault::OutOfBounds || trouble.index >= request.sge_count) return false;
    const std::uint32_t length = request.sges[trouble.index].length;
    const std::uint32_t meant = swapped(length);
    if (meant >= kSmall || meant > trouble.region_length || !ledger.polled_immediate(length))
        return false;
    out.found({Kind::ImmediateOrder,
               describe(request, qpn) + " has the immediate of a completion as its length, " +
                   std::to_string(length) + ", in the network's byte order: it means " +
                   std::to_string(meant),
               "posted", request.place, kReceiverMend});
    return true;
}

}  // namespace feroce::lint
