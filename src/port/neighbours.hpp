// Neighbours: the processes that share the port with this one, as they are just now.
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "port/port_group.hpp"
#include "port/seat_tokens.hpp"
#include "port/slot_table.hpp"

namespace feroce::port {

struct Neighbours {
    std::uint32_t owner = 0;              // The user whose UDP port it is.
    std::shared_ptr<PortGroup> group;     // Null if we are a guest.
    Tokens tokens{};                      // Our own, as a guest.
    std::vector<SlotTable::Seat> guests;  // Whom our group relays to.

    // Whether the process may pass itself off as one of `user`.
    bool speaks_for(std::uint32_t user, const ucred& process) const {
        return process.uid == user || (group && user == owner && group->has_member(process));
    }
    std::vector<std::uint32_t> guest_users() const {
        std::vector<std::uint32_t> out;
        for (const SlotTable::Seat& seat : guests)
            if (std::find(out.begin(), out.end(), seat.user) == out.end()) out.push_back(seat.user);
        return out;
    }
    Tokens tokens_of(std::uint32_t user) const {
        Tokens out{};
        std::size_t count = 0;
        for (const SlotTable::Seat& seat : guests)
            if (seat.user == user && count < out.size()) out[count++] = seat.token;
        return out;
    }
};

}  // namespace feroce::port
