#include "cli/explain.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cli/state.hpp"

namespace feroce::cli {
namespace {

using process::answers;
using process::StateReading;
using process::StateReason;
using process::StateSnapshot;

std::string whom(const StateReading& reading) {
    return fmt::format("{} (pid {}{})", reading.snapshot.command, reading.snapshot.pid,
                       reading.alive ? "" : ", ended");
}

// The process that had a queue pair of that number on this machine, if none alive has its slot: the
// youngest of those that were killed.
const StateReading* killed_owner(const std::vector<StateReading>& readings, std::uint64_t network,
                                 std::uint32_t qpn) {
    const StateReading* found = nullptr;
    for (const StateReading& reading : readings) {
        const std::vector<std::uint8_t>& slots = reading.snapshot.slots;
        if (reading.snapshot.network != network ||
            std::find(slots.begin(), slots.end(), qpn >> 16) == slots.end())
            continue;
        if (reading.alive) return nullptr;
        if (found == nullptr || found->changed_ns < reading.changed_ns) found = &reading;
    }
    return found;
}

// Whether a queue pair's peer is on the same machine.
bool is_local(const StateSnapshot& s, std::uint32_t qpn) {
    return std::any_of(s.qps.begin(), s.qps.end(), [qpn](const process::StateQp& qp) {
        return qp.qpn == qpn && qp.source == qp.destination;
    });
}

Json causes(const std::vector<StateReading>& readings, const StateSnapshot& of,
            const StateReason& failure) {
    Json out = Json::array();
    for (const StateReading& reading : readings)
        for (const StateReason& reason : reading.snapshot.reasons)
            if (answers(reason, failure))
                out.push_back({{"pid", reading.snapshot.pid},
                               {"who", whom(reading)},
                               {"reason", reason.sentence}});
    if (!failure.peer_silent || !is_local(of, failure.qpn)) return out;
    const StateReading* owner = killed_owner(readings, of.network, failure.peer_qpn);
    // A process that talked to itself was there to see the failure.
    if (owner != nullptr && owner->snapshot.pid != of.pid)
        out.push_back({{"pid", owner->snapshot.pid},
                       {"who", whom(*owner)},
                       {"reason", fmt::format("the process was killed, and QP 0x{:06x} with it",
                                              failure.peer_qpn)}});
    return out;
}

bool concerns(std::optional<std::uint32_t> which, const StateSnapshot& s, const StateReason& r) {
    return !which || *which == s.pid || *which == r.qpn || *which == r.peer_qpn;
}

// Shown as the cause of a failure, so not once more by itself.
bool is_cause(std::optional<std::uint32_t> which, const std::vector<StateReading>& readings,
              const StateReason& refusal) {
    for (const StateReading& reading : readings)
        for (const StateReason& failure : reading.snapshot.reasons)
            if (answers(refusal, failure) && concerns(which, reading.snapshot, failure))
                return true;
    return false;
}

Json collect(std::optional<std::uint32_t> which) {
    const std::vector<StateReading> readings = all_processes();
    Json out = Json::array();
    for (const StateReading& reading : readings) {
        const StateSnapshot& s = reading.snapshot;
        for (const StateReason& reason : s.reasons) {
            if (!concerns(which, s, reason) || is_cause(which, readings, reason)) continue;
            out.push_back({{"pid", s.pid},
                           {"comm", s.command},
                           {"alive", reading.alive},
                           {"who", whom(reading)},
                           {"lqpn", reason.qpn},
                           {"psn", reason.psn},
                           {"reason", reason.sentence},
                           {"because", causes(readings, s, reason)}});
        }
    }
    return out;
}

void print_words(const Json& records) {
    std::string last;
    for (const Json& record : records) {
        const std::string who = record["who"];
        if (who != last) fmt::print("{}:\n", who);
        last = who;
        fmt::print("  {}\n", record["reason"].get<std::string>());
        for (const Json& cause : record["because"])
            fmt::print("    because {}: {}\n", cause["who"].get<std::string>(),
                       cause["reason"].get<std::string>());
    }
}

}  // namespace

int explain(std::optional<std::uint32_t> which, const OutputOptions& options) {
    const Json records = collect(which);
    if (options.json)
        print_json(records, options);
    else
        print_words(records);
    if (!records.empty()) return 0;
    fmt::print(stderr, "feroce: nothing to explain: no work request{} has failed\n",
               which ? fmt::format(" of pid or QP {}", *which) : "");
    return 1;
}

}  // namespace feroce::cli
