// GapList: what a responder that keeps packets tells a requester about them: which are missing and
// which are here. It travels as a WRITE of no bytes that asks for no acknowledgement, under a
// number that was acknowledged before: a duplicate, which changes nothing and whose key is not
// looked at. See ADR 34.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/psn.hpp"
#include "wire/packet.hpp"

namespace feroce::transport::rc {

// Runs of packets from `base` on: so many missing, so many kept, and so on in turn. An empty one
// tells nothing but that its sender understands lists.
struct GapList {
    static constexpr std::size_t kRuns = 5;
    static constexpr std::uint32_t kRunMax = 0xfff;

    Psn base{0};
    std::array<std::uint16_t, kRuns> runs{};

    wire::Reth pack() const {
        wire::Reth reth;
        for (std::size_t i = 0; i < kRuns; ++i)
            reth.address |= std::uint64_t{runs[i]} << kRunBits * i;
        reth.rkey = RKey{kMark << 24 | base.raw()};
        return reth;
    }
    // Of a duplicate.
    static std::optional<GapList> parse(const wire::Packet& packet) {
        if (packet.bth.opcode != wire::Opcode::RcWriteOnly || packet.bth.ack_request) return {};
        const wire::Reth reth = packet.reth();
        if (reth.length != 0 || !packet.payload.empty() || reth.rkey.raw >> 24 != kMark) return {};
        GapList list;
        list.base = Psn(reth.rkey.raw);
        for (std::size_t i = 0; i < kRuns; ++i)
            list.runs[i] = static_cast<std::uint16_t>(reth.address >> kRunBits * i & kRunMax);
        return list;
    }

private:
    static constexpr std::uint32_t kMark = 0xfe;
    static constexpr std::size_t kRunBits = 12;
};

}  // namespace feroce::transport::rc
