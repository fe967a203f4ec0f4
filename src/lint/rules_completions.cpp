#include <algorithm>
#include <optional>

#include "lint/rules.hpp"

namespace feroce::lint {
namespace {

// Values of ibv_wc_status that a mistake of a program brings about. The others have to do with the
// network, the end of a connection or a peer that died.
enum Status { kLength = 1, kLocalQp = 2, kProtection = 4, kBind = 6, kLocalAccess = 8 };
enum RemoteStatus { kInvalidRequest = 9, kRemoteAccess = 10, kRemoteOperation = 11, kRnr = 13 };

struct Advice {
    Kind kind;
    const char* mend;
};

std::optional<Advice> advice_for(int status, QpType type) {
    switch (status) {
        case kLength:
            if (type == QpType::Ud)
                return Advice{Kind::Datagram,
                              "post receives of a UD queue pair with 40 bytes of GRH more than the "
                              "longest message"};
            return Advice{Kind::BadSge, "post receives as long as the longest message of the peer"};
        case kProtection:
        case kLocalAccess:
            return Advice{Kind::BadSge,
                          "give each SGE the lkey of a region of this domain that holds all of it, "
                          "with IBV_ACCESS_LOCAL_WRITE where it is written"};
        case kLocalQp:
        case kBind:
            return Advice{Kind::AccessFlags, "look at the rights that the request needs here"};
        case kRemoteAccess:
            return Advice{Kind::AccessFlags,
                          "the peer must register the memory with IBV_ACCESS_REMOTE_READ, _WRITE "
                          "or _ATOMIC and LOCAL_WRITE, pass on this rkey and address, and keep it "
                          "registered"};
        case kInvalidRequest:
            return Advice{Kind::AccessFlags,
                          "the peer's queue pair must allow the operation in qp_access_flags, have "
                          "the same path_mtu, and receives that are long enough"};
        case kRemoteOperation:
            return Advice{Kind::AccessFlags,
                          "the peer could not carry the request out: feroce explain there"};
        case kRnr:
            return Advice{Kind::NoReceive,
                          "the peer must post receives before it tells that it is ready, again "
                          "after every RESET, and one for each message; rnr_retry 7 waits for it"};
        default:
            return std::nullopt;
    }
}

}  // namespace

void check_buffer(const QueuePair& qp, const Request& request, Memory& memory, Reporter& out) {
    if (!request.print.known) return;
    // A datagram is not sent again: what the program received since may have told that it arrived.
    if (qp.made.type == QpType::Ud && request.sequence < qp.heard) return;
    const Fingerprint now = memory.look(qp.made.pd, request);
    if (!now.known) return;  // What is gone the device complains about.
    const auto [was, is] =
        std::mismatch(request.print.parts.begin(), request.print.parts.end(), now.parts.begin());
    if (was == request.print.parts.end()) return;
    const auto part = static_cast<std::uint64_t>(was - request.print.parts.begin());
    const std::uint64_t size =
        std::max<std::uint64_t>(1, (request.bytes + Fingerprint::kParts - 1) / Fingerprint::kParts);
    const std::uint64_t first = part * size;
    const std::uint64_t last = std::min(first + size, request.bytes) - 1;
    const std::string which =
        first == last ? "byte " + std::to_string(first)
                      : "bytes " + std::to_string(first) + " to " + std::to_string(last);
    out.found({Kind::BufferChanged,
               "the buffer of " + describe(request, qp.made.qpn) + " at " +
                   hex(request.sges[0].address) + " was changed, first within " + which +
                   ", before its completion was polled: the peer may get the new bytes",
               "posted", request.place,
               "write to the buffer only after the completion was polled, or send from another "
               "one, or with IBV_SEND_INLINE"});
}

void check_status(const QueuePair& qp, const Request& request, const Completion& done,
                  Reporter& out) {
    std::optional<Advice> advice = advice_for(done.status, qp.made.type);
    if (done.exchanged)
        advice = Advice{Kind::Disagreement,
                        "dest_qp_num must be the peer's qp_num, and rq_psn its sq_psn"};
    if (!advice) return;
    std::string sentence = describe(request, qp.made.qpn) + " failed with " + done.status_name;
    if (!done.why.empty()) sentence += ": " + done.why;
    out.found({advice->kind, sentence, "posted", request.place, advice->mend});
}

void check_notice(Ledger& ledger, const QueuePair& qp, const Notice& notice, Reporter& out) {
    const std::uint64_t receives =
        qp.made.srq != nullptr ? ledger.srq(qp.made.srq).receives_posted : qp.receives_posted;
    switch (notice.kind) {
        case NoticeKind::NoReceive:
            // One that comes too late now and then is what RNR retries are for. The shared queue
            // of an XRC target is named by each message, so which lacks receives is not known.
            if (receives > 0 || qp.made.type == QpType::Xrc) return;
            return out.found({Kind::NoReceive,
                              "the peer of queue pair " + qpn_text(qp.made.qpn) +
                                  " sends, but no receive was posted here since RESET",
                              "connected", qp.connected_at,
                              "post receives before RTR (before rdma_accept or rdma_connect), and "
                              "again after every RESET"});
        case NoticeKind::FirstPsn:
            return out.found({Kind::Disagreement, notice.sentence, "connected", qp.connected_at,
                              "rq_psn here must be the peer's sq_psn, and dest_qp_num the peer's "
                              "qp_num: exchange both"});
        case NoticeKind::WrongQkey:
            return out.found({Kind::Datagram, notice.sentence, "connected", qp.connected_at,
                              "send with the qkey that the receiver set by IBV_QP_QKEY"});
        case NoticeKind::LongDatagram:
            return out.found({Kind::Datagram, notice.sentence, "connected", qp.connected_at,
                              "post receives of a UD queue pair with 40 bytes of GRH more than the "
                              "longest message"});
        case NoticeKind::CqOverrun:
            return out.found({Kind::CqTooSmall, notice.sentence, "created", qp.made_at,
                              "create the completion queue with the sum of max_send_wr and "
                              "max_recv_wr of all its queue pairs, and poll it in time"});
    }
}

}  // namespace feroce::lint
