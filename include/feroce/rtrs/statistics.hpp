// What a session counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "feroce/rtrs/histogram.hpp"
#include "feroce/rtrs/options.hpp"
#include "feroce/time.hpp"

namespace feroce::rtrs {

enum class PathState : std::uint8_t { Connecting, Connected, Waiting, Disconnected };

struct PathStatistics {
    std::size_t number = 0;  // In the order of adding; removed ones keep theirs.
    PathAddress address;
    PathState state = PathState::Connecting;
    std::uint64_t reads = 0;
    std::uint64_t read_bytes = 0;
    std::uint64_t writes = 0;
    std::uint64_t write_bytes = 0;
    std::uint32_t inflight = 0;
    std::uint64_t failovers = 0;  // Requests that had to leave this path.
    std::uint64_t connects = 0;
    std::uint64_t connect_failures = 0;
    // Requests sent by each connection since the path is up: first the service connection.
    std::vector<std::uint64_t> sent;
    Duration latency{};      // Of the last heartbeat.
    Histogram requests;      // That it answered, from submission to completion.
    std::string last_error;  // Why it went down last.
};

struct SessionStatistics {
    std::vector<PathStatistics> paths;
    Histogram latency;  // From submission to completion, waits included.
    std::uint64_t completed = 0;
    std::uint64_t failed = 0;
    std::uint64_t fences = 0;       // Paths that the server confirmed to be dead.
    std::uint64_t epochs_lost = 0;  // The server came back without memory of this session.
    std::uint16_t queue_depth = 0;
    std::uint16_t permits_taken = 0;
    std::size_t permit_waiters = 0;
};

}  // namespace feroce::rtrs
