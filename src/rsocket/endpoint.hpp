// Endpoint: what is behind the descriptor of an rsocket, be it a stream (Socket) or one of
// datagrams (DatagramSocket): the calls, and how threads wait. No thread of ours: the caller moves
// the rsocket on, and a call that waits sleeps on descriptors that anything new makes readable.
//
// Several threads may wait for one rsocket, some in rpoll(). Each looks at the same descriptors, so
// a thread that takes what made one readable would leave the others asleep. Therefore it is taken
// by the last sleeper that leaves, and no thread goes to sleep in between (`stale_`).
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "rsocket/options.hpp"
#include "rsocket/stream.hpp"

namespace feroce::rsockets {

using Clock = std::chrono::steady_clock;
using Deadline = std::optional<Clock::time_point>;  // None: for ever.

// Of SO_RCVTIMEO or SO_SNDTIMEO.
inline Deadline deadline_of(std::chrono::microseconds timeout) {
    if (timeout.count() == 0) return std::nullopt;
    return Clock::now() + timeout;
}

// As poll() counts: -1 is for ever.
int milliseconds_until(Deadline deadline);

// Writes an address as getsockname() does: cut to the room, with its whole length.
Result<void> copy_name(const sockaddr* from, sockaddr* to, socklen_t* length);

// Where a datagram goes; without an address, to the connected peer.
struct Destination {
    const sockaddr* address = nullptr;
    socklen_t length = 0;
};

// What a receive tells beside the bytes; each may be null.
struct Sender {
    sockaddr* address = nullptr;
    socklen_t* length = nullptr;
    int* flags = nullptr;  // Of recvmsg().
};

class Endpoint {
public:
    virtual ~Endpoint() = default;
    Endpoint(const Endpoint&) = delete;
    Endpoint& operator=(const Endpoint&) = delete;

    virtual int descriptor() const = 0;

    virtual Result<void> bind(const sockaddr* address, socklen_t length) = 0;
    virtual Result<void> connect(const sockaddr* address, socklen_t length) = 0;
    virtual Result<void> shut_down(int how) = 0;
    virtual void close() = 0;  // The last caller that uses the rsocket frees it.
    virtual Result<std::size_t> send(Places from, int flags, const Destination& to) = 0;
    virtual Result<std::size_t> receive(std::span<const iovec> to, int flags,
                                        const Sender& sender) = 0;
    virtual Result<void> local_name(sockaddr* address, socklen_t* length) = 0;
    virtual Result<void> peer_name(sockaddr* address, socklen_t* length) = 0;
    virtual Result<void> set_option(int level, int name, const void* value, socklen_t length) = 0;
    virtual Result<void> get_option(int level, int name, void* value, socklen_t* length) = 0;

    // Of streams only: refused unless overridden.
    virtual Result<void> listen(int backlog);
    virtual Result<std::shared_ptr<Endpoint>> accept();
    virtual Result<off_t> map(void* memory, std::size_t length, int protection, off_t offset);
    virtual Result<void> unmap(void* memory, std::size_t length);
    virtual Result<std::size_t> write_mapped(ByteView from, off_t offset, int flags);

    bool is_blocking();
    void set_blocking(bool blocking);

    // For rpoll(). Which of the wanted events are there now; with `arm`, those that come later
    // wake a sleeper.
    virtual short ready(short wanted, bool arm) = 0;
    // Joins the sleepers and appends the descriptors to sleep on. False: not now, await_drained().
    bool begin_sleep(std::vector<pollfd>& on);
    void end_sleep(bool woken);
    void await_drained();
    std::chrono::microseconds polling_time();
    // When a sleeper should get up to ask whether the peer is there, from now; none if never.
    std::optional<std::chrono::seconds> keep_alive_after();
    void keep_alive();

protected:
    using Lock = std::unique_lock<std::mutex>;

    explicit Endpoint(bool blocking) : blocking_(blocking), options_(default_options()) {}

    // All below: with the lock held.
    virtual void progress() = 0;  // Takes what is new.
    virtual void arm() = 0;       // From now on, what is new makes a descriptor readable.
    virtual void drain() = 0;     // Takes what made the descriptors readable.
    virtual void append_descriptors(std::vector<pollfd>& to) const = 0;
    virtual std::optional<std::chrono::seconds> ask_after() const { return std::nullopt; }
    virtual void ask() {}

    // Moves on until `done`; the errno that ended it otherwise: EAGAIN, EINTR.
    template <class Self>
    int wait(Lock& lock, bool blocking, Deadline deadline, bool (Self::*done)() const);
    bool is_asleep() const { return sleepers_ != 0 || stale_; }

    std::mutex mutex_;  // Guards all but the descriptor.
    bool blocking_;
    Options options_;

private:
    class Sleeping;
    int sleep(Lock& lock, Deadline deadline);
    void leave_sleep(bool woken);

    std::condition_variable drained_;
    int sleepers_ = 0;
    bool stale_ = false;  // A descriptor is readable by something that a sleeper has seen.
};

template <class Self>
int Endpoint::wait(Lock& lock, bool blocking, Deadline deadline, bool (Self::*done)() const) {
    const auto is_done = [&] {
        progress();
        return (static_cast<const Self*>(this)->*done)();
    };
    if (is_done()) return 0;
    if (!blocking) return EAGAIN;
    for (;;) {
        for (const auto until = Clock::now() + options_.polling_time; Clock::now() < until;) {
            lock.unlock();  // Another thread may have something to do.
            lock.lock();
            if (is_done()) return 0;
        }
        arm();
        if (is_done()) return 0;
        if (deadline && Clock::now() >= *deadline) return EAGAIN;
        if (const int code = sleep(lock, deadline); code != 0) return code;
        if (is_done()) return 0;
    }
}

}  // namespace feroce::rsockets
