#include "cli/top/views.hpp"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "cli/state.hpp"

namespace feroce::cli {
namespace {

std::string qpn_text(std::uint32_t qpn) {
    return fmt::format("0x{:06x}", qpn);
}

// Only what happened, such as "probe 12 rnr 3".
std::string causes(const TopTraffic& traffic) {
    std::string out;
    for (std::size_t i = 0; i < kResentCauses.size(); ++i)
        if (traffic.resent[i] != 0)
            out +=
                fmt::format("{}{} {}", out.empty() ? "" : " ", kResentCauses[i], traffic.resent[i]);
    return out.empty() ? "-" : out;
}

std::string text_in(const Json& record, const char* key) {
    const auto found = record.find(key);
    if (found == record.end()) return "-";
    return found->is_string() ? found->get<std::string>() : found->dump();
}

std::uint64_t number_at(const Json& record, const char* key) {
    const auto found = record.find(key);
    return found != record.end() && found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
}

std::string paths_of(const Json& session) {
    if (!session.contains("paths")) return "0/0";
    std::size_t up = 0;
    for (const Json& path : session["paths"]) up += text_in(path, "state") == "connected" ? 1 : 0;
    return fmt::format("{}/{}", up, session["paths"].size());
}

Table device_table(const TopSample& sample) {
    Table table{"devices",
                {{"DEVICE", false, 0},
                 {"STATE", false, 9},
                 {"PROCS", true, 6},
                 {"QPS", true, 5},
                 {"TX-B/s", true, 1},
                 {"RX-B/s", true, 1},
                 {"TX-P/s", true, 2},
                 {"RX-P/s", true, 2},
                 {"RESENT/s", true, 3},
                 {"DROPS/s", true, 4},
                 {"OUTST", true, 7},
                 {"ERRORS", true, 4},
                 {"RESENT-FOR", false, 8}},
                {},
                4};
    for (const TopDevice& d : sample.devices) {
        const TopTraffic& t = d.traffic;
        table.rows.push_back(
            {{text_cell(d.name), text_cell(d.up ? "ACTIVE" : "DOWN"), number_cell(d.processes),
              number_cell(d.queue_pairs), rate_cell(t.sent_bytes), rate_cell(t.received_bytes),
              rate_cell(t.sent_packets), rate_cell(t.received_packets), rate_cell(t.resent_packets),
              rate_cell(t.dropped_packets), number_cell(d.outstanding), number_cell(t.errors),
              text_cell(causes(t))},
             ""});
    }
    return table;
}

Table process_table(const TopSample& sample) {
    Table table{"processes",
                {{"PID", true, 0},
                 {"COMMAND", false, 0},
                 {"DEVICE", false, 9},
                 {"QPS", true, 5},
                 {"TX-B/s", true, 1},
                 {"RX-B/s", true, 1},
                 {"TX-P/s", true, 8},
                 {"RX-P/s", true, 8},
                 {"RESENT/s", true, 3},
                 {"RTT", true, 2},
                 {"OUTST", true, 2},
                 {"ERRORS", true, 3},
                 {"RESENT-FOR", false, 6}},
                {},
                4};
    for (const TopProcess& p : sample.processes) {
        const TopTraffic& t = p.traffic;
        table.rows.push_back(
            {{number_cell(p.pid), text_cell(p.command), text_cell(p.device),
              number_cell(p.queue_pairs), rate_cell(t.sent_bytes), rate_cell(t.received_bytes),
              rate_cell(t.sent_packets), rate_cell(t.received_packets), rate_cell(t.resent_packets),
              time_cell(p.rtt_ns), number_cell(p.outstanding), number_cell(t.errors),
              text_cell(causes(t))},
             p.silent ? "does not answer; " + p.last_error : p.last_error});
    }
    return table;
}

Table qp_table(const TopSample& sample) {
    Table table{"queue pairs",
                {{"QPN", false, 0},
                 {"PID", true, 1},
                 {"COMMAND", false, 4},
                 {"TYPE", false, 3},
                 {"STATE", false, 1},
                 {"PEER", false, 6},
                 {"PEER-QPN", false, 8},
                 {"BY", false, 9},
                 {"TX-P/s", true, 2},
                 {"RX-P/s", true, 2},
                 {"POSTS/s", true, 7},
                 {"OUTST", true, 2},
                 {"FLIGHT", true, 5},
                 {"WINDOW", true, 3},
                 {"RTT", true, 2},
                 {"RETRIES", true, 9}},
                {},
                8};
    table.rows.reserve(sample.qps.size());
    for (const TopQp& qp : sample.qps) {
        const process::StateQp& s = qp.state;
        table.rows.push_back(
            {{text_cell(qpn_text(s.qpn)), number_cell(qp.pid), text_cell(qp.command),
              text_cell(type_name(s.type)), text_cell(state_name(s.state)),
              text_cell(s.destination.is_zero() ? "-" : to_string(s.destination)),
              text_cell(s.peer_qpn == 0 ? "-" : qpn_text(s.peer_qpn)),
              text_cell(s.by_ring != 0 ? "ring" : "udp"), rate_cell(qp.sent_packets),
              rate_cell(qp.received_packets), rate_cell(qp.posted),
              number_cell(s.sends_outstanding), size_cell(s.in_flight_bytes),
              size_cell(s.window_bytes), time_cell(s.rtt_ns), number_cell(s.retries_left)},
             qp.last_error});
    }
    return table;
}

Table session_table(const TopSample& sample) {
    Table table{"sessions",
                {{"SESSION", false, 0},
                 {"PID", true, 1},
                 {"COMMAND", false, 5},
                 {"PATHS", false, 1},
                 {"POLICY", false, 7},
                 {"REQ/s", true, 2},
                 {"READ-B/s", true, 3},
                 {"WRITE-B/s", true, 3},
                 {"OUTST", true, 4},
                 {"P50", true, 6},
                 {"P99", true, 4},
                 {"FAILED", true, 4}},
                {},
                5};
    for (const TopSession& s : sample.sessions)
        table.rows.push_back(
            {{text_cell(text_in(s.record, "session")), number_cell(number_at(s.record, "pid")),
              text_cell(text_in(s.record, "comm")), text_cell(paths_of(s.record)),
              text_cell(text_in(s.record, "policy")), rate_cell(s.requests),
              rate_cell(s.read_bytes), rate_cell(s.written_bytes),
              number_cell(number_at(s.record, "permits_taken")),
              time_cell(number_at(s.record, "latency_p50_ns")),
              time_cell(number_at(s.record, "latency_p99_ns")),
              number_cell(number_at(s.record, "failed"))},
             s.last_error});
    return table;
}

Table disk_table(const TopSample& sample) {
    Table table{"disks",
                {{"DISK", false, 0},
                 {"PID", true, 1},
                 {"SIZE", true, 5},
                 {"READS/s", true, 2},
                 {"WRITES/s", true, 2},
                 {"READ-B/s", true, 2},
                 {"WRITE-B/s", true, 2},
                 {"WRITER", false, 3},
                 {"FROM", false, 4}},
                {},
                3};
    for (const TopDisk& d : sample.disks)
        table.rows.push_back(
            {{text_cell(d.disk.name), number_cell(d.disk.pid), size_cell(d.disk.size),
              rate_cell(d.reads), rate_cell(d.writes), rate_cell(d.read_bytes),
              rate_cell(d.written_bytes), text_cell(d.disk.writer.empty() ? "-" : d.disk.writer),
              text_cell(d.disk.addresses.empty() ? "-" : d.disk.addresses)},
             ""});
    return table;
}

Json number_of(const Rate& rate) {
    return rate ? Json(*rate) : Json();
}

void add_traffic(const TopTraffic& t, Json& to) {
    to["sent_bytes_per_second"] = number_of(t.sent_bytes);
    to["received_bytes_per_second"] = number_of(t.received_bytes);
    to["sent_packets_per_second"] = number_of(t.sent_packets);
    to["received_packets_per_second"] = number_of(t.received_packets);
    to["resent_packets_per_second"] = number_of(t.resent_packets);
    to["dropped_packets_per_second"] = number_of(t.dropped_packets);
    Json resent = Json::object();
    for (std::size_t i = 0; i < kResentCauses.size(); ++i) resent[kResentCauses[i]] = t.resent[i];
    to["resent_packets"] = std::move(resent);
    to["errors"] = t.errors;
}

Json devices_as_json(const TopSample& sample) {
    Json out = Json::array();
    for (const TopDevice& d : sample.devices) {
        Json record{{"ifname", d.name},
                    {"state", d.up ? "ACTIVE" : "DOWN"},
                    {"processes", d.processes},
                    {"queue_pairs", d.queue_pairs},
                    {"sends_outstanding", d.outstanding}};
        add_traffic(d.traffic, record);
        out.push_back(std::move(record));
    }
    return out;
}

Json processes_as_json(const TopSample& sample) {
    Json out = Json::array();
    for (const TopProcess& p : sample.processes) {
        Json record{{"pid", p.pid},
                    {"comm", p.command},
                    {"ifname", p.device},
                    {"answers", !p.silent},
                    {"queue_pairs", p.queue_pairs},
                    {"sends_outstanding", p.outstanding},
                    {"rtt_ns", p.rtt_ns},
                    {"last_error", p.last_error}};
        add_traffic(p.traffic, record);
        out.push_back(std::move(record));
    }
    return out;
}

Json qps_as_json(const TopSample& sample) {
    Json out = Json::array();
    for (const TopQp& qp : sample.qps) {
        const process::StateQp& s = qp.state;
        out.push_back({{"ifname", qp.device},
                       {"lqpn", s.qpn},
                       {"rqpn", s.peer_qpn},
                       {"type", type_name(s.type)},
                       {"state", state_name(s.state)},
                       {"pid", qp.pid},
                       {"comm", qp.command},
                       {"src-addr", s.source.is_zero() ? "" : to_string(s.source)},
                       {"dst-addr", s.destination.is_zero() ? "" : to_string(s.destination)},
                       {"by", s.by_ring != 0 ? "ring" : "udp"},
                       {"posts_per_second", number_of(qp.posted)},
                       {"sent_packets_per_second", number_of(qp.sent_packets)},
                       {"received_packets_per_second", number_of(qp.received_packets)},
                       {"sends_outstanding", s.sends_outstanding},
                       {"receives_posted", s.receives_posted},
                       {"in_flight_bytes", s.in_flight_bytes},
                       {"window_bytes", s.window_bytes},
                       {"rtt_ns", s.rtt_ns},
                       {"retries_left", s.retries_left},
                       {"last_error", qp.last_error}});
    }
    return out;
}

Json sessions_as_json(const TopSample& sample) {
    Json out = Json::array();
    for (const TopSession& s : sample.sessions) {
        Json record = s.record;
        record["requests_per_second"] = number_of(s.requests);
        record["read_bytes_per_second"] = number_of(s.read_bytes);
        record["written_bytes_per_second"] = number_of(s.written_bytes);
        record["last_error"] = s.last_error;
        out.push_back(std::move(record));
    }
    return out;
}

Json disks_as_json(const TopSample& sample) {
    Json out = Json::array();
    for (const TopDisk& d : sample.disks)
        out.push_back({{"disk", d.disk.name},
                       {"pid", d.disk.pid},
                       {"size", d.disk.size},
                       {"writer", d.disk.writer},
                       {"addresses", d.disk.addresses},
                       {"reads", d.disk.reads},
                       {"writes", d.disk.writes},
                       {"read_bytes", d.disk.read_bytes},
                       {"written_bytes", d.disk.written_bytes},
                       {"reads_per_second", number_of(d.reads)},
                       {"writes_per_second", number_of(d.writes)},
                       {"read_bytes_per_second", number_of(d.read_bytes)},
                       {"written_bytes_per_second", number_of(d.written_bytes)}});
    return out;
}

}  // namespace

const char* name_of(TopView view) {
    switch (view) {
        case TopView::Devices:
            return "devices";
        case TopView::Processes:
            return "processes";
        case TopView::QueuePairs:
            return "qps";
        case TopView::Sessions:
            return "sessions";
        case TopView::Disks:
            return "disks";
    }
    return "";
}

Table table_of(const TopSample& sample, TopView view) {
    switch (view) {
        case TopView::Devices:
            return device_table(sample);
        case TopView::Processes:
            return process_table(sample);
        case TopView::QueuePairs:
            return qp_table(sample);
        case TopView::Sessions:
            return session_table(sample);
        case TopView::Disks:
            return disk_table(sample);
    }
    return {};
}

Json json_of(const TopSample& sample) {
    return {{"devices", devices_as_json(sample)}, {"processes", processes_as_json(sample)},
            {"qps", qps_as_json(sample)},         {"sessions", sessions_as_json(sample)},
            {"disks", disks_as_json(sample)},     {"qps_untold", sample.qps_untold}};
}

}  // namespace feroce::cli
