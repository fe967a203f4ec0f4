#include "process/event_counter.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

namespace feroce::process {
namespace {

// By syscall(): no cancellation point. An offset of -1, in both its words, is none.
bool read_now(int fd) {
    std::uint64_t one;
    iovec vec{&one, sizeof one};
    return ::syscall(SYS_preadv2, fd, &vec, 1, -1L, -1L, RWF_NOWAIT) == sizeof one;
}

}  // namespace

EventCounter::~EventCounter() {
    close();
}

void EventCounter::close() {
    if (fd_ >= 0) ::close(fd_);
    if (own_ >= 0) ::close(own_);
    fd_ = own_ = -1;
}

Result<void> EventCounter::open() {
    fd_ = ::eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
    if (fd_ >= 0) own_ = ::fcntl(fd_, F_DUPFD_CLOEXEC, 0);
    if (own_ < 0) return Error{errno, "no file descriptor for events"};
    return {};
}

void EventCounter::post() {
    if (own_ < 0) return;
    const std::uint64_t one = 1;
    // Under locks, hence by syscall(): no cancellation point.
    ::syscall(SYS_write, own_, &one, sizeof one);
    if (Waiter* fibers = waiter.load(std::memory_order_relaxed)) fibers->on_event();
}

bool EventCounter::retract() {
    if (own_ < 0) return false;
    // The blocking mode is the program's choice and shared with our descriptor: hence NOWAIT.
    return read_now(own_);
}

bool EventCounter::readable() const {
    pollfd polled{own_, POLLIN, 0};
    const timespec now{};
    return ::syscall(SYS_ppoll, &polled, 1, &now, nullptr, 0) > 0;
}

void EventCounter::settle(bool counted, bool more) {
    if (!counted) retract();
    const std::uint32_t others = readers_.load() - (counted ? 1 : 0);
    if (more && others != 0 && !readable()) post();
}

namespace {

bool take_event_by_polling(int fd, Waiter& fibers) {
    while (!read_now(fd)) {
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
