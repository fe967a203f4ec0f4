#include "cli/show.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "cli/devices.hpp"
#include "cli/filter.hpp"
#include "cli/state.hpp"

namespace feroce::cli {
namespace {

const char* migration_name(std::uint8_t state) {
    constexpr const char* kNames[] = {"MIGRATED", "REARM", "ARMED"};
    return state < std::size(kNames) ? kNames[state] : "UNKNOWN";
}

// The heads of records: which device, and for a link which port.
Json device_record(const std::vector<DeviceInfo>& devices, const std::string& name) {
    const auto same = [&name](const DeviceInfo& d) { return d.name == name; };
    const auto index = std::find_if(devices.begin(), devices.end(), same) - devices.begin();
    return {{"ifindex", index}, {"ifname", name}};
}

Json link_record(const std::vector<DeviceInfo>& devices, const std::string& name) {
    Json record = device_record(devices, name);
    record["port"] = 1;
    return record;
}

void add_peer(const process::StateQp& qp, Json& record) {
    if (!qp.source.is_zero()) record["src-addr"] = to_string(qp.source);
    if (!qp.destination.is_zero()) record["dst-addr"] = to_string(qp.destination);
}

// In the order of iproute2's keys; what it does not have stands at the end.
Json qp_record(Json record, const process::StateSnapshot& process, const process::StateQp& qp) {
    const bool connected = type_name(qp.type) != std::string("UD") && qp.peer_qpn != 0;
    record["lqpn"] = qp.qpn;
    record["pdn"] = qp.pd;
    if (connected) record["rqpn"] = qp.peer_qpn;
    record["type"] = type_name(qp.type);
    record["state"] = state_name(qp.state);
    if (connected) record["rq-psn"] = qp.receive_psn;
    record["sq-psn"] = qp.send_psn;
    if (connected) record["path-mig-state"] = migration_name(qp.path_migration_state);
    record["pid"] = process.pid;
    record["comm"] = process.command;
    add_peer(qp, record);
    if (connected) record["by"] = qp.by_ring != 0 ? "ring" : "udp";
    return record;
}

Json qp_statistics(Json record, const process::StateSnapshot& process, const process::StateQp& qp) {
    record["lqpn"] = qp.qpn;
    record["qp-type"] = type_name(qp.type);
    record["state"] = state_name(qp.state);
    record["sent_pkts"] = qp.packets_sent;
    record["rcvd_pkts"] = qp.packets_received;
    record["sends_posted"] = qp.sends_posted;
    record["sends_outstanding"] = qp.sends_outstanding;
    record["receives_posted"] = qp.receives_posted;
    record["failed"] = qp.first_reason != 0;
    record["pid"] = process.pid;
    record["comm"] = process.command;
    return record;
}

using MakeRecord = Json (*)(Json, const process::StateSnapshot&, const process::StateQp&);

Json all_qps(const Filter& filter, const std::vector<DeviceInfo>& devices, MakeRecord make) {
    Json records = Json::array();
    for (const process::StateSnapshot& process : live_processes()) {
        for (const process::StateQp& qp : process.qps) {
            const std::string device = device_of(process, qp);
            if (device.empty() || !filter.wants_device(device)) continue;
            Json record = make(link_record(devices, device), process, qp);
            if (filter.wants(record)) records.push_back(std::move(record));
        }
    }
    return records;
}

void add(const process::StateResources& from, process::StateResources& to) {
    to.contexts += from.contexts;
    to.pds += from.pds;
    to.cqs += from.cqs;
    to.regions += from.regions;
    to.srqs += from.srqs;
}

// The listed ones, and what processes have open beyond them.
std::vector<std::string> names_in_use(const std::vector<DeviceInfo>& devices,
                                      const std::vector<process::StateSnapshot>& processes) {
    std::vector<std::string> names;
    names.reserve(devices.size());
    for (const DeviceInfo& device : devices) names.push_back(device.name);
    for (const process::StateSnapshot& process : processes)
        for (const process::StateResources& r : process.resources)
            if (std::count(names.begin(), names.end(), r.device) == 0) names.push_back(r.device);
    return names;
}

Json summary(const Filter& filter, const std::vector<DeviceInfo>& devices) {
    const std::vector<process::StateSnapshot> processes = live_processes();
    Json records = Json::array();
    for (const std::string& name : names_in_use(devices, processes)) {
        if (!filter.wants_device(name)) continue;
        std::size_t qps = 0;
        process::StateResources total;
        for (const process::StateSnapshot& process : processes) {
            for (const process::StateResources& r : process.resources)
                if (r.device == name) add(r, total);
            for (const process::StateQp& qp : process.qps)
                qps += device_of(process, qp) == name ? 1 : 0;
        }
        Json record = device_record(devices, name);
        record["pd"] = total.pds;
        record["cq"] = total.cqs;
        record["qp"] = qps;
        record["mr"] = total.regions;
        record["ctx"] = total.contexts;
        record["srq"] = total.srqs;
        records.push_back(std::move(record));
    }
    return records;
}

// Counters belong to a process: one that uses several devices stands under its first.
Json all_counters(const Filter& filter, const std::vector<DeviceInfo>& devices) {
    Json records = Json::array();
    for (const process::StateSnapshot& process : live_processes()) {
        if (process.devices.empty() || !filter.wants_device(process.devices.front())) continue;
        Json record = link_record(devices, process.devices.front());
        record["pid"] = process.pid;
        record["comm"] = process.command;
        for (const process::StateCounter& counter : process.counters)
            if (!counter.name.starts_with("rtt_"))  // For `feroce metrics`, which draws them.
                record[counter.name] = counter.value;
        if (filter.wants(record)) records.push_back(std::move(record));
    }
    return records;
}

// People look for what happened.
void leave_out_zeros(Json& record) {
    Json rest = Json::object();
    for (const auto& [key, value] : record.items())
        if (value != 0) rest[key] = value;
    record = std::move(rest);
}

}  // namespace

void show_devices(const std::vector<std::string>& words, const OutputOptions& options) {
    const Filter filter(words, {}, false);
    const std::vector<DeviceInfo> devices = list_named_devices();
    filter.check_device(devices);
    Json records = Json::array();
    for (const DeviceInfo& device : devices) {
        Json record = device_record(devices, device.name);
        record["node_type"] = "ca";
        record["fw"] = FEROCE_VERSION;
        record["node_guid"] = guid_text(device.guid);
        record["sys_image_guid"] = guid_text(device.guid);
        if (filter.wants_device(device.name) && filter.wants(record))
            records.push_back(std::move(record));
    }
    print_records(records, options);
    if (!options.json && words.empty() && hides_loopback(devices))
        fmt::print(stderr, "feroce: feroce_lo is there as well, for programs that name it\n");
}

void show_links(const std::vector<std::string>& words, const OutputOptions& options) {
    const Filter filter(words, {}, false);
    const std::vector<DeviceInfo> devices = list_named_devices();
    filter.check_device(devices);
    Json records = Json::array();
    for (const DeviceInfo& device : devices) {
        Json record = link_record(devices, device.name);
        record["state"] = device.up ? "ACTIVE" : "DOWN";
        record["physical_state"] = device.up ? "LINK_UP" : "DISABLED";
        record["netdev"] = device.interface;
        record["netdev_index"] = device.interface_index;
        if (filter.wants_device(device.name) && filter.wants(record))
            records.push_back(std::move(record));
    }
    print_records(records, options);
}

void show_resources(const std::vector<std::string>& words, const OutputOptions& options) {
    const Filter filter(words, {"qp"}, true);
    const std::vector<DeviceInfo> devices = list_devices();
    filter.check_device(devices);
    print_records(
        filter.object() == "qp" ? all_qps(filter, devices, qp_record) : summary(filter, devices),
        options);
}

void show_statistics(const std::vector<std::string>& words, const OutputOptions& options) {
    const Filter filter(words, {"qp"}, true);
    const std::vector<DeviceInfo> devices = list_devices();
    filter.check_device(devices);
    if (filter.object() == "qp")
        return print_records(all_qps(filter, devices, qp_statistics), options);
    Json records = all_counters(filter, devices);
    if (!options.json)
        for (Json& record : records) leave_out_zeros(record);
    print_records(records, options);
}

}  // namespace feroce::cli
