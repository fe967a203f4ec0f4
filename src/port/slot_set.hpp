// SlotSet: a bit for each slot of the UDP port, and two kinds of it that others see while it
// changes.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/ids.hpp"

namespace feroce::port {

// Slots come in chunks, whose sockets are bound and parked together (socket_lot.hpp). The last ones
// of a chunk are for processes of other users, who are relayed to (relay_server.hpp).
inline constexpr std::uint32_t kChunkSlots = 16;
inline constexpr std::uint32_t kChunkMembers = 12;
inline constexpr std::uint32_t kChunks = 22;
inline constexpr std::uint32_t kSlots = kChunkSlots * kChunks;
static_assert(kSlots < 1u << kSlotBits);  // The last one would have the QPN of multicast.
// Slot 0 belongs to nobody.
inline constexpr std::uint32_t kMemberSlots = kChunkMembers * kChunks - 1;

constexpr bool is_guest_slot(std::uint32_t slot) {
    return slot < kSlots && slot % kChunkSlots >= kChunkMembers;
}
constexpr bool is_member_slot(std::uint32_t slot) {
    return slot != 0 && slot < kSlots && slot % kChunkSlots < kChunkMembers;
}

class SlotSet {
public:
    static constexpr std::size_t kWords = (kSlots + 63) / 64;

    static SlotSet of(std::uint32_t slot) {
        SlotSet out;
        out.add(slot);
        return out;
    }
    static constexpr std::uint64_t bit(std::uint32_t slot) { return std::uint64_t{1} << slot % 64; }

    bool has(std::uint32_t slot) const { return (words[slot / 64] & bit(slot)) != 0; }
    void add(std::uint32_t slot) { words[slot / 64] |= bit(slot); }
    void remove(std::uint32_t slot) { words[slot / 64] &= ~bit(slot); }
    bool empty() const {
        std::uint64_t any = 0;
        for (const std::uint64_t word : words) any |= word;
        return any == 0;
    }
    // `f` may change this set, or another one: it is called for those that are in it now.
    template <class F>
    void for_each(F&& f) const {
        for (std::size_t i = 0; i < kWords; ++i)
            for (std::uint64_t rest = words[i]; rest != 0; rest &= rest - 1)
                f(static_cast<std::uint32_t>(i * 64) +
                  static_cast<std::uint32_t>(std::countr_zero(rest)));
    }

    SlotSet& operator|=(const SlotSet& other) {
        for (std::size_t i = 0; i < kWords; ++i) words[i] |= other.words[i];
        return *this;
    }
    SlotSet& operator&=(const SlotSet& other) {
        for (std::size_t i = 0; i < kWords; ++i) words[i] &= other.words[i];
        return *this;
    }
    SlotSet& operator-=(const SlotSet& other) {
        for (std::size_t i = 0; i < kWords; ++i) words[i] &= ~other.words[i];
        return *this;
    }
    friend SlotSet operator&(SlotSet a, const SlotSet& b) { return a &= b; }
    friend SlotSet operator-(SlotSet a, const SlotSet& b) { return a -= b; }
    friend bool operator==(const SlotSet&, const SlotSet&) = default;

    std::array<std::uint64_t, kWords> words{};
};

// Each bit for itself: what is loaded need not have been there at any one moment.
class SharedSlotSet {
public:
    SlotSet load(std::memory_order order) const {
        SlotSet out;
        for (std::size_t i = 0; i < SlotSet::kWords; ++i) out.words[i] = words_[i].load(order);
        return out;
    }
    void store(const SlotSet& set, std::memory_order order) {
        for (std::size_t i = 0; i < SlotSet::kWords; ++i) words_[i].store(set.words[i], order);
    }
    // These two are sequentially consistent, and touch only words that have a bit to change.
    void add(const SlotSet& set) {
        for (std::size_t i = 0; i < SlotSet::kWords; ++i)
            if (set.words[i] != 0) words_[i].fetch_or(set.words[i]);
    }
    void remove(const SlotSet& set) {
        for (std::size_t i = 0; i < SlotSet::kWords; ++i)
            if (set.words[i] != 0) words_[i].fetch_and(~set.words[i]);
    }
    bool has(std::uint32_t slot) const {
        return (words_[slot / 64].load() & SlotSet::bit(slot)) != 0;
    }
    void add(std::uint32_t slot) { words_[slot / 64].fetch_or(SlotSet::bit(slot)); }

private:
    std::array<std::atomic<std::uint64_t>, SlotSet::kWords> words_{};
    static_assert(std::atomic<std::uint64_t>::is_always_lock_free);  // Shared between processes.
};

}  // namespace feroce::port
