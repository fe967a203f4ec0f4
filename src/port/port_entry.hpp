// Entering UDP port 4791: as a member of this user's group, or as a guest of another user's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/result.hpp"
#include "base/time.hpp"
#include "port/identity.hpp"
#include "port/port_group.hpp"
#include "port/relay_seat.hpp"

namespace feroce::port {

// One of the two is there.
struct PortEntry {
    std::shared_ptr<PortGroup> group;
    std::optional<RelaySeat> seat;
};

// `port` is 4791 but in tests. `wish`: a guest's slot of before, 0 for none.
Result<PortEntry> enter_port(std::uint16_t port, const Identity& identity, std::uint32_t wish,
                             Duration patience);

}  // namespace feroce::port
