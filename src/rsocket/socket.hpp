// Socket: a stream: an rdma_cm id with an event channel, and once it connects, a Link. The
// descriptor is the event channel's. How threads wait: endpoint.hpp.
#pragma once

#include <rdma/rdma_cma.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.hpp"
#include "rsocket/endpoint.hpp"
#include "rsocket/link.hpp"

namespace feroce::rsockets {

class Socket final : public Endpoint {
public:
    static Result<std::shared_ptr<Socket>> create(bool blocking);
    ~Socket() override;

    int descriptor() const override { return channel_->fd; }

    Result<void> bind(const sockaddr* address, socklen_t length) override;
    Result<void> listen(int backlog) override;
    Result<std::shared_ptr<Endpoint>> accept() override;
    Result<void> connect(const sockaddr* address, socklen_t length) override;
    Result<void> shut_down(int how) override;
    void close() override;  // Says farewell.

    // As with TCP, the address of a destination is not looked at.
    Result<std::size_t> send(Places from, int flags, const Destination&) override;
    Result<std::size_t> receive(std::span<const iovec> to, int flags,
                                const Sender& sender) override;

    Result<void> local_name(sockaddr* address, socklen_t* length) override;
    Result<void> peer_name(sockaddr* address, socklen_t* length) override;
    Result<void> set_option(int level, int name, const void* value, socklen_t length) override;
    Result<void> get_option(int level, int name, void* value, socklen_t* length) override;

    // Memory that the peer may write (socket_data.cpp).
    Result<off_t> map(void* memory, std::size_t length, int protection, off_t offset) override;
    Result<void> unmap(void* memory, std::size_t length) override;
    Result<std::size_t> write_mapped(ByteView from, off_t offset, int flags) override;

    short ready(short wanted, bool arm_first) override;

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
    void progress() override;
    void arm() override;
    void drain() override;
    void append_descriptors(std::vector<pollfd>& to) const override;
    std::optional<std::chrono::seconds> ask_after() const override;
    void ask() override;
    Result<std::size_t> receive_bytes(std::span<const iovec> to, int flags);
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

    // A call has something to do without a look at what is new, which costs as much as a message.
    // Not many in a row, since the peer waits for acknowledgements, and not after a pause, since it
    // may be gone.
    bool has_unread();
    bool has_room();
    bool may_go_on();

    // What a call waits for; each is also true when it would wait in vain.
    bool is_settled() const;
    bool has_request() const;
    bool can_read() const;
    bool can_write() const;
    bool can_write_mapped() const;
    bool is_quiet() const;

    std::uint32_t looks_ = 0;
    std::uint32_t calls_ = 0;
    std::int64_t looked_at_ = 0;

    rdma_event_channel* channel_;
    rdma_cm_id* id_ = nullptr;
    Phase phase_ = Phase::Fresh;
    int error_ = 0;     // Why the phase is Failed.
    int reported_ = 0;  // For SO_ERROR, which tells of a failure once.
    int resolve_tries_ = 0;
    bool bound_ = false;
    bool disconnected_ = false;  // rdma_disconnect() was called.
    sockaddr_storage peer_{};
    std::unique_ptr<Link> link_;
    std::deque<Request> requests_;
    std::vector<Mapped> mapped_;
};

}  // namespace feroce::rsockets
