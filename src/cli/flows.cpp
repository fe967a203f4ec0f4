#include "cli/flows.hpp"

#include <algorithm>
#include <cstdlib>

#include "base/psn.hpp"

namespace feroce::cli {
namespace {

// How far an answer's PSN may be from the last request it can belong to.
constexpr std::int32_t kNear = 8'192;

}  // namespace

void FlowPairs::request(const PacketFlow& flow, std::uint32_t psn) {
    requests_[flow] = psn;
}

void FlowPairs::answer(const PacketFlow& flow, std::uint32_t psn) {
    const auto& [source, destination, qpn] = flow;
    std::int32_t nearest = kNear;
    const PacketFlow* found = nullptr;
    for (auto i = requests_.lower_bound({destination, source, 0}); i != requests_.end(); ++i) {
        const auto& [other, last] = *i;
        if (std::get<0>(other) != destination || std::get<1>(other) != source) break;
        const std::int32_t away = std::abs(distance(Psn(psn), Psn(last)));
        if (other == flow || away >= nearest) continue;
        nearest = away;
        found = &other;
    }
    if (found != nullptr) ++votes_[flow][*found];
}

void FlowPairs::datagram(const PacketFlow& flow, std::uint32_t from_qpn) {
    const PacketFlow back{std::get<1>(flow), std::get<0>(flow), from_qpn};
    if (back != flow) ++votes_[flow][back];
}

std::map<PacketFlow, PacketFlow> FlowPairs::partners() const {
    std::map<PacketFlow, PacketFlow> out;
    for (const auto& [flow, candidates] : votes_)
        out[flow] = std::max_element(candidates.begin(), candidates.end(), [](auto& a, auto& b) {
                        return a.second < b.second;
                    })->first;
    return out;
}

}  // namespace feroce::cli
