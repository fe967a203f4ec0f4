// See path_chooser.hpp.
#include "rtrs/path_chooser.hpp"

namespace feroce::rtrs {

std::optional<std::size_t> PathChooser::choose(std::span<const PathLoad> paths) {
    if (policy_ == PathPolicy::RoundRobin) return next_in_turn(paths);
    const auto better = [this](const PathLoad& a, const PathLoad& b) {
        return policy_ == PathPolicy::MinInflight ? a.inflight < b.inflight : a.latency < b.latency;
    };
    std::optional<std::size_t> best;
    for (std::size_t i = 0; i < paths.size(); ++i)
        if (paths[i].usable && (!best || better(paths[i], paths[*best]))) best = i;
    return best;
}

std::optional<std::size_t> PathChooser::next_in_turn(std::span<const PathLoad> paths) {
    for (std::size_t step = 0; step < paths.size(); ++step) {
        const std::size_t at = (turn_ + step) % paths.size();
        if (!paths[at].usable) continue;
        turn_ = at + 1;
        return at;
    }
    return std::nullopt;
}

}  // namespace feroce::rtrs
