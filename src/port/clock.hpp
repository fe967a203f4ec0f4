// The real clock, read here and nowhere below.
#pragma once

#include <ctime>

#include "base/time.hpp"

namespace feroce::port {

inline Instant monotonic_now() {
    timespec t;
    ::clock_gettime(CLOCK_MONOTONIC, &t);
    return Instant(std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec));
}

}  // namespace feroce::port
