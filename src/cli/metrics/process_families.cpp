#include "cli/metrics/process_families.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "cli/state.hpp"

namespace feroce::cli {
namespace {

Family gauge(std::string name, std::string help) {
    return {std::move(name), MetricKind::Gauge, std::move(help), {}};
}

Family total(std::string name, std::string help) {
    return {std::move(name), MetricKind::Counter, std::move(help), {}};
}

void append(std::vector<Family>& out, std::initializer_list<Family*> families) {
    for (Family* family : families) out.push_back(std::move(*family));
}

// Calls `use` with every queue pair of live processes that is on a device.
template <class Use>
void each_qp(const MetricSource& source, Use use) {
    for (const process::StateReading& reading : source.readings) {
        if (!reading.alive) continue;
        for (const process::StateQp& qp : reading.snapshot.qps)
            if (const std::string device = device_of(reading.snapshot, qp); !device.empty())
                use(reading.snapshot, device, qp);
    }
}

double seconds(std::uint64_t nanoseconds) {
    return static_cast<double>(nanoseconds) * 1e-9;
}

void add_presence(const MetricSource& source, std::vector<Family>& out) {
    std::uint64_t alive = 0, silent = 0, left_out = 0;
    for (const process::StateReading& reading : source.readings) {
        alive += reading.alive ? 1 : 0;
        silent += reading.alive && !reading.fresh ? 1 : 0;
        left_out += reading.alive ? reading.snapshot.qps_left_out : 0;
    }
    Family processes = gauge("feroce_processes", "Live processes of this user on Feroce.");
    processes.add({}, alive);
    Family silence = gauge("feroce_silent_processes",
                           "Of these, the ones that do not answer: their last values are used.");
    silence.add({}, silent);
    Family untold = gauge("feroce_queue_pairs_untold",
                          "Queue pairs that processes could not tell of, for their number.");
    untold.add({}, left_out);
    append(out, {&processes, &silence, &untold});
}

void add_objects(const MetricSource& source, std::vector<Family>& out) {
    std::map<std::pair<std::string, std::string>, std::uint64_t> counts;
    for (const process::StateReading& reading : source.readings) {
        if (!reading.alive) continue;
        for (const process::StateResources& r : reading.snapshot.resources)
            for (const auto& [kind, count] :
                 {std::pair{"pd", r.pds}, std::pair{"cq", r.cqs}, std::pair{"mr", r.regions},
                  std::pair{"ctx", r.contexts}, std::pair{"srq", r.srqs}})
                counts[{r.device, kind}] += count;
    }
    Family family = gauge("feroce_objects", "Objects of verbs, by kind, as feroce res has them.");
    for (const auto& [key, count] : counts)
        family.add({{"device", key.first}, {"kind", key.second}}, count);
    out.push_back(std::move(family));
}

// Of all queue pairs of a device.
struct QpSums {
    std::uint64_t outstanding = 0;
    std::uint64_t in_flight = 0;
    std::uint64_t rtt_min = 0;  // 0 if no queue pair has measured one.
    std::uint64_t rtt_max = 0;

    void add(const process::StateQp& qp) {
        outstanding += qp.sends_outstanding;
        in_flight += qp.in_flight_bytes;
        if (qp.rtt_ns == 0) return;
        rtt_min = rtt_min == 0 ? qp.rtt_ns : std::min(rtt_min, qp.rtt_ns);
        rtt_max = std::max(rtt_max, qp.rtt_ns);
    }
};

void add_qp_sums(const MetricSource& source, std::vector<Family>& out) {
    std::map<std::tuple<std::string, std::string, std::string>, std::uint64_t> states;
    std::map<std::string, QpSums> sums;
    each_qp(source, [&](const process::StateSnapshot&, const std::string& device,
                        const process::StateQp& qp) {
        ++states[{device, type_name(qp.type), state_name(qp.state)}];
        sums[device].add(qp);
    });
    Family pairs = gauge("feroce_queue_pairs", "Queue pairs, by type and state.");
    for (const auto& [key, count] : states)
        pairs.add(
            {{"device", std::get<0>(key)}, {"type", std::get<1>(key)}, {"state", std::get<2>(key)}},
            count);
    Family sends = gauge("feroce_outstanding_sends", "Work requests posted and not completed.");
    Family flight = gauge("feroce_in_flight_bytes", "Sent and not acknowledged.");
    Family fastest = gauge("feroce_rtt_min_seconds", "The shortest smoothed round trip.");
    Family slowest = gauge("feroce_rtt_max_seconds", "The longest smoothed round trip.");
    for (const auto& [device, sum] : sums) {
        const Labels labels{{"device", device}};
        sends.add(labels, sum.outstanding);
        flight.add(labels, sum.in_flight);
        if (sum.rtt_max == 0) continue;
        fastest.add(labels, seconds(sum.rtt_min));
        slowest.add(labels, seconds(sum.rtt_max));
    }
    append(out, {&pairs, &sends, &flight, &fastest, &slowest});
}

void add_processes(const Ledger& ledger, std::vector<Family>& out) {
    Family pairs = gauge("feroce_process_queue_pairs", "Queue pairs of a process.");
    Family sent = total("feroce_process_sent_bytes", "Bytes that a process sent.");
    Family received = total("feroce_process_received_bytes", "Bytes that a process received.");
    Family again =
        total("feroce_process_retransmitted_packets", "Packets that a process sent again.");
    Family errors = total("feroce_process_errors", "Work requests of a process that failed.");
    const auto add = [&](const Labels& labels, const ProcessTotals& process) {
        pairs.add(labels, std::uint64_t{process.queue_pairs});
        sent.add(labels, count_of(process.counts, "sent_bytes"));
        received.add(labels, count_of(process.counts, "rcvd_bytes"));
        again.add(labels, count_of(process.counts, "retransmitted_pkts"));
        errors.add(labels, sum_of(process.counts, kErrors));
    };
    for (const auto& [pid, process] : ledger.processes())
        if (process.labelled)
            add({{"pid", std::to_string(pid)}, {"command", process.command}}, process);
    if (const ProcessTotals others = ledger.others(); !others.counts.empty())
        add({{"pid", "other"}, {"command", "other"}}, others);
    append(out, {&pairs, &sent, &received, &again, &errors});
}

void add_qps(const MetricSource& source, std::vector<Family>& out) {
    Family sent = total("feroce_qp_sent_packets", "Packets that a queue pair sent.");
    Family received = total("feroce_qp_received_packets", "Packets that a queue pair received.");
    Family flight = gauge("feroce_qp_in_flight_bytes", "Sent and not acknowledged.");
    Family window = gauge("feroce_qp_window_bytes",
                          "What may be in flight to its peer, shared with others to the same.");
    Family rtt = gauge("feroce_qp_rtt_seconds", "Its smoothed round trip.");
    std::size_t told = 0;
    each_qp(source, [&](const process::StateSnapshot& process, const std::string& device,
                        const process::StateQp& qp) {
        if (told++ >= source.qps_max) return;
        const Labels labels{{"device", device},
                            {"pid", std::to_string(process.pid)},
                            {"qpn", fmt::format("0x{:06x}", qp.qpn)}};
        sent.add(labels, qp.packets_sent);
        received.add(labels, qp.packets_received);
        flight.add(labels, std::uint64_t{qp.in_flight_bytes});
        window.add(labels, std::uint64_t{qp.window_bytes});
        if (qp.rtt_ns != 0) rtt.add(labels, seconds(qp.rtt_ns));
    });
    append(out, {&sent, &received, &flight, &window, &rtt});
}

}  // namespace

void add_process_families(const MetricSource& source, std::vector<Family>& out) {
    add_presence(source, out);
    add_objects(source, out);
    add_qp_sums(source, out);
    add_processes(source.ledger, out);
    add_qps(source, out);
}

}  // namespace feroce::cli
