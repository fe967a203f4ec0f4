// EventCounter: the fd behind a completion channel or an async event queue: readable while events
// wait, one read an event. The program sees fd(), may poll it, make it nonblocking or replace it by
// dup2; we signal through a descriptor of our own.
#pragma once

#include <cstdint>

#include "base/result.hpp"

namespace feroce::process {

class EventCounter {
public:
    EventCounter() = default;
    ~EventCounter();
    EventCounter(const EventCounter&) = delete;
    EventCounter& operator=(const EventCounter&) = delete;

    Result<void> open();
    int fd() const { return fd_; }
    void post();
    // Takes one event back that nobody will collect; false if a reader has taken it already.
    bool retract();

private:
    int fd_ = -1;
    int own_ = -1;
};

// Waits on `fd` for an event and takes it; false with errno set (EAGAIN if nonblocking and empty).
bool take_event(int fd);

}  // namespace feroce::process
