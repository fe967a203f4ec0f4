#include "port/event_set.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <ctime>

#include "port/clock.hpp"
#include "port/epoll_calls.hpp"
#include "port/socket_calls.hpp"

namespace feroce::port {
namespace {

// The time from now on.
class Timeout {
public:
    explicit Timeout(Instant until) : endless_(until == kNever) {
        if (endless_) return;
        const Duration left = std::max(until - monotonic_now(), Duration::zero());
        time_.tv_sec = left / std::chrono::seconds(1);
        time_.tv_nsec = (left % std::chrono::seconds(1)).count();
    }
    const timespec* raw() const { return endless_ ? nullptr : &time_; }

private:
    bool endless_;
    timespec time_{};
};

}  // namespace

int poll_for_events(int set, std::span<epoll_event> events, Instant until) {
    pollfd polled{set, POLLIN, 0};
    if (::ppoll(&polled, 1, Timeout(until).raw(), nullptr) <= 0) return 0;
    return kernel_epoll_wait(set, events.data(), static_cast<int>(events.size()), 0);
}

int wait_for_events(int set, std::span<epoll_event> events, Instant until) {
    static std::atomic<bool> missing{false};  // epoll_pwait2. Only ever set, hence relaxed.
    if (!missing.load(std::memory_order_relaxed)) {
        const int count = ::epoll_pwait2(set, events.data(), static_cast<int>(events.size()),
                                         Timeout(until).raw(), nullptr);
        if (count >= 0 || errno != ENOSYS) return count;
        missing.store(true, std::memory_order_relaxed);
    }
    return poll_for_events(set, events, until);
}

bool wait_for_input(int fd, Instant until) {
    for (;;) {
        pollfd polled{fd, POLLIN, 0};
        const int count = ::ppoll(&polled, 1, Timeout(until).raw(), nullptr);
        if (count >= 0 || errno != EINTR) return count > 0;
    }
}

bool add_to_set(int set, int fd, std::uint32_t events, std::uint64_t source) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = source;
    return kernel_epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0;
}

bool Doorbell::open() {
    fd_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    return fd_.valid();
}

void Doorbell::ring() const {
    port::ring(fd_.get());
}

void Doorbell::clear() const {
    std::uint64_t value;
    (void)!::read(fd_.get(), &value, sizeof value);
}

}  // namespace feroce::port
