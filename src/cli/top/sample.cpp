#include "cli/top/sample.hpp"

#include <algorithm>
#include <map>
#include <string_view>

#include "cli/state.hpp"

namespace feroce::cli {
namespace {

constexpr std::string_view kFlushed = "IBV_WC_WR_FLUSH_ERR";

// The counters of a process by name; a name that is not there counts 0.
class ProcessCounters {
public:
    explicit ProcessCounters(const process::StateSnapshot& snapshot)
        : counters_(snapshot.counters) {}

    std::uint64_t of(std::string_view name) const {
        for (const process::StateCounter& counter : counters_)
            if (counter.name == name) return counter.value;
        return 0;
    }
    std::uint64_t dropped() const {
        std::uint64_t sum = 0;
        for (const process::StateCounter& counter : counters_)
            if (counter.name.starts_with("drop_")) sum += counter.value;
        return sum;
    }

private:
    const std::vector<process::StateCounter>& counters_;
};

Rate sum(const Rate& a, const Rate& b) {
    if (!a) return b;
    return b ? *a + *b : *a;
}

std::uint64_t failed_requests(const process::StateSnapshot& snapshot) {
    std::uint64_t count = 0;
    for (const process::StateError& error : snapshot.errors)
        if (!error.at_responder && error.status != kFlushed) count += error.count;
    return count;
}

// The last one that a person should know of; a queue pair's own, or a process's.
const process::StateReason* last_reason(const process::StateSnapshot& snapshot) {
    const auto told = [](const process::StateReason& r) { return !r.minor; };
    const auto last = std::find_if(snapshot.reasons.rbegin(), snapshot.reasons.rend(), told);
    return last == snapshot.reasons.rend() ? nullptr : &*last;
}

std::map<std::uint32_t, std::string_view> last_reasons(const process::StateSnapshot& snapshot) {
    std::map<std::uint32_t, std::string_view> out;
    for (const process::StateReason& reason : snapshot.reasons)
        if (!reason.minor) out[reason.qpn] = reason.sentence;
    return out;
}

std::uint64_t number_in(const Json& record, const char* key) {
    const auto found = record.find(key);
    return found != record.end() && found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
}

std::string path_error(const Json& session) {
    if (!session.contains("paths")) return {};
    for (const Json& path : session["paths"]) {
        const auto error = path.find("last_error");
        if (error != path.end() && error->is_string() &&
            !error->get_ref<const std::string&>().empty())
            return error->get<std::string>();
    }
    return {};
}

TopDevice& device_named(const std::string& name, TopSample& out) {
    const auto same = [&name](const TopDevice& d) { return d.name == name; };
    const auto found = std::find_if(out.devices.begin(), out.devices.end(), same);
    if (found != out.devices.end()) return *found;
    TopDevice& made = out.devices.emplace_back();  // Not listed, such as feroce_lo beside others.
    made.name = name;
    made.up = true;
    return made;
}

void add_to_devices(TopSample& out) {
    for (const TopProcess& process : out.processes) {
        if (process.device.empty()) continue;
        TopDevice& device = device_named(process.device, out);
        ++device.processes;
        device.traffic += process.traffic;
    }
    for (const TopQp& qp : out.qps) {
        TopDevice& device = device_named(qp.device, out);
        ++device.queue_pairs;
        device.outstanding += qp.state.sends_outstanding;
    }
}

}  // namespace

TopTraffic& TopTraffic::operator+=(const TopTraffic& other) {
    for (Rate TopTraffic::*rate :
         {&TopTraffic::sent_bytes, &TopTraffic::received_bytes, &TopTraffic::sent_packets,
          &TopTraffic::received_packets, &TopTraffic::resent_packets, &TopTraffic::dropped_packets})
        this->*rate = sum(this->*rate, other.*rate);
    for (std::size_t i = 0; i < resent.size(); ++i) resent[i] += other.resent[i];
    errors += other.errors;
    return *this;
}

void Sampler::take_process(const process::StateReading& reading, TopSample& out) {
    const process::StateSnapshot& snapshot = reading.snapshot;
    const ProcessCounters counters(snapshot);
    TopProcess& row = out.processes.emplace_back();
    row.pid = snapshot.pid;
    row.command = snapshot.command;
    if (!snapshot.devices.empty()) row.device = snapshot.devices.front();
    row.silent = !reading.fresh;
    if (const process::StateReason* reason = last_reason(snapshot))
        row.last_error = reason->sentence;
    TopTraffic& traffic = row.traffic;
    const auto rates = processes_.take(
        {snapshot.pid, snapshot.command},
        {counters.of("sent_bytes"), counters.of("rcvd_bytes"), counters.of("sent_pkts"),
         counters.of("rcvd_pkts"), counters.of("retransmitted_pkts"), counters.dropped()},
        reading.fresh);
    if (rates) {
        traffic.sent_bytes = (*rates)[0];
        traffic.received_bytes = (*rates)[1];
        traffic.sent_packets = (*rates)[2];
        traffic.received_packets = (*rates)[3];
        traffic.resent_packets = (*rates)[4];
        traffic.dropped_packets = (*rates)[5];
    }
    for (std::size_t i = 0; i < kResentCauses.size(); ++i)
        traffic.resent[i] = counters.of(std::string("resent_by_") + kResentCauses[i]);
    traffic.errors = failed_requests(snapshot);
    take_qps(reading, out);
    out.qps_untold += snapshot.qps_left_out;
}

void Sampler::take_qps(const process::StateReading& reading, TopSample& out) {
    const process::StateSnapshot& snapshot = reading.snapshot;
    TopProcess& owner = out.processes.back();
    const auto reasons = last_reasons(snapshot);
    for (const process::StateQp& qp : snapshot.qps) {
        const std::string device = device_of(snapshot, qp);
        if (device.empty()) continue;  // The connection manager's own.
        TopQp& row = out.qps.emplace_back();
        row.pid = snapshot.pid;
        row.command = snapshot.command;
        row.device = device;
        row.state = qp;
        const auto rates =
            qps_.take({snapshot.pid, qp.qpn},
                      {qp.sends_posted, qp.packets_sent, qp.packets_received}, reading.fresh);
        if (rates) {
            row.posted = (*rates)[0];
            row.sent_packets = (*rates)[1];
            row.received_packets = (*rates)[2];
        }
        if (const auto reason = reasons.find(qp.qpn); reason != reasons.end())
            row.last_error = reason->second;
        ++owner.queue_pairs;
        owner.outstanding += qp.sends_outstanding;
        owner.rtt_ns = std::max(owner.rtt_ns, qp.rtt_ns);
    }
}

void Sampler::take_session(const LiveSession& session, TopSample& out) {
    const Json& record = session.record;
    const std::string key = session.door + '\n' + session.name;
    TopSession& row = out.sessions.emplace_back();
    row.record = record;
    row.last_error = path_error(record);
    if (const auto rates = sessions_.take(key, {number_in(record, "completed")}))
        row.requests = (*rates)[0];
    if (!record.contains("paths")) return;
    // Path by path: what one that is removed has counted must not look like a new life of the sum.
    for (const Json& path : record["paths"]) {
        const auto rates =
            paths_.take(key + '\n' + path.value("path", Json()).dump(),
                        {number_in(path, "read_bytes"), number_in(path, "write_bytes")});
        if (!rates) continue;
        row.read_bytes = sum(row.read_bytes, (*rates)[0]);
        row.written_bytes = sum(row.written_bytes, (*rates)[1]);
    }
}

void Sampler::take_disks(const TopLook& look, TopSample& out) {
    for (const ServedDisk& disk : look.disks) {
        TopDisk& row = out.disks.emplace_back();
        row.disk = disk;
        const auto rates = disks_.take(
            {disk.pid, disk.name}, {disk.reads, disk.writes, disk.read_bytes, disk.written_bytes});
        if (!rates) continue;
        row.reads = (*rates)[0];
        row.writes = (*rates)[1];
        row.read_bytes = (*rates)[2];
        row.written_bytes = (*rates)[3];
    }
}

TopSample Sampler::take(const TopLook& look) {
    TopSample out;
    processes_.begin(look.at);
    qps_.begin(look.at);
    sessions_.begin(look.at);
    paths_.begin(look.at);
    disks_.begin(look.at);
    for (const DeviceInfo& device : look.devices) {
        TopDevice& row = out.devices.emplace_back();
        row.name = device.name;
        row.up = device.up;
    }
    for (const process::StateReading& reading : look.processes)
        if (reading.alive) take_process(reading, out);
    add_to_devices(out);
    for (const LiveSession& session : look.sessions) take_session(session, out);
    take_disks(look, out);
    return out;
}

}  // namespace feroce::cli
