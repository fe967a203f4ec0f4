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

// `port` is 4791 but in tests. `before`: a guest's seat of before. `gate`: by which a forked child
// closes what the group holds.
Result<PortEntry> enter_port(std::uint16_t port, const Identity& identity, FormerSeat before,
                             Duration patience,
                             const std::shared_ptr<ForkGate>& gate = std::make_shared<ForkGate>());

// A slot of the group, waiting for other processes that are at it just now.
Result<SlotNumber> claim_slot(PortGroup& group, Duration patience);

}  // namespace feroce::port
