// Slots: a region of a node's memory cut into equal places, each of which serves one transfer at a
// time, so that what belongs into every byte is known at any moment.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/assert.hpp"
#include "base/random.hpp"
#include "sim/arena.hpp"

namespace feroce::sim {

class Slots {
public:
    Slots() = default;
    Slots(Range region, std::uint64_t slot_bytes)
        : region_(region), slot_bytes_(slot_bytes), users_(region.length / slot_bytes) {}

    Range region() const { return region_; }
    std::size_t size() const { return users_.size(); }
    Range place(std::size_t slot) const {
        return {region_.offset + slot * slot_bytes_, slot_bytes_};
    }
    std::optional<std::size_t> take(Prng& random) {
        if (users_.empty()) return std::nullopt;
        const std::size_t start = random.below(users_.size());
        for (std::size_t i = 0; i < users_.size(); ++i) {
            const std::size_t slot = (start + i) % users_.size();
            if (users_[slot] > 0) continue;
            ++users_[slot];
            return slot;
        }
        return std::nullopt;
    }
    void share(std::size_t slot) { ++users_[slot]; }  // One more give() frees it.
    void give(std::size_t slot) {
        ASSERT(users_[slot] > 0);
        --users_[slot];
    }
    void give_all() { users_.assign(users_.size(), 0); }

private:
    Range region_;
    std::uint64_t slot_bytes_ = 1;
    std::vector<std::uint32_t> users_;
};

}  // namespace feroce::sim
