#include "process/event_counter.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

namespace feroce::process {
namespace {

// What was counted; 0 with errno set if that is nothing. By syscall(): no cancellation point. The
// blocking mode is the program's choice: hence NOWAIT. An offset of -1, in both its words, is none.
std::uint64_t read_now(int fd) {
    std::uint64_t count = 0;
    iovec vec{&count, sizeof count};
    return ::syscall(SYS_preadv2, fd, &vec, 1, -1L, -1L, RWF_NOWAIT) == sizeof count ? count : 0;
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
    fd_ = ::eventfd(0, EFD_CLOEXEC);
    if (fd_ >= 0) own_ = ::fcntl(fd_, F_DUPFD_CLOEXEC, 0);
    if (own_ < 0) return Error{errno, "no file descriptor for events"};
    return {};
}

void EventCounter::write() {
    if (own_ < 0) return;
    const std::uint64_t one = 1;
    // Under locks, hence by syscall(): no cancellation point.
    ::syscall(SYS_write, own_, &one, sizeof one);
    ++written_;
    taken_since_ = false;
}

// Readers take counts without the lock, so what was written may be read already. A program that
// waits for edges and has taken one event for the last of them needs another.
void EventCounter::post() {
    if (own_ < 0) return;
    if (written_ == 0 || taken_since_ || readers_.load() != 0) write();
    if (Waiter* fibers = waiter.load(std::memory_order_relaxed)) fibers->on_event();
}

// What a reader took and has not told of yet stays counted until it does.
void EventCounter::clear() {
    if (own_ >= 0 && written_ > 0) was_read(read_now(own_));
}

void EventCounter::taken(std::uint64_t count, bool more) {
    was_read(count);
    taken_since_ = true;
    if (!more) return clear();
    const std::uint32_t others = readers_.load() - (count > 0 ? 1 : 0);
    if (written_ > 0 && others == 0) return;
    write();
    if (Waiter* fibers = waiter.load(std::memory_order_relaxed)) fibers->on_event();
}

namespace {

std::uint64_t take_event_by_polling(int fd, Waiter& fibers) {
    for (;;) {
        if (const std::uint64_t count = read_now(fd)) return count;
        if (errno != EAGAIN || (::fcntl(fd, F_GETFL) & O_NONBLOCK) != 0) return 0;
        fibers.wait_for_event();
    }
}

}  // namespace

std::uint64_t take_event(int fd) {
    if (Waiter* fibers = waiter.load(std::memory_order_relaxed))
        return take_event_by_polling(fd, *fibers);
    std::uint64_t count = 0;
    return ::read(fd, &count, sizeof count) == sizeof count ? count : 0;
}

}  // namespace feroce::process
