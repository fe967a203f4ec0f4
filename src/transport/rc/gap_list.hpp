// GapList: what a responder that keeps packets tells a requester about them: which are missing and
// which are here. It is the payload of an acknowledgement that was sent before. Only a requester
// that said that it understands lists gets one; it says so by a WRITE of no bytes that asks for no
// acknowledgement, under a number that was acknowledged before: a duplicate, which changes nothing
// and whose key is not looked at. See ADR 34.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "base/bytes.hpp"
#include "base/psn.hpp"
#include "wire/packet.hpp"

namespace feroce::transport::rc {

// Runs of packets from `base` on: so many missing, so many kept, and so on in turn.
struct GapList {
    static constexpr std::size_t kRuns = 5;
    static constexpr std::uint32_t kRunMax = 0xfff;
    static constexpr std::size_t kSize = wire::kListSize;
    static constexpr std::uint32_t kMark = 0xfe;

    Psn base{0};
    std::array<std::uint16_t, kRuns> runs{};

    void store(std::span<std::byte, kSize> into) const {
        std::uint64_t bits = 0;
        for (std::size_t i = 0; i < kRuns; ++i) bits |= std::uint64_t{runs[i]} << kRunBits * i;
        store_be32(into.first<4>(), kMark << 24 | base.raw());
        store_be64(into.last<8>(), bits);
    }
    static std::optional<GapList> parse(ByteView payload) {
        if (payload.size() != kSize) return {};
        const std::uint32_t begin = load_be32(payload.first<4>());
        if (begin >> 24 != kMark) return {};
        const std::uint64_t bits = load_be64(payload.last<8>());
        GapList list;
        list.base = Psn(begin);
        for (std::size_t i = 0; i < kRuns; ++i)
            list.runs[i] = static_cast<std::uint16_t>(bits >> kRunBits * i & kRunMax);
        return list;
    }

private:
    static constexpr std::size_t kRunBits = 12;
};

// What a requester that understands lists says so by, and whether a duplicate is one.
inline wire::Reth hello() {
    return {0, RKey{GapList::kMark << 24}, 0};
}
inline bool is_hello(const wire::Packet& packet) {
    if (packet.bth.opcode != wire::Opcode::RcWriteOnly || packet.bth.ack_request) return false;
    const wire::Reth reth = packet.reth();
    return reth.length == 0 && packet.payload.empty() && reth.address == 0 &&
           reth.rkey == hello().rkey;
}

}  // namespace feroce::transport::rc
