#include "cli/explain.hpp"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "cli/state.hpp"

namespace feroce::cli {
namespace {

using process::answers;
using process::StateQp;
using process::StateReading;
using process::StateReason;
using process::StateReasonKind;
using process::StateSnapshot;

std::string whom(const StateReading& reading) {
    return fmt::format("{} (pid {}{})", reading.snapshot.command, reading.snapshot.pid,
                       reading.alive ? "" : ", ended");
}

const char* kind_name(StateReasonKind kind) {
    switch (kind) {
        case StateReasonKind::Failure:
            return "failure";
        case StateReasonKind::Refusal:
            return "refusal";
        case StateReasonKind::Notice:
            return "notice";
        case StateReasonKind::Local:
            return "local";
    }
    return "unknown";
}

// The process that took the other end of a connection along when it ended. Its slot would not do:
// another process may have had it before or since.
const StateReading* lost_owner(const std::vector<StateReading>& readings, std::uint64_t network,
                               const StateReason& failure) {
    const process::Connection wanted{failure.peer_qpn, failure.qpn};
    const StateReading* found = nullptr;
    for (const StateReading& reading : readings) {
        const auto& all = reading.connections;
        if (reading.alive || reading.snapshot.finished || reading.snapshot.network != network ||
            std::find(all.begin(), all.end(), wanted) == all.end())
            continue;
        if (found == nullptr || found->changed_ns < reading.changed_ns) found = &reading;
    }
    return found;
}

struct PeerQp {
    const StateReading* reading = nullptr;
    const StateQp* qp = nullptr;
};

// The other end of a connection, if a process of this machine and user has it.
PeerQp find_peer(const std::vector<StateReading>& readings, const StateReason& failure) {
    for (const StateReading& reading : readings) {
        if (!reading.alive && !reading.snapshot.finished) continue;  // What it shows may be old.
        for (const StateQp& qp : reading.snapshot.qps)
            if (qp.qpn == failure.peer_qpn && qp.peer_qpn == failure.qpn &&
                qp.source == failure.destination && qp.destination == failure.source)
                return {&reading, &qp};
    }
    return {};
}

Json cause(const StateReading& reading, const std::string& sentence) {
    return {{"pid", reading.snapshot.pid}, {"who", whom(reading)}, {"reason", sentence}};
}

// Which way packets are lost, by how far the other end has come.
std::string which_way(const StateQp& peer, const StateReason& failure) {
    constexpr std::uint8_t kErr = 6;
    if (peer.state == kErr) return fmt::format("QP 0x{:06x} is in state ERR", peer.qpn);
    const auto ahead = static_cast<std::int32_t>((peer.expected_psn - failure.psn) << 8) >> 8;
    if (ahead > 0)
        return fmt::format(
            "QP 0x{:06x} got the request and answered (it expects PSN {} next): its answers are "
            "lost on the way back from {} to {}",
            peer.qpn, peer.expected_psn, to_string(peer.source), to_string(peer.destination));
    return fmt::format(
        "QP 0x{:06x} is ready and still expects PSN {}: the packets are lost on the way from {} to "
        "{}",
        peer.qpn, peer.expected_psn, to_string(peer.destination), to_string(peer.source));
}

// What nobody has said, but the states of both ends tell together.
Json derived_causes(const std::vector<StateReading>& readings, const StateSnapshot& of,
                    const StateReason& failure) {
    Json out = Json::array();
    if (failure.kind != StateReasonKind::Failure || !failure.peer_silent) return out;
    if (const PeerQp peer = find_peer(readings, failure); peer.qp != nullptr) {
        if (peer.reading->snapshot.pid != of.pid)
            out.push_back(cause(*peer.reading, which_way(*peer.qp, failure)));
        return out;
    }
    const StateReading* owner = lost_owner(readings, of.network, failure);
    // A process that talked to itself was there to see the failure. How a process ended that could
    // not say so is not known here.
    if (owner != nullptr && owner->snapshot.pid != of.pid)
        out.push_back(cause(
            *owner, fmt::format("the process ended without closing QP 0x{:06x} (it was killed, "
                                "crashed, or left by _exit or exec)",
                                failure.peer_qpn)));
    return out;
}

// What the other ends have said themselves.
Json told_causes(const std::vector<StateReading>& readings, const StateReason& failure) {
    Json out = Json::array();
    for (const StateReading& reading : readings)
        for (const StateReason& reason : reading.snapshot.reasons)
            if (answers(reason, failure)) out.push_back(cause(reading, reason.sentence));
    return out;
}

Json causes(const std::vector<StateReading>& readings, const StateSnapshot& of,
            const StateReason& failure) {
    Json told = told_causes(readings, failure);
    if (told.empty()) return derived_causes(readings, of, failure);
    // Who has the slot now and knows no such queue pair is not the one to blame.
    const StateReading* owner = lost_owner(readings, of.network, failure);
    const auto is_owners = [&](const Json& t) { return t["pid"] == owner->snapshot.pid; };
    const bool blame = failure.peer_silent && owner != nullptr && owner->snapshot.pid != of.pid &&
                       std::none_of(told.begin(), told.end(), is_owners);
    return blame ? derived_causes(readings, of, failure) : told;
}

bool concerns(std::optional<std::uint32_t> which, const StateSnapshot& s, const StateReason& r) {
    return !which || *which == s.pid || *which == r.qpn || *which == r.peer_qpn;
}

// What another process knows of the one that was asked for: a datagram that it dropped, or a
// failure that is explained by where that one is.
bool concerns_peer(std::optional<std::uint32_t> which, const std::vector<StateReading>& readings,
                   const StateSnapshot& s, const StateReason& r) {
    const Json derived = derived_causes(readings, s, r);
    if (!derived.empty() && told_causes(readings, r).empty())
        return which == derived[0]["pid"].get<std::uint32_t>();
    if (r.kind != StateReasonKind::Notice) return false;
    for (const StateReading& reading : readings)
        for (const StateQp& qp : reading.snapshot.qps)
            if (which == reading.snapshot.pid && qp.qpn == r.peer_qpn &&
                (qp.source.is_zero() || qp.source == r.destination))
                return true;
    return false;
}

// Shown as the cause of a failure, so not once more by itself.
bool is_cause(std::optional<std::uint32_t> which, const std::vector<StateReading>& readings,
              const StateReason& reason) {
    if (reason.kind != StateReasonKind::Refusal && reason.kind != StateReasonKind::Notice)
        return false;
    for (const StateReading& reading : readings)
        for (const StateReason& failure : reading.snapshot.reasons)
            if (answers(reason, failure) && concerns(which, reading.snapshot, failure)) return true;
    return false;
}

std::vector<Gid> own_addresses() {
    std::vector<Gid> out;
    ifaddrs* list = nullptr;
    if (::getifaddrs(&list) != 0) return out;
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
        if (entry->ifa_addr == nullptr) continue;
        if (entry->ifa_addr->sa_family == AF_INET) {
            const auto* v4 = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
            out.push_back(Gid::from_v4(ntohl(v4->sin_addr.s_addr)));
        } else if (entry->ifa_addr->sa_family == AF_INET6) {
            const auto* v6 = reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr);
            Gid& gid = out.emplace_back();
            std::memcpy(gid.raw.data(), &v6->sin6_addr, gid.raw.size());
        }
    }
    ::freeifaddrs(list);
    return out;
}

// Where more can be learnt of a trouble with a peer, if that is not here.
Json whom_to_ask(const StateReason& reason, const std::vector<Gid>& here) {
    if (reason.kind != StateReasonKind::Failure || !reason.with_peer ||
        reason.destination.is_zero() || reason.destination == reason.source ||
        reason.peer_qpn == 0 ||
        std::find(here.begin(), here.end(), reason.destination) != here.end())
        return nullptr;
    return {{"address", to_string(reason.destination)},
            {"command", fmt::format("feroce explain 0x{:06x}", reason.peer_qpn)}};
}

}  // namespace

Json explanations(const std::vector<StateReading>& readings, std::optional<std::uint32_t> which) {
    const std::vector<Gid> here = own_addresses();
    Json out = Json::array();
    for (const StateReading& reading : readings) {
        const StateSnapshot& s = reading.snapshot;
        for (const StateReason& reason : s.reasons) {
            if (is_cause(which, readings, reason)) continue;
            if (reason.minor && which != s.pid && which != reason.qpn) continue;
            if (!concerns(which, s, reason) && !concerns_peer(which, readings, s, reason)) continue;
            out.push_back({{"pid", s.pid},
                           {"comm", s.command},
                           {"alive", reading.alive},
                           {"who", whom(reading)},
                           {"lqpn", reason.qpn},
                           {"rqpn", reason.peer_qpn},
                           {"psn", reason.psn},
                           {"kind", kind_name(reason.kind)},
                           {"reason", reason.sentence},
                           {"because", causes(readings, s, reason)},
                           {"ask", whom_to_ask(reason, here)}});
        }
    }
    return out;
}

void print_explanations(const Json& records) {
    std::string last;
    for (const Json& record : records) {
        const std::string who = record["who"];
        if (who != last) fmt::print("{}:\n", who);
        last = who;
        fmt::print("  {}\n", record["reason"].get<std::string>());
        for (const Json& cause : record["because"])
            fmt::print("    because {}: {}\n", cause["who"].get<std::string>(),
                       cause["reason"].get<std::string>());
        if (record["because"].empty() && record.contains("ask") && !record["ask"].is_null())
            fmt::print("    the other end may know more: {} on the machine of {}\n",
                       record["ask"]["command"].get<std::string>(),
                       record["ask"]["address"].get<std::string>());
    }
}

std::string explanation_gap(std::optional<std::uint32_t> which) {
    std::string pids;
    for (const std::uint32_t pid : process::unkept_processes(::geteuid()))
        if (!which || *which == pid) pids += (pids.empty() ? "" : ", ") + std::to_string(pid);
    if (!pids.empty())
        return fmt::format(
            "there was no room for a page in /dev/shm, or it could not be written, "
            "when these processes started: {}",
            pids);
    if (const auto trouble = process::page_trouble(::geteuid()))
        return *trouble + ", so programs leave nothing behind there";
    return "";
}

int explain(std::optional<std::uint32_t> which, const OutputOptions& options) {
    const Json records = explanations(all_processes(), which);
    if (options.json)
        print_json(records, options);
    else
        print_explanations(records);
    const std::string unknown = explanation_gap(which);
    if (!unknown.empty()) fmt::print(stderr, "feroce: not everything can be known: {}\n", unknown);
    if (!records.empty()) return 0;
    if (!unknown.empty()) return 2;
    fmt::print(stderr, "feroce: nothing to explain: no work request{} has failed\n",
               which ? fmt::format(" of pid or QP {}", *which) : "");
    return 1;
}

}  // namespace feroce::cli
