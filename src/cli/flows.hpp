// Flows of a capture, and which two are the directions of one connection. A datagram names both
// queue pairs, any other packet only the one that gets it. Which two belong together is learnt from
// answers there: an answer has the PSN of a request that went the other way shortly before.
//
// Memory is bounded: packets of more flows than there is room for are counted and not followed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>

#include "base/gid.hpp"

namespace feroce::cli {

// Source, destination, queue pair that gets it.
using PacketFlow = std::tuple<Gid, Gid, std::uint32_t>;

class FlowPairs {
public:
    static constexpr std::size_t kFlowsMax = 8'192;
    // Answers of a flow whose requests are looked for one by one; after them every 64th is.
    static constexpr std::uint32_t kSearchedSingly = 16;
    static constexpr std::uint32_t kSearchedThen = 64;

    explicit FlowPairs(std::size_t flows_max = kFlowsMax) : flows_max_(flows_max) {}

    // Packets in the order of the capture.
    void request(const PacketFlow& flow, std::uint32_t psn);
    void answer(const PacketFlow& flow, std::uint32_t psn);
    void datagram(const PacketFlow& flow, std::uint32_t from_qpn);
    void other(const PacketFlow& flow) { (void)meet(flow); }  // It neither asks nor answers.

    bool knows(const PacketFlow& flow) const { return flows_.count(flow) != 0; }
    std::uint64_t left_out() const { return left_out_; }  // Packets of flows it does not know.
    std::uint64_t searches() const { return searches_; }  // Each looks at the flows of two ends.

    // For each flow that is known to answer another: that one.
    std::map<PacketFlow, PacketFlow> partners() const;

private:
    struct Seen {
        std::optional<std::uint32_t> asked;  // The last PSN of a request.
        std::uint32_t answers = 0;
        std::map<PacketFlow, std::size_t> votes;  // By answers and datagrams, for their partner.
    };
    Seen* meet(const PacketFlow& flow);  // Null: there is no room.
    const PacketFlow* asker_of(const PacketFlow& flow, std::uint32_t psn) const;

    std::size_t flows_max_;
    std::map<PacketFlow, Seen> flows_;
    std::uint64_t left_out_ = 0;
    std::uint64_t searches_ = 0;
};

}  // namespace feroce::cli
