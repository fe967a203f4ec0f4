// SeatTokens: by which tokens the members of another user's port group know the guests in this
// process (relay_server.hpp). A port keeps its own up to date for as long as it has its seat. Any
// thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "base/ids.hpp"
#include "port/slot_table.hpp"

namespace feroce::port {

// Of the seats of one user, 0 where there is none.
using Tokens = std::array<std::uint64_t, kSeatsPerUser>;

inline bool have_one_in_common(const Tokens& a, const Tokens& b) {
    return std::any_of(a.begin(), a.end(), [&b](std::uint64_t token) {
        return token != 0 && std::find(b.begin(), b.end(), token) != b.end();
    });
}

class SeatTokens {
public:
    void set(SlotNumber slot, std::uint64_t token) {  // Takes memory for a new slot only.
        const std::lock_guard lock(mutex_);
        by_slot_[slot] = token;
    }
    void forget(SlotNumber slot) {
        const std::lock_guard lock(mutex_);
        by_slot_.erase(slot);
    }
    Tokens all() const {
        const std::lock_guard lock(mutex_);
        Tokens out{};
        std::size_t count = 0;
        for (const auto& [slot, token] : by_slot_)
            if (count < out.size()) out[count++] = token;
        return out;
    }

private:
    mutable std::mutex mutex_;  // Guards the rest.
    std::map<SlotNumber, std::uint64_t> by_slot_;
};

}  // namespace feroce::port
