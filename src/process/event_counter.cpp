#include "process/event_counter.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

namespace feroce::process {

EventCounter::~EventCounter() {
    if (fd_ >= 0) ::close(fd_);
    if (own_ >= 0) ::close(own_);
}

Result<void> EventCounter::open() {
    fd_ = ::eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
    if (fd_ >= 0) own_ = ::fcntl(fd_, F_DUPFD_CLOEXEC, 0);
    if (own_ < 0) return Error{errno, "no file descriptor for events"};
    return {};
}

void EventCounter::post() {
    const std::uint64_t one = 1;
    (void)!::write(own_, &one, sizeof one);
}

bool EventCounter::retract() {
    std::uint64_t one;
    iovec vec{&one, sizeof one};
    // The blocking mode is the program's choice and shared with our descriptor: hence NOWAIT.
    return ::preadv2(own_, &vec, 1, -1, RWF_NOWAIT) == sizeof one;
}

bool take_event(int fd) {
    std::uint64_t one;
    return ::read(fd, &one, sizeof one) == sizeof one;
}

}  // namespace feroce::process
