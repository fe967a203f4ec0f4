// OutOfOrderStore: packets that came before one that is missing, until their turn comes. Keeps
// copies: a packet's own bytes are gone when the next one is read.
//
// A packet is found by its number. Those that are kept lie in a span of kPackets numbers, which
// begins behind the missing one, so each has its place and nothing is searched. The first of two
// with one number stays. Places come in chunks: memory is taken with the first packet of one and
// given back with its last; how much all stores of an engine have together is bounded by a
// HoldBudget. Without memory nothing is kept, and the peer sends again what it would have sent
// again anyway.
#pragma once

#include <algorithm>
#include <array>
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
    // What is on its way in two round trips, if a window is as large as it gets: of 1 KiB at a
    // gigabit a second and 100 ms.
    static constexpr std::uint32_t kPackets = std::min<std::uint32_t>(32768, Psn::kCount / 16);
    // How far ahead of all that is kept one may be. A small part of all PSNs, so that a packet from
    // long ago is not taken for one to come.
    static constexpr std::uint32_t kAheadMax = std::min<std::uint32_t>(4096, kPackets);
    // More only as long as a quarter of the budget is left to others.
    static constexpr std::uint32_t kPacketsOfOne = std::min<std::uint32_t>(4096, kPackets);
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

    bool empty() const { return size_ == 0; }
    std::size_t size() const { return size_; }
    bool has(PacketNumber number) const;
    // One past the highest number that was kept since the store was empty last. Not if empty.
    PacketNumber end() const { return end_; }
    // Keeps a copy of one that is ahead of `missing`, with a payload of up to `payload_max` bytes,
    // which is the same for all that are kept at a time. False if it is not kept, or is already.
    bool hold(PacketNumber missing, PacketNumber number, const wire::Packet& packet,
              std::size_t payload_max);
    // False if it is not here.
    bool take(PacketNumber number, Taken& into);
    // The lowest number that is kept, if none below `from` is. Not if empty.
    PacketNumber first_from(PacketNumber from) const { return run_end(from, false); }
    // How far those reach that are all kept, or all not, from there on.
    PacketNumber run_end(PacketNumber from, bool kept) const;
    struct Bounds {
        PacketNumber first;
        PacketNumber last;
    };
    Bounds bounds() const;  // Of all that are kept. Slow: for invariants.
    void drop_before(PacketNumber number);
    void clear();

private:
    static constexpr std::uint32_t kWord = 64;  // Places of a chunk, and bits of a word.

    struct Slot {
        PacketNumber number;
        wire::Packet packet;  // Its views are of the chunk's memory.
    };
    struct Chunk {
        std::uint64_t used = 0;  // A bit a place. The rest is there unless it is zero.
        std::unique_ptr<Slot[]> slots;
        std::unique_ptr<std::byte[]> memory;
    };

    static std::size_t place_of(PacketNumber number) { return number.psn().raw() % kPackets; }
    Slot& slot(std::size_t place) { return chunks_[place / kWord].slots[place % kWord]; }
    const Slot& slot(std::size_t place) const {
        return chunks_[place / kWord].slots[place % kWord];
    }
    bool is_used(std::size_t place) const {
        return (chunks_[place / kWord].used >> place % kWord & 1) != 0;
    }
    std::size_t chunk_bytes() const { return kWord * (stride_ + sizeof(Slot)); }
    bool take_memory(Chunk& chunk);
    void free_place(std::size_t place);
    void give_memory_back(Chunk& chunk);
    template <class F>
    void for_each_place(F&& see) const;

    HoldBudget& budget_;
    std::size_t size_ = 0;
    std::size_t stride_ = 0;  // Bytes of a place. This and the next are valid unless empty.
    PacketNumber low_;        // None below is kept. Not if empty, likewise.
    PacketNumber end_;
    std::array<Chunk, kPackets / kWord> chunks_;
};

}  // namespace feroce::transport::rc
