// See path_chooser.hpp.
#include "rtrs/path_chooser.hpp"

namespace feroce::rtrs {
namespace {

// Requests that fill-first lets one path have more in flight than another: some segmented sends of
// requests of 4 KiB, of which each holds 15.
constexpr std::uint32_t kLead = 32;

}  // namespace

std::optional<std::size_t> PathChooser::choose(std::span<const PathLoad> paths) {
    if (policy_ == PathPolicy::RoundRobin) return next_in_turn(paths);
    const auto better = [this](const PathLoad& a, const PathLoad& b) {
        return policy_ == PathPolicy::MinLatency ? a.latency < b.latency : a.inflight < b.inflight;
    };
    std::optional<std::size_t> best;
    for (std::size_t i = 0; i < paths.size(); ++i)
        if (paths[i].usable && (!best || better(paths[i], paths[*best]))) best = i;
    if (policy_ != PathPolicy::FillFirst || !best) return best;
    const bool known = filling_ < paths.size() && paths[filling_].usable;
    if (!known || paths[filling_].inflight >= paths[*best].inflight + kLead) filling_ = *best;
    return filling_;
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
