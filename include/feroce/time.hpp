// Instant and Duration, for every room and for programs. There is no now() here: time comes from a
// Runtime above the waist and only as an argument below port/, and a steady_clock value does not
// convert to an Instant by accident.
#pragma once

#include <chrono>

namespace feroce {

struct Clock {
    using duration = std::chrono::nanoseconds;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<Clock>;
    static constexpr bool is_steady = true;
};

using Duration = Clock::duration;
using Instant = Clock::time_point;

inline constexpr Instant kNever = Instant::max();

}  // namespace feroce
