// The words in which `feroce session` and a program with sessions speak with each other.
//
// A request is words separated by NUL: one of those below, then what it is about. The answer is
// lines: `ok`, or `error` and a sentence. After `ok` of Show come records: a line `session NAME`
// begins one, `path NUMBER` begins one of its paths, and every other line is a key and a value.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "feroce/rtrs/options.hpp"
#include "feroce/rtrs/statistics.hpp"

namespace feroce::rtrs {

// Sockets are PREFIX PID - NUMBER in the user's directory.
inline constexpr std::string_view kDoorPrefix = "session-";

namespace control {

inline constexpr std::string_view kShow = "show";               // [SESSION]
inline constexpr std::string_view kAddPath = "add-path";        // SESSION DESTINATION [SOURCE]
inline constexpr std::string_view kRemovePath = "remove-path";  // SESSION NUMBER
inline constexpr std::string_view kDisconnect = "disconnect";   // SESSION NUMBER
inline constexpr std::string_view kReconnect = "reconnect";     // SESSION NUMBER
inline constexpr std::string_view kPolicy = "policy";           // SESSION POLICY

inline constexpr std::string_view kOk = "ok";
inline constexpr std::string_view kError = "error";

}  // namespace control

constexpr std::string_view name_of(PathPolicy policy) {
    constexpr std::array<std::string_view, 4> kNames{"round-robin", "min-inflight", "min-latency",
                                                     "fill-first"};
    return kNames[static_cast<std::size_t>(policy)];
}

constexpr std::optional<PathPolicy> policy_of(std::string_view name) {
    for (const auto policy : {PathPolicy::RoundRobin, PathPolicy::MinInflight,
                              PathPolicy::MinLatency, PathPolicy::FillFirst})
        if (name_of(policy) == name) return policy;
    return std::nullopt;
}

constexpr std::string_view name_of(PathState state) {
    constexpr std::array<std::string_view, 4> kNames{"connecting", "connected", "waiting",
                                                     "disconnected"};
    return kNames[static_cast<std::size_t>(state)];
}

}  // namespace feroce::rtrs
