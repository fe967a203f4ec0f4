// EventCounter: the fd behind a completion channel or an async event queue: readable while events
// wait, one read an event. The program sees fd(), may poll it, make it nonblocking or replace it by
// dup2; we signal through a descriptor of our own.
#pragma once

#include <atomic>
#include <cerrno>
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
    // count. Makes good for a reader that took a count and then went away without its event; while
    // nobody reads no count can be missing, and the kernel is not asked.
    void settle(bool counted, bool more);

    // Around take_event() and the taking of the event. One that goes away in between is counted for
    // ever, and then the kernel is asked each time.
    void reader_begins() { readers_.fetch_add(1); }
    void reader_ends() { readers_.fetch_sub(1); }

private:
    bool readable() const;

    int fd_ = -1;
    int own_ = -1;
    // seq_cst, and before the read: a thread that sees its effect on the count sees this as well.
    std::atomic<std::uint32_t> readers_{0};
};

// Waits on `fd` for an event and takes its count; false with errno set (EAGAIN if nonblocking and
// empty). A cancellation point.
bool take_event(int fd);

// How calls fetch events: `take(counted)` takes one from its queue under the queue's lock, false if
// there is none. The wait holds nothing, so that cancelled threads and signal handlers that leave
// by siglongjmp() leave nothing behind. False with errno set as above.
template <class Take>
bool fetch_event(EventCounter& counter, int fd, Take take) {
    for (bool counted = false;; counted = true) {
        {
            const Undisturbed part;
            const bool taken = take(counted);
            if (taken && counted) counter.reader_ends();
            if (taken) return true;
            if (!counted) counter.reader_begins();
        }
        if (take_event(fd)) continue;
        // After a wait that failed the queue may be gone, since programs destroy it under waiters.
        if (errno == EAGAIN) counter.reader_ends();
        return false;
    }
}

}  // namespace feroce::process
