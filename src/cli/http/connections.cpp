#include "cli/http/connections.hpp"

#include <sys/socket.h>

#include <algorithm>

namespace feroce::cli {

void Connections::end(Connection& connection) {
    if (!connection.ended) ::shutdown(connection.fd, SHUT_RDWR);
    connection.ended = true;
}

void Connections::opened(int fd, Clock::time_point now) {
    const std::lock_guard lock(mutex_);
    const auto is_live = [](const Connection& c) { return !c.ended; };
    const auto live = std::count_if(open_.begin(), open_.end(), is_live);
    if (static_cast<std::size_t>(live) >= kMax)
        end(*std::find_if(open_.begin(), open_.end(), is_live));
    open_.push_back({fd, now});
}

void Connections::closed(int fd) {
    const std::lock_guard lock(mutex_);
    const auto found =
        std::find_if(open_.begin(), open_.end(), [fd](const Connection& c) { return c.fd == fd; });
    if (found != open_.end()) open_.erase(found);
}

void Connections::end_old_ones(Clock::time_point now) {
    const std::lock_guard lock(mutex_);
    for (Connection& connection : open_)
        if (now - connection.since >= kLifetime) end(connection);
}

}  // namespace feroce::cli
