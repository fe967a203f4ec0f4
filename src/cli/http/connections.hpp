// The open connections of a server. None lives longer than an answer can take, and when
// there are too many the oldest ends: so a newcomer always gets in, whatever clients do that never
// finish a request.
#pragma once

#include <chrono>
#include <cstddef>
#include <mutex>
#include <vector>

namespace feroce::cli {

class Connections {
public:
    using Clock = std::chrono::steady_clock;

    static constexpr std::size_t kMax = 32;
    static constexpr std::chrono::seconds kLifetime{10};

    void opened(int fd, Clock::time_point now);
    void closed(int fd);  // Before the descriptor is closed.
    void end_old_ones(Clock::time_point now);

private:
    struct Connection {
        int fd = -1;
        Clock::time_point since;
        bool ended = false;  // By us; its owner has yet to notice.
    };
    static void end(Connection& connection);

    std::mutex mutex_;  // Guards open_: the server's thread fills it, another looks at the clock.
    std::vector<Connection> open_;  // The oldest first.
};

}  // namespace feroce::cli
