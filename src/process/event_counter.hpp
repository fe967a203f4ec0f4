// EventCounter: the fd behind a channel of events: readable while events wait. The program sees
// fd(), may poll it, make it nonblocking or replace it by dup2; we signal through a descriptor of
// our own. What is readable already is not written to again, so a burst of events costs one write
// and one read. Guarded by the lock of its queue, but for what its readers call.
#pragma once

#include <algorithm>
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
    // The descriptors go; nobody may be in another call then. Later ones do nothing: the numbers
    // may be somebody else's.
    void close();
    void post();  // An event was put into the queue.
    // An event was taken from the queue, which holds `more`; `count` is what take_event() took for
    // it, 0 if nothing. Makes good for a reader that took a count and then went away without its
    // event; while nobody reads no count can be missing, and none is written.
    void taken(std::uint64_t count, bool more);
    // So much was taken by take_event(), and there was no event then.
    void was_read(std::uint64_t count) { written_ -= std::min(count, written_); }
    // Events went that nobody will take, and the queue holds `more`.
    void dropped(bool more) {
        if (!more) clear();
    }

    // Around take_event() and the taking of the event. One that goes away in between is counted for
    // ever, and then there is a write for each event.
    void reader_begins() { readers_.fetch_add(1); }
    void reader_ends() { readers_.fetch_sub(1); }

private:
    void write();
    void clear();

    int fd_ = -1;
    int own_ = -1;
    std::uint64_t written_ = 0;  // And not read, as far as we know.
    bool taken_since_ = false;   // An event, since the last write.
    // seq_cst, and before the read: a thread that sees its effect on the count sees this as well.
    std::atomic<std::uint32_t> readers_{0};
};

// Waits on `fd` for an event and takes what was counted; 0 with errno set (EAGAIN if nonblocking
// and empty). A cancellation point.
std::uint64_t take_event(int fd);

// How calls fetch events: `take(count)` takes one from its queue under the queue's lock, false if
// there is none. The wait holds nothing, so that cancelled threads and signal handlers that leave
// by siglongjmp() leave nothing behind. False with errno set as above.
template <class Take>
bool fetch_event(EventCounter& counter, int fd, Take take) {
    for (std::uint64_t count = 0;;) {
        {
            const Undisturbed part;
            const bool taken = take(count);
            if (taken && count > 0) counter.reader_ends();
            if (taken) return true;
            if (count == 0) counter.reader_begins();
        }
        count = take_event(fd);
        if (count > 0) continue;
        // After a wait that failed the queue may be gone, since programs destroy it under waiters.
        if (errno == EAGAIN) counter.reader_ends();
        return false;
    }
}

}  // namespace feroce::process
