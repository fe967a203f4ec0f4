// OutOfOrderStore: packets that came before one that is missing, until their turn comes. Keeps
// copies: a packet's own bytes are gone when the next one is read.
//
// A packet is found by its number. Those that are kept lie in a span of kPackets numbers, which
// begins behind the missing one, so each has its place and nothing is searched. The first of two
// with one number stays. Memory is taken with the first packet and given back with the last; how
// much all stores of an engine have together is bounded by a HoldBudget. Without memory nothing is
// kept, and the peer sends again what it would have sent again anyway.
#pragma once

#include <algorithm>
#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/bytes.hpp"
#include "base/packet_number.hpp"
#include "transport/hold_budget.hpp"
#include "wire/packet.hpp"

namespace feroce::transport::rc {

class OutOfOrderStore {
public:
    // Half a megabyte of packets of 1 KiB: two thirds of a millisecond at 6 Gb/s. A small part of
    // all PSNs, so that a packet from long ago is not taken for one to come.
    static constexpr std::uint32_t kPackets = std::min<std::uint32_t>(512, Psn::kCount / 16);
    static constexpr std::size_t kPayloadMax = 4096;

    // A packet that is kept no more, with bytes of its own.
    struct Taken {
        wire::Packet packet;
        std::array<std::byte, wire::kExtensionMax + kPayloadMax> bytes;
    };

    explicit OutOfOrderStore(HoldBudget& budget) : budget_(budget) {}
    OutOfOrderStore(const OutOfOrderStore&) = delete;
    OutOfOrderStore& operator=(const OutOfOrderStore&) = delete;
    ~OutOfOrderStore() { clear(); }

    bool empty() const { return used_.none(); }
    std::size_t size() const { return used_.count(); }
    bool has(PacketNumber number) const;
    // Keeps a copy of one that is ahead of `missing`, with a payload of up to `payload_max` bytes,
    // which is the same for all that are kept at a time. False if it is not kept, or is already.
    bool hold(PacketNumber missing, PacketNumber number, const wire::Packet& packet,
              std::size_t payload_max);
    // False if it is not here.
    bool take(PacketNumber number, Taken& into);
    // The lowest number that is kept, if none below `from` is. Slow. Not if empty.
    PacketNumber first_from(PacketNumber from) const;
    struct Bounds {
        PacketNumber first;
        PacketNumber last;
    };
    Bounds bounds() const;                  // Of all that are kept. Slow: for invariants.
    void drop_before(PacketNumber number);  // Slow.
    void clear();

private:
    struct Slot {
        PacketNumber number;
        wire::Packet packet;  // Its views are of memory_.
    };

    static std::size_t place_of(PacketNumber number) { return number.psn().raw() % kPackets; }
    bool take_memory(std::size_t payload_max);
    void free_place(std::size_t place);
    void give_memory_back();

    HoldBudget& budget_;
    std::bitset<kPackets> used_;
    std::size_t stride_ = 0;  // Bytes of a place. These three are valid unless empty.
    std::unique_ptr<Slot[]> slots_;
    std::unique_ptr<std::byte[]> memory_;
};

}  // namespace feroce::transport::rc
