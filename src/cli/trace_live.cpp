// The live exchange of queue pairs, by looking at the state pages of their processes again and
// again: nothing of the data path knows that somebody looks. What happened between two looks is
// summed up.
#include <fmt/format.h>

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include "cli/perfetto/trace_file.hpp"
#include "cli/state.hpp"
#include "cli/trace.hpp"

namespace feroce::cli {
namespace {

using process::StateQp;
using process::StateSnapshot;
using Clock = std::chrono::steady_clock;

Json record_of(double seconds, const StateSnapshot& process, const StateQp& qp) {
    Json out{{"seconds", seconds},
             {"pid", process.pid},
             {"comm", process.command},
             {"lqpn", qp.qpn},
             {"rqpn", qp.peer_qpn},
             {"state", state_name(qp.state)},
             {"next-psn", qp.next_psn},
             {"unacked-psn", qp.unacknowledged_psn},
             {"expected-psn", qp.expected_psn},
             {"msn", qp.msn},
             {"in-flight", qp.in_flight_bytes},
             {"window", qp.window_bytes},
             {"sends", qp.sends_outstanding},
             {"receives", qp.receives_posted},
             {"retries-left", qp.retries_left},
             {"rnr-retries-left", qp.rnr_retries_left},
             {"sent_pkts", qp.packets_sent},
             {"rcvd_pkts", qp.packets_received}};
    if (qp.credits >= 0) out["credits"] = qp.credits;
    if (qp.timer_us >= 0) out["timer-us"] = qp.timer_us;
    if (qp.rtt_ns > 0) out["rtt-us"] = static_cast<double>(qp.rtt_ns) / 1000;
    return out;
}

std::string progress_line(const Json& r) {
    std::string out = fmt::format(
        "{:.3f} qp 0x{:06x} {}: next PSN {} (oldest unacknowledged {}), expects PSN {}, MSN {}, "
        "{} of {} bytes in flight, {} sends and {} receives posted",
        r["seconds"].get<double>(), r["lqpn"].get<std::uint32_t>(), r["state"].get<std::string>(),
        r["next-psn"].get<std::uint32_t>(), r["unacked-psn"].get<std::uint32_t>(),
        r["expected-psn"].get<std::uint32_t>(), r["msn"].get<std::uint32_t>(),
        r["in-flight"].get<std::uint32_t>(), r["window"].get<std::uint32_t>(),
        r["sends"].get<std::uint32_t>(), r["receives"].get<std::uint32_t>());
    if (r.contains("credits")) out += fmt::format(", credits {}", r["credits"].get<int>());
    if (r.contains("timer-us"))
        out += fmt::format(", timer in {} us, {} retries left", r["timer-us"].get<int>(),
                           r["retries-left"].get<int>());
    if (r.contains("rtt-us"))
        out += fmt::format(", round trip {:.1f} us", r["rtt-us"].get<double>());
    return out;
}

// What tells whether a queue pair has moved.
auto progress(const StateQp& qp) {
    return std::make_tuple(qp.state, qp.packets_sent, qp.packets_received, qp.sends_outstanding,
                           qp.receives_posted);
}

// Counters of one look, in the group of the queue pair's process.
void add_counters(double seconds, const StateSnapshot& process, const StateQp& qp,
                  TraceFile& file) {
    const double us = seconds * 1e6;
    const auto add = [&](const char* what, const char* unit, double value) {
        file.count(process.pid, us, fmt::format("QP 0x{:06x} {}", qp.qpn, what), unit, value);
    };
    add("outstanding sends", "work requests", qp.sends_outstanding);
    add("in flight", "bytes", qp.in_flight_bytes);
    add("window", "bytes", qp.window_bytes);
    add("packets sent", "packets", static_cast<double>(qp.packets_sent));
    add("packets received", "packets", static_cast<double>(qp.packets_received));
    if (qp.rtt_ns > 0) add("round trip", "us", static_cast<double>(qp.rtt_ns) / 1000);
}

void tell_moved(double seconds, const StateSnapshot& process, const StateQp& qp,
                const OutputOptions& options) {
    const Json record = record_of(seconds, process, qp);
    if (options.json)
        print_json(record, options);  // One a line: it has no end.
    else
        fmt::print("{}\n", progress_line(record));
    std::fflush(stdout);
}

std::optional<TraceFile> file_for(const TraceOptions& trace) {
    if (trace.perfetto.empty()) return std::nullopt;
    return std::optional<TraceFile>(std::in_place, trace.perfetto);
}

// Looks until the queue pairs are gone, or as many lines as are wanted were told. False: there
// never was one.
bool watch(std::uint32_t which, const TraceOptions& trace, const OutputOptions& options,
           std::optional<TraceFile>& file) {
    const Clock::time_point start = Clock::now();
    std::map<std::pair<std::uint32_t, std::uint32_t>, decltype(progress(StateQp{}))> seen;
    std::set<std::uint32_t> named;
    std::uint32_t lines = 0;
    for (bool first = true;; first = false) {
        bool found = false;
        const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
        for (const StateSnapshot& process : live_processes()) {
            for (const StateQp& qp : process.qps) {
                if (which != process.pid && which != qp.qpn) continue;
                found = true;
                const auto [at, is_new] = seen.try_emplace({process.pid, qp.qpn}, progress(qp));
                if (!is_new && at->second == progress(qp)) continue;
                at->second = progress(qp);
                if (file && named.insert(process.pid).second)
                    file->name_group(process.pid, process.command);
                if (file)
                    add_counters(seconds, process, qp, *file);
                else
                    tell_moved(seconds, process, qp, options);
                if (++lines == trace.lines) return true;
            }
        }
        if (file) file->flush();
        if (!found) return !first;
        std::this_thread::sleep_for(std::chrono::milliseconds(trace.every));
    }
}

}  // namespace

int trace_live(std::uint32_t which, const TraceOptions& trace, const OutputOptions& options) {
    std::optional<TraceFile> file = file_for(trace);
    const bool any = watch(which, trace, options, file);
    if (file) file->finish();
    if (any) return 0;
    fmt::print(stderr, "feroce: no live process or queue pair has the number {}\n", which);
    return 1;
}

}  // namespace feroce::cli
