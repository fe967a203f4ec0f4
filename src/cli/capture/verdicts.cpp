#include "cli/capture/verdicts.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "wire/print.hpp"

namespace feroce::cli {
namespace {

using Kind = CaptureFinding::Kind;

constexpr std::uint64_t kAlwaysOnePacket = 256;  // What is shorter is one packet everywhere.

std::string qp(std::uint32_t qpn) {
    return qpn == 0 ? "the queue pair" : fmt::format("QP 0x{:06x}", qpn);
}

std::string end_at(std::uint32_t qpn, const Gid& address) {
    return qpn == 0 ? "a queue pair at " + to_string(address)
                    : fmt::format("QP 0x{:06x} at {}", qpn, to_string(address));
}

const char* plural(std::uint64_t count) {
    return count == 1 ? "" : "s";
}

// The sender of requests is the one that is spoken of.
CaptureFinding about(const Flow& flow, Kind kind, Psn psn, Duration time) {
    CaptureFinding out;
    out.kind = kind;
    out.time = time;
    out.source = flow.source;
    out.qpn = flow.from_qpn;
    out.destination = flow.destination;
    out.peer_qpn = flow.qpn;
    out.psn = psn.raw();
    return out;
}

const char* operation(wire::Verb verb) {
    switch (verb) {
        case wire::Verb::Write:
            return "an RDMA WRITE of ";
        case wire::Verb::ReadRequest:
            return "an RDMA READ of ";
        case wire::Verb::CompareSwap:
        case wire::Verb::FetchAdd:
            return "an atomic on ";
        case wire::Verb::AtomicWrite:
            return "an atomic WRITE of ";
        case wire::Verb::Flush:
            return "a FLUSH of ";
        default:
            return "a SEND";
    }
}

std::string details(const Refusal& refusal) {
    if (!refusal.request) return " (its beginning is not in the capture)";
    const SeenRequest& asked = *refusal.request;
    if (!asked.has_memory) return fmt::format(" ({})", operation(asked.verb));
    return fmt::format(" ({}{} bytes at 0x{:x} with key 0x{:08x})", operation(asked.verb),
                       asked.length, asked.address, asked.key);
}

const char* status_of(wire::NakCode code) {
    switch (code) {
        case wire::NakCode::InvalidRequest:
            return "IBV_WC_REM_INV_REQ_ERR";
        case wire::NakCode::RemoteAccess:
            return "IBV_WC_REM_ACCESS_ERR";
        case wire::NakCode::RemoteOperational:
            return "IBV_WC_REM_OP_ERR";
        default:
            return "IBV_WC_REM_INV_RD_REQ_ERR";
    }
}

const char* flag_for(wire::Verb verb) {
    if (verb == wire::Verb::ReadRequest) return "IBV_ACCESS_REMOTE_READ";
    if (verb == wire::Verb::CompareSwap || verb == wire::Verb::FetchAdd)
        return "IBV_ACCESS_REMOTE_ATOMIC";
    return "IBV_ACCESS_REMOTE_WRITE";
}

bool is_atomic(wire::Verb verb) {
    return verb == wire::Verb::CompareSwap || verb == wire::Verb::FetchAdd;
}

std::string why_no_access(const Flow& flow, const SeenRequest& asked) {
    const auto& gone = flow.invalidated;
    if (std::find(gone.begin(), gone.end(), asked.key) != gone.end())
        return fmt::format("the key 0x{:08x} was invalidated before, by a SEND of this connection",
                           asked.key);
    if (!asked.has_memory) return "";
    return fmt::format(
        "a capture does not show which: the key is unknown, stale or not bound, the access leaves "
        "its region, or the region lacks {}",
        flag_for(asked.verb));
}

std::string why_invalid(const Flow& flow, const Refusal& refusal) {
    const SeenRequest& asked = *refusal.request;
    if (is_atomic(asked.verb) && asked.address % 8 != 0)
        return "the address of an atomic is not a multiple of eight";
    const bool asks = asked.verb == wire::Verb::ReadRequest || is_atomic(asked.verb);
    if (asks && flow.reads_max && refusal.reads_open > *flow.reads_max)
        return fmt::format(
            "more READs and atomics at once than max_dest_rd_atomic: {} were not answered, and "
            "the connection manager promised {}",
            refusal.reads_open, *flow.reads_max);
    const std::string flags =
        asked.has_memory
            ? fmt::format("the queue pair's access flags forbid the operation (they lack {})",
                          flag_for(asked.verb))
            : "the message is longer than the posted receive";
    return fmt::format("a capture does not show which: {}{}{}", flags,
                       asks ? ", more READs and atomics at once than max_dest_rd_atomic" : "",
                       asked.length > kAlwaysOnePacket
                           ? ", or the two ends have different path MTUs"
                           : ", or the request breaks a rule that the capture does not show");
}

std::string why_refused(const Flow& flow, const Refusal& refusal) {
    if (!refusal.request) return "";
    switch (refusal.syndrome.nak_code()) {
        case wire::NakCode::RemoteAccess:
            return why_no_access(flow, *refusal.request);
        case wire::NakCode::InvalidRequest:
            return why_invalid(flow, refusal);
        case wire::NakCode::RemoteOperational:
            return refusal.request->verb == wire::Verb::Send
                       ? "the peer could not use its own receive: it is too short for the message, "
                         "or names memory that may not be written"
                       : "the peer failed by itself";
        default:
            return "";
    }
}

CaptureFinding refused(const Flow& flow) {
    const Refusal& refusal = *flow.requests.refusal;
    CaptureFinding out = about(flow, Kind::Failure, refusal.psn, refusal.time);
    out.sentence = fmt::format(
        "a work request of {} failed at PSN {} ({}): the peer refused the request{}; the peer "
        "answered with {}; the peer is {}",
        qp(flow.from_qpn), refusal.psn.raw(), status_of(refusal.syndrome.nak_code()),
        details(refusal), wire::to_string(refusal.syndrome), end_at(flow.qpn, flow.destination));
    out.because = why_refused(flow, refusal);
    return out;
}

// The sender had time enough to send again, and did not.
bool gave_up(Duration end, Duration last, Duration pause) {
    return end - last > 4 * pause + std::chrono::milliseconds(100);
}

std::optional<CaptureFinding> without_receive(const Flow& flow, Duration end) {
    const SeenRequests& r = flow.requests;
    if (r.rnr_row == 0 || !r.rnr_pending) return std::nullopt;
    const Duration wait = std::chrono::microseconds(r.rnr_wait_us);
    const std::uint32_t retries = r.rnr_row - 1;
    const bool by_count = flow.rnr_retries && *flow.rnr_retries < 7 && retries >= *flow.rnr_retries;
    CaptureFinding out = about(flow, Kind::Failure, r.rnr_psn, r.last_rnr);
    if (by_count || gave_up(end, r.last_rnr, wait)) {
        out.sentence = fmt::format(
            "a work request of {} failed at PSN {} (IBV_WC_RNR_RETRY_EXC_ERR): the peer had no "
            "receive posted ({} retries); the peer is {}",
            qp(flow.from_qpn), r.rnr_psn.raw(), retries, end_at(flow.qpn, flow.destination));
    } else {
        out.kind = Kind::Doubt;
        out.sentence = fmt::format(
            "{} waits at PSN {}: the peer had no receive posted ({} retries); the capture ends "
            "before it shows whether the retries ran out; the peer is {}",
            qp(flow.from_qpn), r.rnr_psn.raw(), retries, end_at(flow.qpn, flow.destination));
    }
    return out;
}

// The head of both sentences about a peer that does not acknowledge.
std::string unacknowledged(const Flow& flow, Psn psn, std::uint64_t retries, bool ended) {
    if (ended)
        return fmt::format(
            "a work request of {} failed at PSN {} (IBV_WC_RETRY_EXC_ERR): the peer did not "
            "acknowledge ({} retries)",
            qp(flow.from_qpn), psn.raw(), retries);
    return fmt::format("{} sends PSN {} again: the peer did not acknowledge ({} retries)",
                       qp(flow.from_qpn), psn.raw(), retries);
}

// No sending again can mend this one.
std::optional<CaptureFinding> disagreement(const Flow& flow, Duration end) {
    const SeenRequests& r = flow.requests;
    if (!r.stray_expectation || r.progressed || r.repeated == 0) return std::nullopt;
    CaptureFinding out = about(flow, Kind::Failure, r.first(), r.last_sent);
    out.sentence =
        unacknowledged(flow, r.first(), r.rounds, gave_up(end, r.last_sent, r.longest_pause));
    out.because = fmt::format(
        "{} expects PSN {}, its rq_psn, but the packets of its peer at {} begin with PSN {}: the "
        "peer's sq_psn must be this rq_psn",
        qp(flow.qpn), r.stray_expectation->raw(), to_string(flow.source), r.first().raw());
    return out;
}

std::optional<CaptureFinding> silence(const Flow& flow, Duration end) {
    const SeenRequests& r = flow.requests;
    const bool unheard = r.is_open() && r.rounds > 0;
    const bool deaf = r.answered_open && r.repeated_answered > 0;
    if (!unheard && !deaf) return std::nullopt;
    // Not by counting: a sender may probe more often than its retry_cnt.
    const bool ended = gave_up(end, r.last_sent, r.longest_pause);
    const Psn psn = r.unacknowledged();
    CaptureFinding out = about(flow, ended ? Kind::Failure : Kind::Doubt, psn, r.last_sent);
    if (deaf) {
        out.sentence = fmt::format(
            "{} sends what was answered again ({} packets), up to the end of the capture",
            qp(flow.from_qpn), r.repeated_answered);
        out.because = fmt::format(
            "{} got the request and answered: its answers are lost on the way back from {} to {}, "
            "behind the place of this capture, or come too late",
            qp(flow.qpn), to_string(flow.destination), to_string(flow.source));
        return out;
    }
    out.sentence = unacknowledged(flow, psn, r.rounds, ended) +
                   (r.answers > 0 ? "; it was heard before" : "; nothing was ever heard from it");
    if (!ended) out.sentence += "; the capture ends before it shows whether the retries ran out";
    out.sentence += "; the peer is " + end_at(flow.qpn, flow.destination);
    return out;
}

// What did no lasting harm.
std::vector<CaptureFinding> troubles(const Flow& flow, bool failed) {
    const SeenRequests& r = flow.requests;
    std::vector<CaptureFinding> out;
    const auto say = [&](std::string sentence) {
        out.push_back(about(flow, Kind::Notice, r.unacknowledged(), flow.last));
        out.back().sentence = std::move(sentence);
    };
    if (flow.start && r.any() && r.first() != *flow.start && !failed)
        say(fmt::format("{} begins with PSN {}, but the connection manager was told {}",
                        qp(flow.from_qpn), r.first().raw(), flow.start->raw()));
    if (failed) return out;
    if (r.rnr_naks > 0 && !r.rnr_pending)
        say(
            fmt::format("{} had no receive posted {} time{}: it asked the peer to wait, and the "
                        "peer sent again",
                        qp(flow.qpn), r.rnr_naks, plural(r.rnr_naks)));
    if (r.repeated > r.rnr_naks || r.sequence_naks > 0)
        say(
            fmt::format("{} sent {} packet{} again ({} asked for by a sequence NAK, {} answered "
                        "before), and went on",
                        qp(flow.from_qpn), r.repeated, plural(r.repeated), r.sequence_naks,
                        r.repeated_answered));
    return out;
}

}  // namespace

std::vector<CaptureFinding> verdicts(const Flow& flow, Duration end) {
    if (flow.lost_of_uc.value_or(0) > 0) {
        CaptureFinding out = about(flow, Kind::Notice, flow.next_of_uc, flow.last);
        out.sentence = fmt::format(
            "{} packets of {} to {} are missing by their PSNs: UC sends nothing again, so their "
            "messages are lost, unless only the capture misses them",
            *flow.lost_of_uc, qp(flow.from_qpn), end_at(flow.qpn, flow.destination));
        return {out};
    }
    std::optional<CaptureFinding> failure;
    if (flow.requests.refusal) failure = refused(flow);
    if (!failure) failure = disagreement(flow, end);
    if (!failure) failure = without_receive(flow, end);
    if (!failure) failure = silence(flow, end);
    std::vector<CaptureFinding> out = troubles(flow, failure.has_value());
    if (failure) out.insert(out.begin(), *failure);
    return out;
}

std::optional<CaptureFinding> verdict(const Exchange& e, Duration end) {
    CaptureFinding out;
    out.time = e.last;
    out.source = e.caller;
    out.qpn = e.caller_qpn;
    out.destination = e.callee;
    out.peer_qpn = e.callee_qpn;
    const std::string whose = e.reqs == 0
                                  ? fmt::format("a connection between {} and {}",
                                                to_string(e.caller), to_string(e.callee))
                                  : fmt::format("the connection that {} asked of {} {}",
                                                to_string(e.caller), to_string(e.callee), e.what);
    if (e.rejected) {
        const char* text = wire::to_string(*e.rejected);
        out.sentence = fmt::format("{} was refused by {}: REJ, reason {} ({})", whose,
                                   to_string(e.rejecter), static_cast<unsigned>(*e.rejected),
                                   text[0] == '?' ? "not one of IBTA's" : text);
        return out;
    }
    if (e.sidr_status.value_or(0) != 0) {
        out.sentence = fmt::format(
            "the queue pair for datagrams that {} asked of {} {} was refused: SIDR_REP, status {}",
            to_string(e.caller), to_string(e.callee), e.what, *e.sidr_status);
        return out;
    }
    const bool unanswered = e.reqs > 0 && e.reps == 0 && e.mras == 0;
    if (unanswered && (e.reqs > 1 || gave_up(end, e.last, std::chrono::seconds(4)))) {
        out.sentence = fmt::format("{} got no answer: {} was sent {} time{}", whose,
                                   e.is_datagram ? "SIDR_REQ" : "REQ", e.reqs, plural(e.reqs));
        return out;
    }
    if (e.dreqs > 1 && e.dreps == 0) {
        out.kind = CaptureFinding::Kind::Notice;
        out.sentence = fmt::format(
            "{} was ended by {}, and the other end did not answer: DREQ was "
            "sent {} times",
            whose, to_string(e.leaver), e.dreqs);
        return out;
    }
    return std::nullopt;
}

std::vector<CaptureFinding> verdicts(const Gid& source, const Gid& destination, const Road& road) {
    std::vector<CaptureFinding> out;
    const auto say = [&](Kind kind, std::string sentence, std::string because = "") {
        CaptureFinding finding;
        finding.kind = kind;
        finding.source = source;
        finding.destination = destination;
        finding.sentence = std::move(sentence);
        finding.because = std::move(because);
        out.push_back(std::move(finding));
    };
    const std::string way = fmt::format("from {} to {}", to_string(source), to_string(destination));
    if (road.bad > 0 && road.bad == road.checked && road.bad_answered > 0)
        say(Kind::Notice,
            fmt::format("all {} packets {} have a wrong ICRC in the capture, but are answered: it "
                        "was made before they were finished",
                        road.bad, way));
    else if (road.bad > 0)
        say(Kind::Failure,
            fmt::format("{} of {} packet{} {} have a wrong ICRC: receivers drop them", road.bad,
                        road.checked, plural(road.checked), way),
            road.bad == road.checked ? "all arrive damaged: address translation or segmentation by "
                                       "hardware on the way breaks the ICRC"
                                     : "");
    if (road.marked > 0)
        say(Kind::Notice, fmt::format("{} of {} packets {} were marked by a congested switch (ECN)",
                                      road.marked, road.packets, way));
    if (road.cnps > 0)
        say(Kind::Notice, fmt::format("{} CNP{} {} asked the other end to send slower", road.cnps,
                                      plural(road.cnps), way));
    return out;
}

}  // namespace feroce::cli
