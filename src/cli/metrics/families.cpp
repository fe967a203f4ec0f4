#include "cli/metrics/families.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "base/link_speed.hpp"
#include "cli/metrics/names.hpp"
#include "cli/metrics/process_families.hpp"

namespace feroce::cli {
namespace {

constexpr char kRefusedPrefix[] = "drop_";
constexpr char kResentPrefix[] = "resent_by_";

Labels port_labels(const std::string& device) {
    return {{"device", device}, {"port", "1"}};
}

Labels with(Labels labels, const char* name, std::string value) {
    labels.emplace_back(name, std::move(value));
    return labels;
}

Family counter(std::string name, std::string help) {
    return {std::move(name), MetricKind::Counter, std::move(help), {}};
}

// Those that are there, and those that processes use beyond them; each has all of its series from
// the beginning.
using DeviceCounts = std::map<std::string, Counts>;

DeviceCounts device_counts(const MetricSource& source) {
    DeviceCounts out = source.ledger.devices();
    for (const DeviceInfo& device : source.devices) out[device.name];
    return out;
}

void add_devices(const std::vector<DeviceInfo>& devices, std::vector<Family>& out) {
    Family card{"node_infiniband", MetricKind::Info, "The device.", {}};
    Family state{"node_infiniband_state_id",
                 MetricKind::Gauge,
                 "State of the port (1: down, 4: active).",
                 {}};
    Family physical{"node_infiniband_physical_state_id",
                    MetricKind::Gauge,
                    "Physical state of the port (3: disabled, 5: link up).",
                    {}};
    Family rate{"node_infiniband_rate_bytes_per_second",
                MetricKind::Gauge,
                "Speed of the link as a card tells it.",
                {}};
    Family port{"rdma_port", MetricKind::Info, "The port, and the interface under it.", {}};
    for (const DeviceInfo& device : devices) {
        const Labels labels = port_labels(device.name);
        card.add({{"device", device.name},
                  {"board_id", "feroce"},
                  {"firmware_version", FEROCE_VERSION},
                  {"hca_type", "feroce"}},
                 std::uint64_t{1});
        state.add(labels, std::uint64_t{device.up ? 4U : 1U});
        physical.add(labels, std::uint64_t{device.up ? 5U : 3U});
        rate.add(labels, std::uint64_t{device.speed_mbps} * 125'000);
        Labels port_info = with(labels, "netdev", device.interface);
        port_info = with(std::move(port_info), "link_layer", "Ethernet");
        port_info = with(std::move(port_info), "state", device.up ? "ACTIVE" : "DOWN");
        port_info = with(std::move(port_info), "phys_state", device.up ? "LinkUp" : "Disabled");
        port_info = with(std::move(port_info), "link_speed", link_speed(device.speed_mbps).text);
        port.add(std::move(port_info), std::uint64_t{1});
    }
    for (Family* family : {&card, &state, &physical, &rate, &port})
        out.push_back(std::move(*family));
}

void add_known(const DeviceCounts& devices, std::vector<Family>& out) {
    for (const PortCounter& known : port_counters()) {
        Family family = counter(std::string("node_infiniband_") + known.node, known.help);
        for (const auto& [device, counts] : devices)
            family.add(port_labels(device), known.value(counts));
        out.push_back(std::move(family));
    }
    for (const KnownCounter& known : known_counters()) {
        Family rdma = counter(std::string("rdma_") + known.file, known.help);
        for (const auto& [device, counts] : devices)
            rdma.add(port_labels(device), value_of(known, counts));
        if (known.node != nullptr) {
            Family node = rdma;
            node.name = std::string("node_infiniband_") + known.node;
            out.push_back(std::move(node));
        }
        out.push_back(std::move(rdma));
    }
}

// One series a key that begins so, with the rest of the key as a label.
void add_by_rest(const DeviceCounts& devices, const std::string& prefix, const char* label,
                 Family family, std::vector<Family>& out) {
    for (const auto& [device, counts] : devices)
        for (auto i = counts.lower_bound(prefix); i != counts.end(); ++i) {
            if (i->first.rfind(prefix, 0) != 0) break;
            family.add(with(port_labels(device), label, i->first.substr(prefix.size())), i->second);
        }
    out.push_back(std::move(family));
}

void add_errors(const DeviceCounts& devices, const std::string& prefix, Family family,
                std::vector<Family>& out) {
    for (const auto& [device, counts] : devices)
        for (auto i = counts.lower_bound(prefix); i != counts.end(); ++i) {
            if (i->first.rfind(prefix, 0) != 0) break;
            const std::string rest = i->first.substr(prefix.size());
            const std::size_t slash = rest.find('/');
            if (slash == std::string::npos) continue;
            Labels labels = with(port_labels(device), "status", rest.substr(0, slash));
            family.add(with(std::move(labels), "reason", rest.substr(slash + 1)), i->second);
        }
    out.push_back(std::move(family));
}

struct OwnCounter {
    const char* name;
    const char* source;
    const char* help;
    MetricKind kind = MetricKind::Counter;
};

constexpr OwnCounter kOwn[] = {
    {"feroce_handed_over_packets", "handed_over",
     "Packets that landed here and were passed on to the process they were for."},
    {"feroce_ring_sent_packets", "ring_sent_pkts", "Packets sent by shared memory."},
    {"feroce_ring_received_packets", "ring_rcvd_pkts", "Packets received by shared memory."},
    {"feroce_ring_full_packets", "ring_full_pkts",
     "Packets that found a ring full and went by UDP."},
    {"feroce_ring_refused", "ring_refused", "Rings that there was no memory for."},
    {"feroce_ring_memory_bytes", "ring_memory_bytes", "Memory of rings.", MetricKind::Gauge},
};

void add_own(const DeviceCounts& devices, std::vector<Family>& out) {
    add_by_rest(devices, kResentPrefix, "cause",
                counter("feroce_retransmitted_packets",
                        "Packets sent again, by what made the sender do it."),
                out);
    add_by_rest(devices, kRefusedPrefix, "reason",
                counter("feroce_dropped_packets", "Packets received and not used, by reason."),
                out);
    add_errors(devices, kErrors,
               counter("feroce_errors",
                       "Work requests that failed, by status and first cause; "
                       "what was flushed after them is not counted."),
               out);
    add_errors(devices, kRefusals,
               counter("feroce_refusals", "Requests of peers that were refused, by cause."), out);
    for (const OwnCounter& own : kOwn) {
        Family family{own.name, own.kind, own.help, {}};
        for (const auto& [device, counts] : devices)
            family.add(port_labels(device), count_of(counts, own.source));
        out.push_back(std::move(family));
    }
}

Histogram round_trips(const Counts& counts) {
    Histogram out;
    for (std::size_t i = 0; i < process::kRoundTripBounds; ++i) {
        const std::uint64_t bound = std::uint64_t{1} << i;
        out.bounds.push_back(static_cast<double>(bound) / 1e6);
        out.counts.push_back(count_of(counts, process::kRoundTripPrefix + std::to_string(bound)));
    }
    out.counts.push_back(count_of(counts, std::string(process::kRoundTripPrefix) + "inf"));
    out.sum = static_cast<double>(count_of(counts, process::kRoundTripSum)) / 1e9;
    return out;
}

void add_round_trips(const DeviceCounts& devices, std::vector<Family>& out) {
    Family family{"feroce_rtt_seconds",
                  MetricKind::Histogram,
                  "Time from a packet that asks for an acknowledgement to the acknowledgement.",
                  {}};
    for (const auto& [device, counts] : devices)
        family.add(port_labels(device), round_trips(counts));
    out.push_back(std::move(family));
}

}  // namespace

std::vector<Family> make_families(const MetricSource& source) {
    std::vector<Family> out;
    Family build{"feroce_build", MetricKind::Info, "The version of the feroce command.", {}};
    build.add({{"version", FEROCE_VERSION}}, std::uint64_t{1});
    out.push_back(std::move(build));
    add_devices(source.devices, out);
    const DeviceCounts devices = device_counts(source);
    add_known(devices, out);
    add_own(devices, out);
    add_round_trips(devices, out);
    add_process_families(source, out);
    return out;
}

}  // namespace feroce::cli
