#include "cli/perfetto/capture_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "cli/capture/capture_file.hpp"
#include "cli/capture/captured_packets.hpp"
#include "wire/print.hpp"

namespace feroce::cli {
namespace {

enum Row : std::uint32_t { kRequests = 1, kSent, kReceived, kAgain };

PacketFlow flow_of(const wire::RoceDatagram& datagram, const wire::Packet& packet) {
    return {datagram.address.source, datagram.address.destination, packet.bth.destination.raw};
}

// Calls `use` with every RoCE packet and its time in microseconds since the first. False: damaged.
template <class Use>
bool each_packet(const std::string& capture, Use use) {
    CaptureFile file(capture);
    CapturedPackets packets(file);
    while (const auto next = packets.next()) {
        const std::chrono::duration<double, std::micro> since = next->since_first;
        use(since.count(), next->datagram, next->packet);
    }
    return !file.is_damaged();
}

}  // namespace

void CaptureTrace::learn() {
    (void)each_packet(capture_,
                      [&](double, const wire::RoceDatagram& datagram, const wire::Packet& packet) {
                          const PacketFlow flow = flow_of(datagram, packet);
                          if (packet.info->has(wire::Header::Deth))
                              pairs_.datagram(flow, packet.deth().source.raw);
                          else if (wire::is_answer(packet.info->verb))
                              pairs_.answer(flow, packet.bth.psn.raw());
                          else if (packet.info->verb != wire::Verb::Cnp)
                              pairs_.request(flow, packet.bth.psn.raw());
                          else
                              pairs_.other(flow);
                      });
    for (const auto& [answers, requests] : pairs_.partners()) {
        other_way_.emplace(answers, requests);
        other_way_.emplace(requests, answers);
    }
}

CaptureTrace::End CaptureTrace::sender_of(const PacketFlow& flow,
                                          const wire::Packet& packet) const {
    const Gid& address = std::get<0>(flow);
    if (packet.info->has(wire::Header::Deth)) return {address, packet.deth().source.raw, {}};
    if (const auto back = other_way_.find(flow); back != other_way_.end())
        return {address, std::get<2>(back->second), {}};
    return {address, 0, flow};
}

// None: there is no room for another.
std::optional<std::uint32_t> CaptureTrace::group_of(const End& end) {
    if (const auto known = groups_.find(end); known != groups_.end()) return known->second;
    if (groups_.size() == kGroupsMax) return std::nullopt;
    const auto group = static_cast<std::uint32_t>(groups_.size() + 1);
    groups_.emplace(end, group);
    const auto& [address, qpn, flow] = end;
    file_.name_group(group, qpn != 0 ? fmt::format("QP 0x{:06x} of {}", qpn, to_string(address))
                                     : fmt::format("a queue pair of {}, to QP 0x{:06x} of {}",
                                                   to_string(address), std::get<2>(flow),
                                                   to_string(std::get<1>(flow))));
    file_.name_row({group, kRequests}, "work requests");
    file_.name_row({group, kSent}, "packets sent");
    file_.name_row({group, kReceived}, "packets received");
    file_.name_row({group, kAgain}, "sent again");
    return group;
}

WorkRequests& CaptureTrace::requests_of(const PacketFlow& flow, std::uint32_t group) {
    std::unique_ptr<WorkRequests>& requests = requests_[flow];
    if (requests == nullptr)
        requests = std::make_unique<WorkRequests>(file_, TracePlace{group, kRequests}, next_id_);
    return *requests;
}

void CaptureTrace::add(double us, const wire::RoceDatagram& datagram, const wire::Packet& packet) {
    const PacketFlow flow = flow_of(datagram, packet);
    const auto from = pairs_.knows(flow) ? group_of(sender_of(flow, packet)) : std::nullopt;
    const auto to = from ? group_of({std::get<1>(flow), std::get<2>(flow), {}}) : std::nullopt;
    if (!to) {
        ++left_out_;
        return;
    }
    ++packets_;
    last_us_ = std::max(last_us_, us);
    const std::uint32_t sender = *from, receiver = *to;
    Json details{{"psn", packet.bth.psn.raw()},
                 {"bytes", datagram.udp_payload.size()},
                 {"packet", wire::describe(packet)}};
    const std::string remark = remarks_.on(datagram, packet);
    if (!remark.empty()) details["remark"] = remark;
    file_.instant({sender, kSent}, us, packet.info->name, details);
    file_.instant({receiver, kReceived}, us, packet.info->name, details);
    if (remark == Remarks::kSentAgain)
        file_.instant({sender, kAgain}, us, packet.info->name, std::move(details));
    if (packet.info->verb == wire::Verb::Cnp) return;
    if (!wire::is_answer(packet.info->verb)) return requests_of(flow, sender).request(us, packet);
    if (const auto asked = other_way_.find(flow); asked != other_way_.end())
        requests_of(asked->second, receiver).answer(us, packet);
}

bool CaptureTrace::write() {
    learn();
    const bool is_whole =
        each_packet(capture_, [this](double us, const wire::RoceDatagram& datagram,
                                     const wire::Packet& packet) { add(us, datagram, packet); });
    for (const auto& [flow, requests] : requests_) requests->finish(last_us_);
    return is_whole;
}

std::size_t CaptureTrace::requests() const {
    std::size_t sum = 0;
    for (const auto& [flow, requests] : requests_) sum += requests->count();
    return sum;
}

}  // namespace feroce::cli
