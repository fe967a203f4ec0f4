// Waiting for an epoll set until a moment, to the nanosecond.
#pragma once

#include <sys/epoll.h>

#include <span>

#include "base/time.hpp"

namespace feroce::port {

// How many of `events` were filled; not positive if none was, in time or because of a signal.
int wait_for_events(int set, std::span<epoll_event> events, Instant until);
// The same by two calls, for kernels before 5.11 and valgrind: they have no epoll_pwait2.
int poll_for_events(int set, std::span<epoll_event> events, Instant until);

}  // namespace feroce::port
