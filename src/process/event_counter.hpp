// EventCounter: the fd behind a completion channel or an async event queue: readable while events
// wait, one read an event. The program sees fd(), may poll it, make it nonblocking or replace it by
// dup2; we signal through a descriptor of our own.
#pragma once

#include <cstdint>

#include "base/result.hpp"
#include "process/undisturbed.hpp"

namespace feroce::process {

class EventCounter {
public:
    EventCounter() = default;
    ~EventCounter();
    EventCounter(const EventCounter&) = delete;
    EventCounter& operator=(const EventCounter&) = delete;

    Result<void> open();
    int fd() const { return fd_; }
    // The descriptors go; nobody may be in post() or retract() then. Later calls do nothing: the
    // numbers may be somebody else's.
    void close();
    void post();
    // Takes one event back that nobody will collect; false if a reader has taken it already.
    bool retract();
    // An event was taken from the queue, which holds `more`; `counted` if take_event() took its
    // count. Makes good for a reader that took a count and then went away without its event.
    void settle(bool counted, bool more);

private:
    bool readable() const;

    int fd_ = -1;
    int own_ = -1;
};

// Waits on `fd` for an event and takes its count; false with errno set (EAGAIN if nonblocking and
// empty). A cancellation point.
bool take_event(int fd);

// How calls fetch events: `take(counted)` takes one from its queue under the queue's lock, false if
// there is none. The wait holds nothing, so that cancelled threads and signal handlers that leave
// by siglongjmp() leave nothing behind. False with errno set as above.
template <class Take>
bool fetch_event(int fd, Take take) {
    for (bool counted = false;; counted = true) {
        {
            const Undisturbed part;
            if (take(counted)) return true;
        }
        if (!take_event(fd)) return false;
    }
}

}  // namespace feroce::process
