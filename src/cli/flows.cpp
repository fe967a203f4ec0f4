#include "cli/flows.hpp"

#include <algorithm>
#include <cstdlib>

#include "base/psn.hpp"

namespace feroce::cli {
namespace {

// How far an answer's PSN may be from the last request it can belong to.
constexpr std::int32_t kNear = 8'192;
constexpr std::size_t kCandidatesMax = 64;  // Of one flow. A UD queue pair has many senders.

void vote(std::map<PacketFlow, std::size_t>& votes, const PacketFlow& partner) {
    const auto known = votes.find(partner);
    if (known != votes.end())
        ++known->second;
    else if (votes.size() < kCandidatesMax)
        votes.emplace(partner, 1);
}

}  // namespace

FlowPairs::Seen* FlowPairs::meet(const PacketFlow& flow) {
    const auto known = flows_.find(flow);
    if (known != flows_.end()) return &known->second;
    if (flows_.size() < flows_max_) return &flows_[flow];
    ++left_out_;
    return nullptr;
}

void FlowPairs::request(const PacketFlow& flow, std::uint32_t psn) {
    if (Seen* seen = meet(flow)) seen->asked = psn;
}

// The flow the other way whose last request is nearest.
const PacketFlow* FlowPairs::asker_of(const PacketFlow& flow, std::uint32_t psn) const {
    const auto& [source, destination, qpn] = flow;
    std::int32_t nearest = kNear;
    const PacketFlow* found = nullptr;
    for (auto i = flows_.lower_bound({destination, source, 0}); i != flows_.end(); ++i) {
        const auto& [other, seen] = *i;
        if (std::get<0>(other) != destination || std::get<1>(other) != source) break;
        if (!seen.asked || other == flow) continue;
        const std::int32_t away = std::abs(distance(Psn(psn), Psn(*seen.asked)));
        if (away >= nearest) continue;
        nearest = away;
        found = &other;
        if (nearest == 0) break;
    }
    return found;
}

void FlowPairs::answer(const PacketFlow& flow, std::uint32_t psn) {
    Seen* seen = meet(flow);
    if (seen == nullptr) return;
    if (seen->answers++ >= kSearchedSingly && seen->answers % kSearchedThen != 0) return;
    ++searches_;
    if (const PacketFlow* found = asker_of(flow, psn)) vote(seen->votes, *found);
}

void FlowPairs::datagram(const PacketFlow& flow, std::uint32_t from_qpn) {
    const PacketFlow back{std::get<1>(flow), std::get<0>(flow), from_qpn};
    Seen* seen = meet(flow);
    if (seen != nullptr && back != flow) vote(seen->votes, back);
}

std::map<PacketFlow, PacketFlow> FlowPairs::partners() const {
    std::map<PacketFlow, PacketFlow> out;
    for (const auto& [flow, seen] : flows_) {
        if (seen.votes.empty()) continue;
        out[flow] = std::max_element(seen.votes.begin(), seen.votes.end(), [](auto& a, auto& b) {
                        return a.second < b.second;
                    })->first;
    }
    return out;
}

}  // namespace feroce::cli
