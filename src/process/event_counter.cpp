#include "process/event_counter.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

#include "process/waiting.hpp"

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
    if (Waiter* fibers = waiter.load(std::memory_order_relaxed)) fibers->on_event();
}

bool EventCounter::retract() {
    std::uint64_t one;
    iovec vec{&one, sizeof one};
    // The blocking mode is the program's choice and shared with our descriptor: hence NOWAIT.
    return ::preadv2(own_, &vec, 1, -1, RWF_NOWAIT) == sizeof one;
}

namespace {

bool take_event_by_polling(int fd, Waiter& fibers) {
    std::uint64_t one;
    iovec vec{&one, sizeof one};
    while (::preadv2(fd, &vec, 1, -1, RWF_NOWAIT) != sizeof one) {
        if (errno != EAGAIN || (::fcntl(fd, F_GETFL) & O_NONBLOCK) != 0) return false;
        fibers.wait_for_event();
    }
    return true;
}

}  // namespace

bool take_event(int fd) {
    if (Waiter* fibers = waiter.load(std::memory_order_relaxed))
        return take_event_by_polling(fd, *fibers);
    std::uint64_t one;
    return ::read(fd, &one, sizeof one) == sizeof one;
}

}  // namespace feroce::process
