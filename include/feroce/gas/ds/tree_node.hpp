// A node of OrderedMap's tree: sorted entries, and the right neighbour that has the keys from `end`
// on. In an inner node the value of an entry is the bits of a child, which has the keys from the
// entry's on; the first child also has all smaller ones, so the first key is never looked at.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "feroce/gas/chain.hpp"

namespace feroce::gas::detail {

template <class K, class V>
struct TreeEntry {
    K key{};
    V value{};
};

template <class K, class V>
struct TreeNode {
    using Entry = TreeEntry<K, V>;
    static constexpr std::size_t kEntries =
        (kChainBytes - 64 - 3 * sizeof(std::uint64_t) - sizeof(K)) / sizeof(Entry);
    static_assert(kEntries >= 4, "the keys are too large");

    std::uint64_t level = 0;  // 0: a leaf.
    std::uint64_t count = 0;
    std::uint64_t next = 0;  // Bits of the right neighbour; 0: none.
    K end{};                 // Where its keys begin, if there is one.
    std::array<Entry, kEntries> entries{};

    bool beyond(const K& key) const { return next != 0 && !(key < end); }
    // The first entry whose key is not smaller.
    std::size_t place_of(const K& key) const {
        const Entry* first = entries.data() + (level > 0 ? 1 : 0);
        const Entry* place =
            std::lower_bound(first, entries.data() + count, key,
                             [](const Entry& entry, const K& k) { return entry.key < k; });
        return static_cast<std::size_t>(place - entries.data());
    }
    bool has(std::size_t place, const K& key) const {
        return place < count && !(key < entries[place].key);
    }
    std::uint64_t child_of(const K& key) const {
        const std::size_t place = place_of(key);
        return std::bit_cast<std::uint64_t>(entries[has(place, key) ? place : place - 1].value);
    }
    // There is room, as the caller made sure.
    void insert(std::size_t place, const Entry& entry) {
        Entry* at = entries.data() + place;
        std::move_backward(at, entries.data() + count, entries.data() + count + 1);
        *at = entry;
        ++count;
    }
    void remove(std::size_t place) {
        Entry* at = entries.data() + place;
        std::move(at + 1, entries.data() + count, at);
        --count;
    }
    // What a new right neighbour of a full node begins with.
    TreeNode upper_half() const {
        TreeNode right;
        right.level = level;
        right.next = next;
        right.end = end;
        right.count = kEntries - kEntries / 2;
        std::copy(entries.begin() + kEntries / 2, entries.end(), right.entries.begin());
        return right;
    }
};

}  // namespace feroce::gas::detail
