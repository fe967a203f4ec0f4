#include "cli/web/ladder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <tuple>

#include "base/psn.hpp"
#include "cli/remarks.hpp"
#include "wire/icrc.hpp"
#include "wire/packet.hpp"
#include "wire/pcapng.hpp"
#include "wire/print.hpp"

namespace feroce::cli {
namespace {

// Larger captures are cut here: a page shows a beginning, `feroce trace` all.
constexpr std::size_t kPacketsMax = 50'000;
// How far an answer's PSN may be from the last request it can belong to.
constexpr std::int32_t kNear = 8'192;

using Flow = std::tuple<Gid, Gid, std::uint32_t>;  // Source, destination, queue pair.

Flow flow_of(const LadderPacket& packet) {
    return {packet.source, packet.destination, packet.qpn};
}

bool are_opposite(const Flow& a, const Flow& b) {
    return std::get<0>(a) == std::get<1>(b) && std::get<1>(a) == std::get<0>(b);
}

// For each flow that is known to answer another: that one.
std::map<Flow, Flow> partners(const std::vector<LadderPacket>& packets) {
    std::map<Flow, std::uint32_t> requests;  // The last PSN.
    std::map<Flow, std::map<Flow, std::size_t>> votes;
    for (const LadderPacket& packet : packets) {
        const Flow own = flow_of(packet);
        if (packet.from_qpn != 0) {
            const Flow back{packet.destination, packet.source, packet.from_qpn};
            if (back != own) ++votes[own][back];
            continue;
        }
        if (!packet.answers) {
            requests[own] = packet.psn;
            continue;
        }
        std::int32_t nearest = kNear;
        const Flow* found = nullptr;
        for (const auto& [flow, psn] : requests) {
            const std::int32_t away = std::abs(distance(Psn(packet.psn), Psn(psn)));
            if (!are_opposite(flow, own) || flow == own || away >= nearest) continue;
            nearest = away;
            found = &flow;
        }
        if (found != nullptr) ++votes[own][*found];
    }
    std::map<Flow, Flow> out;
    for (const auto& [flow, candidates] : votes)
        out[flow] = std::max_element(candidates.begin(), candidates.end(), [](auto& a, auto& b) {
                        return a.second < b.second;
                    })->first;
    return out;
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

bool is_answer(wire::Verb verb) {
    return verb == wire::Verb::Ack || verb == wire::Verb::AtomicAck ||
           verb == wire::Verb::ReadResponse;
}

LadderPacket ladder_packet(double seconds, const wire::RoceDatagram& datagram,
                           const wire::Packet& packet, Remarks& remarks) {
    LadderPacket out;
    out.seconds = seconds;
    out.source = datagram.address.source;
    out.destination = datagram.address.destination;
    out.qpn = packet.bth.destination.raw;
    out.psn = packet.bth.psn.raw();
    out.answers = is_answer(packet.info->verb);
    if (packet.info->has(wire::Header::Deth)) out.from_qpn = packet.deth().source.raw;
    out.text = wire::describe(packet);
    out.remark = remarks.on(datagram, packet);
    if (!wire::verify(datagram.address, datagram.ipv4_id, datagram.udp_payload))
        out.remark = "bad ICRC";
    return out;
}

}  // namespace

Json ladders_of(const std::vector<LadderPacket>& packets) {
    const std::map<Flow, Flow> requests_of = partners(packets);
    std::map<Flow, Flow> answers_of;
    for (const auto& [answers, requests] : requests_of) answers_of.emplace(requests, answers);
    std::map<Flow, Json> ladders;  // By the flow to the right.
    for (const LadderPacket& packet : packets) {
        const Flow own = flow_of(packet);
        const auto requests = requests_of.find(own);
        const auto answers = answers_of.find(own);
        // Both ends may ask: the flow that comes first in order is the one to the right.
        std::optional<Flow> other;
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
    for (auto& [flow, ladder] : ladders) sorted.push_back(std::move(ladder));
    std::stable_sort(sorted.begin(), sorted.end(), [](const Json& a, const Json& b) {
        return a["packets"].size() > b["packets"].size();
    });
    sorted.resize(std::min(sorted.size(), kLaddersMax));
    return sorted;
}

Json ladders_in(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw UsageError(fmt::format("{}: {}", path, std::strerror(errno)));
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    wire::PcapngReader reader(std::as_bytes(std::span(bytes)));
    std::vector<LadderPacket> packets;
    std::optional<Duration> first;
    Remarks remarks;
    while (const auto frame = reader.next()) {
        const auto datagram = wire::find_datagram(*frame);
        wire::Packet packet;
        if (!datagram ||
            wire::parse_packet(datagram->udp_payload, packet) != wire::ParseError::None)
            continue;
        if (!first) first = frame->since_epoch;
        const double seconds = std::chrono::duration<double>(frame->since_epoch - *first).count();
        packets.push_back(ladder_packet(seconds, *datagram, packet, remarks));
        if (packets.size() == kPacketsMax) break;
    }
    if (reader.damaged() && !reader.is_capture())
        throw UsageError(fmt::format("{} is not a pcapng file", path));
    return ladders_of(packets);
}

}  // namespace feroce::cli
