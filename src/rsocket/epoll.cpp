#include "rsocket/epoll.hpp"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "rsocket/endpoint.hpp"
#include "rsocket/poll.hpp"

namespace feroce::rsockets {
namespace {

// The bits that poll() knows; they have the same values there.
constexpr std::uint32_t kPollBits =
    EPOLLIN | EPOLLPRI | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLRDNORM | EPOLLWRNORM | EPOLLRDHUP;

int fail_with(int code) {
    errno = code;
    return -1;
}

struct Interest {
    epoll_event event{};
    bool asleep = false;  // EPOLLONESHOT, and told: until the next EPOLL_CTL_MOD.
};

// A descriptor that wakes one waiter when its set has changed.
class Alarm {
public:
    Alarm() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
    ~Alarm() {
        if (fd_ >= 0) ::close(fd_);
    }
    Alarm(const Alarm&) = delete;
    Alarm& operator=(const Alarm&) = delete;

    int descriptor() const { return fd_; }
    void ring() const { static_cast<void>(::eventfd_write(fd_, 1)); }
    void settle() const {
        eventfd_t unused;
        static_cast<void>(::eventfd_read(fd_, &unused));
    }

private:
    int fd_;
};

class Set {
public:
    // Owns the descriptor, which only gives the set its name.
    explicit Set(int descriptor) : descriptor_(descriptor) {}
    ~Set() {
        if (descriptor_ >= 0) ::close(descriptor_);
    }
    Set(const Set&) = delete;
    Set& operator=(const Set&) = delete;

    int change(int operation, int descriptor, const epoll_event* event);
    int wait(epoll_event* out, int room, int timeout_ms);
    void forget(int descriptor) {
        const std::lock_guard held(mutex_);
        if (interests_.erase(descriptor) != 0) ring();
    }
    void close() {
        const std::lock_guard held(mutex_);
        closed_ = true;
        ring();
    }
    // The program closed the descriptor itself, and its number is another file's by now.
    void abandon() {
        const std::lock_guard held(mutex_);
        descriptor_ = -1;
        closed_ = true;
        ring();
    }

private:
    // Hears of changes while it lives.
    class Waiter {
    public:
        explicit Waiter(Set& set) : set_(set) {
            const std::lock_guard held(set_.mutex_);
            set_.waiters_.push_back(&alarm);
        }
        ~Waiter() {
            const std::lock_guard held(set_.mutex_);
            std::erase(set_.waiters_, &alarm);
        }
        Waiter(const Waiter&) = delete;
        Waiter& operator=(const Waiter&) = delete;
        const Alarm alarm;

    private:
        Set& set_;
    };

    void ring() const {
        for (const Alarm* alarm : waiters_) alarm->ring();
    }
    std::optional<std::vector<pollfd>> entries();
    int collect(const std::vector<pollfd>& entries, epoll_event* out, int room);

    std::mutex mutex_;  // Guards all below.
    int descriptor_;    // -1: abandoned.
    std::map<int, Interest> interests_;
    std::vector<const Alarm*> waiters_;
    int told_last_ = -1;  // Where the next report begins, so that every descriptor has its turn.
    bool closed_ = false;
};

int Set::change(int operation, int descriptor, const epoll_event* event) {
    const std::lock_guard held(mutex_);
    const auto found = interests_.find(descriptor);
    const bool known = found != interests_.end();
    switch (operation) {
        case EPOLL_CTL_ADD:
            if (known) return fail_with(EEXIST);
            interests_[descriptor] = {*event};
            break;
        case EPOLL_CTL_MOD:
            if (!known) return fail_with(ENOENT);
            found->second = {*event};
            break;
        case EPOLL_CTL_DEL:
            if (!known) return fail_with(ENOENT);
            interests_.erase(found);
            break;
        default:
            return fail_with(EINVAL);
    }
    ring();
    return 0;
}

// What to poll; nothing once the set is closed.
std::optional<std::vector<pollfd>> Set::entries() {
    const std::lock_guard held(mutex_);
    if (closed_) return std::nullopt;
    std::vector<pollfd> out;
    for (const auto& [descriptor, interest] : interests_)
        if (!interest.asleep)
            out.push_back({descriptor, static_cast<short>(interest.event.events & kPollBits), 0});
    const auto next = std::find_if(out.begin(), out.end(),
                                   [this](const pollfd& entry) { return entry.fd > told_last_; });
    std::rotate(out.begin(), next, out.end());
    return out;
}

// Of what was ready, that which the set still has.
int Set::collect(const std::vector<pollfd>& entries, epoll_event* out, int room) {
    const std::lock_guard held(mutex_);
    int count = 0;
    for (const pollfd& entry : entries) {
        const auto found = interests_.find(entry.fd);
        if (entry.revents == 0 || found == interests_.end() || found->second.asleep) continue;
        if ((entry.revents & POLLNVAL) != 0) {  // Closed, behind our back.
            interests_.erase(found);
            continue;
        }
        if (count == room) break;
        Interest& interest = found->second;
        // The caller may have changed what it asks for since the poll began.
        const std::uint32_t events = static_cast<std::uint32_t>(entry.revents) & kPollBits &
                                     (interest.event.events | EPOLLERR | EPOLLHUP);
        if (events == 0) continue;
        out[count++] = {events, interest.event.data};
        interest.asleep = (interest.event.events & EPOLLONESHOT) != 0;
        told_last_ = entry.fd;
    }
    return count;
}

int Set::wait(epoll_event* out, int room, int timeout_ms) {
    std::optional<Clock::time_point> end;
    if (timeout_ms >= 0) end = Clock::now() + std::chrono::milliseconds(timeout_ms);
    const Waiter waiter(*this);
    if (waiter.alarm.descriptor() < 0) return -1;
    for (;;) {
        waiter.alarm.settle();
        // After settle(): a close() before it is seen here, a later one rings again.
        std::optional<std::vector<pollfd>> wanted = entries();
        if (!wanted) return fail_with(EBADF);
        std::vector<pollfd>& all = *wanted;
        all.push_back({waiter.alarm.descriptor(), POLLIN, 0});
        int left = -1;
        if (end)
            left = static_cast<int>(std::max<std::int64_t>(
                std::chrono::ceil<std::chrono::milliseconds>(*end - Clock::now()).count(), 0));
        const int ready = poll_all(all.data(), all.size(), left);
        if (ready < 0) return -1;
        all.pop_back();
        if (const int count = collect(all, out, room); count > 0) return count;
        if (ready == 0) return 0;
    }
}

struct Sets {
    std::mutex mutex;
    std::map<int, std::shared_ptr<Set>> sets;
};

// Replaced in a forked child, as the table of rsockets is.
Sets* current_sets = nullptr;

Sets& all_sets() {
    static const bool ready = [] {
        current_sets = new Sets;
        ::pthread_atfork(nullptr, nullptr, [] { current_sets = new Sets; });
        return true;
    }();
    static_cast<void>(ready);
    return *current_sets;
}

std::shared_ptr<Set> find_set(int epoll) {
    Sets& all = all_sets();
    const std::lock_guard held(all.mutex);
    const auto found = all.sets.find(epoll);
    return found == all.sets.end() ? nullptr : found->second;
}

// As epoll: a file is always ready, so that there is nothing to wait for.
int check_descriptor(int descriptor) {
    struct stat facts;
    if (::fstat(descriptor, &facts) != 0) return EBADF;
    return S_ISREG(facts.st_mode) || S_ISDIR(facts.st_mode) ? EPERM : 0;
}

}  // namespace

int make_epoll(int flags) {
    if ((flags & ~EPOLL_CLOEXEC) != 0) return fail_with(EINVAL);
    const int descriptor = ::eventfd(0, (flags & EPOLL_CLOEXEC) != 0 ? EFD_CLOEXEC : 0);
    if (descriptor < 0) return -1;
    auto set = std::make_shared<Set>(descriptor);
    Sets& all = all_sets();
    const std::lock_guard held(all.mutex);
    std::shared_ptr<Set>& place = all.sets[descriptor];
    // A set whose descriptor the program closed by close(2): the number is the new one's.
    if (place != nullptr) place->abandon();
    place = std::move(set);
    return descriptor;
}

int change_epoll(int epoll, int operation, int descriptor, const epoll_event* event) {
    const std::shared_ptr<Set> set = find_set(epoll);
    if (set == nullptr) return fail_with(EBADF);
    if (epoll == descriptor) return fail_with(EINVAL);
    if (operation != EPOLL_CTL_DEL) {
        if (event == nullptr) return fail_with(EFAULT);
        if (const int code = check_descriptor(descriptor); code != 0) return fail_with(code);
    }
    return set->change(operation, descriptor, event);
}

int wait_epoll(int epoll, epoll_event* out, int room, int timeout_ms) {
    const std::shared_ptr<Set> set = find_set(epoll);
    if (set == nullptr) return fail_with(EBADF);
    if (room <= 0) return fail_with(EINVAL);
    if (out == nullptr) return fail_with(EFAULT);
    return set->wait(out, room, timeout_ms);
}

bool close_epoll(int epoll) {
    Sets& all = all_sets();
    std::shared_ptr<Set> closed;
    {
        const std::lock_guard held(all.mutex);
        const auto found = all.sets.find(epoll);
        if (found == all.sets.end()) return false;
        closed = std::move(found->second);
        all.sets.erase(found);
    }
    closed->close();
    return true;
}

void leave_epolls(int descriptor) {
    Sets& all = all_sets();
    const std::lock_guard held(all.mutex);
    for (const auto& [epoll, set] : all.sets) set->forget(descriptor);
}

}  // namespace feroce::rsockets
