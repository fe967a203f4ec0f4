// Waiting for an epoll set or a descriptor until a moment, to the nanosecond.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <span>

#include "base/time.hpp"
#include "port/fd.hpp"

namespace feroce::port {

// How many of `events` were filled; not positive if none was, in time or because of a signal.
int wait_for_events(int set, std::span<epoll_event> events, Instant until);
// The same by two calls, for kernels before 5.11 and valgrind: they have no epoll_pwait2.
int poll_for_events(int set, std::span<epoll_event> events, Instant until);

// Whether there is something to read before that moment. A signal that the program handles does not
// end the wait.
bool wait_for_input(int fd, Instant until);

// Adds an fd to an epoll set; `source` comes back in epoll_event::data.
bool add_to_set(int set, int fd, std::uint32_t events, std::uint64_t source);

// Doorbell: what another thread rings to end a wait. Its fd is readable until it is cleared.
class Doorbell {
public:
    bool open();
    int fd() const { return fd_.get(); }
    void ring() const;  // Any thread.
    void clear() const;
    void close() { fd_.reset(); }

private:
    Fd fd_;
};

}  // namespace feroce::port
