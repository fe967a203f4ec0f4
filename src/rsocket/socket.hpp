// Socket: what is behind the descriptor of an rsocket: an rdma_cm id with an event channel, and
// once it connects, a Link. The descriptor is the event channel's. No thread of ours: whoever calls
// moves the connection on, and a call that waits sleeps on the two descriptors that anything new
// makes readable.
//
// Several threads may wait for one socket, some in rpoll(). Each looks at the same descriptors, so
// a thread that takes what made one readable would leave the others asleep. Therefore it is taken
// by the last sleeper that leaves, and nobody goes to sleep in between (`stale_`).
#pragma once

#include <poll.h>
#include <rdma/rdma_cma.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/result.hpp"
#include "rsocket/link.hpp"
#include "rsocket/options.hpp"

namespace feroce::rsockets {

using Clock = std::chrono::steady_clock;
using Deadline = std::optional<Clock::time_point>;  // None: for ever.

// Of SO_RCVTIMEO or SO_SNDTIMEO.
inline Deadline deadline_of(std::chrono::microseconds timeout) {
    if (timeout.count() == 0) return std::nullopt;
    return Clock::now() + timeout;
}

class Socket {
public:
    static Result<std::shared_ptr<Socket>> create(bool blocking);
    ~Socket();
    Socket(const Socket&) = delete;
    Socket& operator=(const Socket&) = delete;

    int descriptor() const { return channel_->fd; }

    Result<void> bind(const sockaddr* address, socklen_t length);
    Result<void> listen(int backlog);
    Result<std::shared_ptr<Socket>> accept();
    Result<void> connect(const sockaddr* address, socklen_t length);
    Result<void> shut_down(int how);
    void close();  // Says farewell; the last one that uses the socket frees it.

    Result<std::size_t> send(Places from, int flags);
    Result<std::size_t> receive(std::span<const iovec> to, int flags);

    Result<void> local_name(sockaddr* address, socklen_t* length);
    Result<void> peer_name(sockaddr* address, socklen_t* length);
    Result<void> set_option(int level, int name, const void* value, socklen_t length);
    Result<void> get_option(int level, int name, void* value, socklen_t* length);
    bool is_blocking();
    void set_blocking(bool blocking);

    // Memory that the peer may write (iomap.cpp).
    Result<off_t> map(void* memory, std::size_t length, int protection, off_t offset);
    Result<void> unmap(void* memory, std::size_t length);
    Result<std::size_t> write_mapped(ByteView from, off_t offset, int flags);

    // For rpoll(). Which of the wanted events are there now; with `arm`, those that come later
    // wake a sleeper.
    short ready(short wanted, bool arm);
    // Joins the sleepers and appends the descriptors to sleep on. False: not now, await_drained().
    bool begin_sleep(std::vector<pollfd>& on);
    void end_sleep(bool woken);
    void await_drained();
    std::chrono::microseconds polling_time();
    // When a sleeper should get up to ask whether the peer is there, from now; none if never.
    std::optional<std::chrono::seconds> keep_alive_after();
    void keep_alive();

private:
    enum class Phase : std::uint8_t {
        Fresh,
        Listening,
        Resolving,
        Routing,
        Connecting,
        Open,
        Failed
    };
    using Lock = std::unique_lock<std::mutex>;

    struct Request {
        rdma_cm_id* id = nullptr;
        rdma_conn_param parameters{};
        std::optional<Greeting> greeting;
    };
    struct Mapped {
        ibv_mr* region = nullptr;
        std::uint32_t index = 0;
    };

    explicit Socket(rdma_event_channel* channel, bool blocking);

    // All below: with the lock held.
    void progress();
    void take_events();
    void on_event(const rdma_cm_event& event);
    void on_request(const rdma_cm_event& event);
    void on_established(const rdma_cm_event& event);
    void on_lost(const rdma_cm_event& event);
    bool retry_resolving(int code);
    Result<void> begin_resolving();
    Result<void> begin_connecting();
    Result<std::shared_ptr<Socket>> take_request();
    Result<void> answer(const Request& request, const Options& options);
    Result<void> apply_id_options();
    void fail(int code);
    void drop_requests();
    short ready_now() const;
    int failure() const;  // Of the stream or before it; 0 if none.
    Result<void> check_open() const;
    void say_farewell(Lock& lock);
    std::optional<std::uint32_t> free_mapping_index() const;

    // What a call waits for; each is also true when it would wait in vain.
    bool is_settled() const;
    bool has_request() const;
    bool can_read() const;
    bool can_write() const;
    bool can_write_mapped() const;
    bool is_quiet() const;

    // Moves on until `done`; the errno that ended it otherwise: EAGAIN, EINTR.
    using Done = bool (Socket::*)() const;
    int wait(Lock& lock, bool blocking, Deadline deadline, Done done);
    int sleep(Lock& lock, Deadline deadline);
    void leave_sleep(bool woken);
    class Sleeping;

    std::mutex mutex_;  // Guards all but the channel's descriptor.
    std::condition_variable drained_;
    int sleepers_ = 0;
    bool stale_ = false;  // A descriptor is readable by something that a sleeper has seen.
    std::uint32_t looks_ = 0;

    rdma_event_channel* channel_;
    rdma_cm_id* id_ = nullptr;
    Phase phase_ = Phase::Fresh;
    bool blocking_;
    int error_ = 0;     // Why the phase is Failed.
    int reported_ = 0;  // For SO_ERROR, which tells of a failure once.
    int resolve_tries_ = 0;
    bool bound_ = false;
    bool disconnected_ = false;  // rdma_disconnect() was called.
    sockaddr_storage peer_{};
    Options options_;
    std::unique_ptr<Link> link_;
    std::deque<Request> requests_;
    std::vector<Mapped> mapped_;
};

}  // namespace feroce::rsockets
