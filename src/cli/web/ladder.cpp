#include "cli/web/ladder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <utility>

#include "cli/capture/capture_file.hpp"
#include "cli/capture/captured_packets.hpp"
#include "cli/flows.hpp"
#include "cli/remarks.hpp"
#include "wire/packet.hpp"
#include "wire/pcapng.hpp"
#include "wire/print.hpp"

namespace feroce::cli {
namespace {

PacketFlow flow_of(const LadderPacket& packet) {
    return {packet.source, packet.destination, packet.qpn};
}

FlowPairs pairs_in(const std::vector<LadderPacket>& packets) {
    FlowPairs pairs;
    for (const LadderPacket& packet : packets) {
        if (packet.from_qpn != 0)
            pairs.datagram(flow_of(packet), packet.from_qpn);
        else if (packet.answers)
            pairs.answer(flow_of(packet), packet.psn);
        else
            pairs.request(flow_of(packet), packet.psn);
    }
    return pairs;
}

Json end_of_ladder(const Gid& address, std::uint32_t qpn) {
    return {{"address", to_string(address)}, {"qpn", qpn}};
}

Json as_json(const LadderPacket& packet, bool to_right) {
    return {{"seconds", packet.seconds},
            {"to_right", to_right},
            {"psn", packet.psn},
            {"text", packet.text},
            {"remark", packet.remark}};
}

std::size_t packets_of(const Json& ladder) {
    return ladder["packets"].size() + ladder["more"].get<std::size_t>();
}

LadderPacket ladder_packet(double seconds, const wire::RoceDatagram& datagram,
                           const wire::Packet& packet, Remarks& remarks) {
    LadderPacket out;
    out.seconds = seconds;
    out.source = datagram.address.source;
    out.destination = datagram.address.destination;
    out.qpn = packet.bth.destination.raw;
    out.psn = packet.bth.psn.raw();
    out.answers = wire::is_answer(packet.info->verb);
    if (packet.info->has(wire::Header::Deth)) out.from_qpn = packet.deth().source.raw;
    out.text = wire::describe(packet);
    out.remark = remarks.on(datagram, packet);
    if (!wire::verify(datagram)) out.remark = "bad ICRC";
    return out;
}

// Also whether there are more.
std::pair<std::vector<LadderPacket>, bool> packets_in(CaptureFile& file, std::size_t packets_max) {
    std::vector<LadderPacket> out;
    Remarks remarks;
    CapturedPackets packets(file);
    while (const auto next = packets.next()) {
        if (out.size() == packets_max) return {std::move(out), true};
        const double seconds = std::chrono::duration<double>(next->since_first).count();
        out.push_back(ladder_packet(seconds, next->datagram, next->packet, remarks));
    }
    return {std::move(out), false};
}

}  // namespace

Json ladders_of(const std::vector<LadderPacket>& packets) {
    const FlowPairs pairs = pairs_in(packets);
    // For each flow that is known to answer another: that one.
    const std::map<PacketFlow, PacketFlow> requests_of = pairs.partners();
    std::map<PacketFlow, PacketFlow> answers_of;
    for (const auto& [answers, requests] : requests_of) answers_of.emplace(requests, answers);
    std::map<PacketFlow, Json> ladders;  // By the flow to the right.
    for (const LadderPacket& packet : packets) {
        const PacketFlow own = flow_of(packet);
        const auto requests = requests_of.find(own);
        const auto answers = answers_of.find(own);
        // Both ends may ask: the flow that comes first in order is the one to the right.
        std::optional<PacketFlow> other;
        if (answers != answers_of.end()) other = answers->second;
        if (requests != requests_of.end()) other = requests->second;
        const bool to_right = !other || own < *other;
        Json& ladder = ladders[to_right ? own : *other];
        if (ladder.is_null()) {
            const auto& [from, to, qpn] = to_right ? own : *other;
            const std::uint32_t back = !other ? 0 : std::get<2>(to_right ? *other : own);
            ladder = {{"left", end_of_ladder(from, back)},
                      {"right", end_of_ladder(to, qpn)},
                      {"packets", Json::array()},
                      {"more", 0}};
        }
        if (ladder["packets"].size() < kLadderPacketsMax)
            ladder["packets"].push_back(as_json(packet, to_right));
        else
            ladder["more"] = ladder["more"].get<std::size_t>() + 1;
    }
    std::vector<Json> sorted;
    sorted.reserve(ladders.size());
    for (auto& [flow, ladder] : ladders) sorted.push_back(std::move(ladder));
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const Json& a, const Json& b) { return packets_of(a) > packets_of(b); });
    const std::size_t more = sorted.size() - std::min(sorted.size(), kLaddersMax);
    sorted.resize(sorted.size() - more);
    return {{"ladders", std::move(sorted)}, {"more", more}, {"unpaired", pairs.left_out()}};
}

Json ladders_in(const std::string& path, std::size_t bytes_max, std::size_t packets_max) {
    CaptureFile file(path, bytes_max);
    const auto [packets, is_full] = packets_in(file, packets_max);
    Json out = ladders_of(packets);
    out["cut"] = "";
    if (is_full)
        out["cut"] = fmt::format("only the first {} packets of the capture are read", packets_max);
    else if (file.is_cut())
        out["cut"] = fmt::format("only the first {} bytes of the capture are read", bytes_max);
    else if (const auto packets_apart = out["unpaired"].get<std::uint64_t>(); packets_apart > 0)
        out["cut"] = fmt::format(
            "the capture has more than {} flows; packets without the other direction: {}",
            FlowPairs::kFlowsMax, packets_apart);
    return out;
}

}  // namespace feroce::cli
