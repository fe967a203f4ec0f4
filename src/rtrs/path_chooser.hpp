// Applies a PathPolicy to what is known of the paths at this moment.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "feroce/rtrs/options.hpp"

namespace feroce::rtrs {

struct PathLoad {
    bool usable = false;  // Connected, and its connections have room.
    std::uint32_t inflight = 0;
    Duration latency{};  // Of the last heartbeat; zero, and so preferred, before the first.
};

class PathChooser {
public:
    explicit PathChooser(PathPolicy policy) : policy_(policy) {}

    PathPolicy policy() const { return policy_; }
    void set_policy(PathPolicy policy) { policy_ = policy; }

    // Index of the path to take; nullopt if none is usable.
    std::optional<std::size_t> choose(std::span<const PathLoad> paths);

private:
    std::optional<std::size_t> next_in_turn(std::span<const PathLoad> paths);

    PathPolicy policy_;
    std::size_t turn_ = 0;     // Where round-robin looks first.
    std::size_t filling_ = 0;  // The path that fill-first took last.
};

}  // namespace feroce::rtrs
