#include "rsocket/poll.hpp"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "rsocket/table.hpp"

namespace feroce::rsockets {
namespace {

// One call of rpoll().
class Poll {
public:
    Poll(std::span<pollfd> entries, int timeout_ms) : entries_(entries) {
        if (timeout_ms >= 0) deadline_ = Clock::now() + std::chrono::milliseconds(timeout_ms);
        for (const pollfd& entry : entries) sockets_.push_back(find(entry.fd));
    }

    bool has_sockets() const {
        return std::any_of(sockets_.begin(), sockets_.end(), [](const auto& s) { return s; });
    }

    int run() {
        const Clock::time_point polled = Clock::now() + polling_time();
        do {
            if (const int found = look(false); found != 0) return found;
            if (is_late()) return 0;
        } while (Clock::now() < polled);
        for (;;) {
            if (const int found = look(true); found != 0) return found;
            if (is_late()) return 0;
            if (!sleep()) return -1;
            if (const int found = look(false); found != 0) return found;
        }
    }

private:
    // The sockets whose sleeper this thread is. Leaves them whatever ends the sleep.
    class Sleepers {
    public:
        Sleepers() = default;
        ~Sleepers() {
            for (const Entry& e : entries_) e.socket->end_sleep(is_woken(e));
        }
        Sleepers(const Sleepers&) = delete;
        Sleepers& operator=(const Sleepers&) = delete;

        bool join(Endpoint& socket) {
            entries_.reserve(entries_.size() + 1);
            const std::size_t first = on.size();
            if (!socket.begin_sleep(on)) return false;
            entries_.push_back({&socket, first, on.size()});
            return true;
        }

        std::vector<pollfd> on;

    private:
        struct Entry {
            Endpoint* socket;
            std::size_t first;
            std::size_t last;
        };

        bool is_woken(const Entry& e) const {
            return std::any_of(on.begin() + static_cast<std::ptrdiff_t>(e.first),
                               on.begin() + static_cast<std::ptrdiff_t>(e.last),
                               [](const pollfd& p) { return p.revents != 0; });
        }

        std::vector<Entry> entries_;
    };

    bool is_late() const { return deadline_ && Clock::now() >= *deadline_; }

    std::chrono::microseconds polling_time() const {
        const auto first =
            std::find_if(sockets_.begin(), sockets_.end(), [](auto& s) { return s; });
        return (*first)->polling_time();
    }

    // How many entries have something. The kernel's are asked without waiting.
    int look(bool arm) {
        std::vector<pollfd> plain;
        for (std::size_t i = 0; i < entries_.size(); ++i)
            if (!sockets_[i]) plain.push_back({entries_[i].fd, entries_[i].events, 0});
        if (!plain.empty()) ::poll(plain.data(), plain.size(), 0);
        int found = 0;
        std::size_t next = 0;
        for (std::size_t i = 0; i < entries_.size(); ++i) {
            pollfd& entry = entries_[i];
            entry.revents =
                sockets_[i] ? sockets_[i]->ready(entry.events, arm) : plain[next++].revents;
            if (entry.revents != 0) ++found;
        }
        return found;
    }

    // False: a signal.
    bool sleep() {
        Endpoint* stale = nullptr;
        std::optional<std::chrono::seconds> ask;
        int count = 0;
        int code = 0;
        Deadline until = deadline_;
        {
            Sleepers sleepers;
            for (std::size_t i = 0; i < entries_.size() && stale == nullptr; ++i) {
                if (!sockets_[i])
                    sleepers.on.push_back({entries_[i].fd, entries_[i].events, 0});
                else if (!sleepers.join(*sockets_[i]))
                    stale = sockets_[i].get();
                else if (const auto after = sockets_[i]->keep_alive_after())
                    ask = ask ? std::min(*ask, *after) : after;
            }
            if (ask && (!until || Clock::now() + *ask < *until)) until = Clock::now() + *ask;
            if (stale == nullptr)
                count = ::poll(sleepers.on.data(), sleepers.on.size(), milliseconds_until(until));
            code = errno;
        }
        if (count < 0) {
            errno = code;  // Leaving the sockets may have changed it.
            return false;
        }
        if (stale != nullptr) stale->await_drained();  // Asleep nowhere, so nobody waits for us.
        if (count == 0 && stale == nullptr && until != deadline_) ask_peers();
        return true;
    }

    void ask_peers() {
        for (const std::shared_ptr<Endpoint>& socket : sockets_)
            if (socket && socket->keep_alive_after()) socket->keep_alive();
    }

    std::span<pollfd> entries_;
    std::vector<std::shared_ptr<Endpoint>> sockets_;  // Null: a descriptor of the kernel's.
    Deadline deadline_;
};

int rounded_up(const timeval* timeout) {
    if (timeout == nullptr) return -1;
    constexpr std::int64_t kMost = 1 << 30;
    const std::int64_t seconds = std::clamp<std::int64_t>(timeout->tv_sec, 0, kMost / 1000);
    const std::int64_t microseconds = std::clamp<std::int64_t>(timeout->tv_usec, 0, kMost);
    return static_cast<int>(std::min(seconds * 1000 + (microseconds + 999) / 1000, kMost));
}

bool is_in(const fd_set* set, int descriptor) {
    return set != nullptr && FD_ISSET(descriptor, set);
}

// Leaves in the set what has one of the events; returns 1 if that is this one.
int settle(fd_set* set, const pollfd& entry, int events) {
    if (!is_in(set, entry.fd)) return 0;
    if ((entry.revents & events) != 0) return 1;
    FD_CLR(entry.fd, set);
    return 0;
}

}  // namespace

int poll_all(pollfd* entries, nfds_t count, int timeout_ms) {
    Poll poll({entries, count}, timeout_ms);
    return poll.has_sockets() ? poll.run() : ::poll(entries, count, timeout_ms);
}

int select_all(int count, fd_set* read, fd_set* write, fd_set* except, timeval* timeout) {
    if (count < 0 || count > FD_SETSIZE) {
        errno = EINVAL;
        return -1;
    }
    std::vector<pollfd> entries;
    for (int fd = 0; fd < count; ++fd) {
        int events = is_in(read, fd) ? POLLIN : 0;
        if (is_in(write, fd)) events |= POLLOUT;
        if (is_in(except, fd)) events |= POLLPRI;
        if (events != 0) entries.push_back({fd, static_cast<short>(events), 0});
    }
    const int found = poll_all(entries.data(), entries.size(), rounded_up(timeout));
    if (found < 0) return -1;
    int total = 0;
    for (const pollfd& entry : entries) {
        if ((entry.revents & POLLNVAL) != 0) {
            errno = EBADF;
            return -1;
        }
        total += settle(read, entry, POLLIN | POLLHUP | POLLERR);
        total += settle(write, entry, POLLOUT | POLLERR | POLLHUP);
        total += settle(except, entry, POLLPRI);
    }
    return total;
}

}  // namespace feroce::rsockets
