// Which path a request takes.
#pragma once

#include <cstdint>

namespace feroce::rtrs {

enum class PathPolicy : std::uint8_t {
    RoundRobin,   // Every path in its turn.
    MinInflight,  // The path with the fewest requests under way.
    MinLatency,   // The path whose last heartbeat came back soonest.
};

}  // namespace feroce::rtrs
