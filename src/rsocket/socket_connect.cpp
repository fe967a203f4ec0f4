// How an rsocket becomes connected, and how it ends.
#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/uncancelled.hpp"
#include "rsocket/socket.hpp"

namespace feroce::rsockets {
namespace {

// As rdma-core's: the first try of resolving takes a second at most, each of six more twice as
// long.
constexpr int kFirstResolveMs = 1000;
constexpr int kResolveTries = 6;
// A queue pair asks again so often; 7 for receives that are not there is for ever.
constexpr std::uint8_t kRetries = 7;

int errno_of(const rdma_cm_event& event, int otherwise) {
    return event.status < 0 ? -event.status : otherwise;
}

rdma_conn_param with_greeting(rdma_conn_param parameters, const Greeting::Bytes& bytes) {
    parameters.private_data = bytes.data();
    parameters.private_data_len = bytes.size();
    return parameters;
}

// Copied, because the functions of rdma_cm take an address that they may change.
Result<sockaddr_storage> checked(const sockaddr* address, socklen_t length) {
    if (address == nullptr || length < sizeof(sockaddr_in)) return Error{EINVAL, "no address"};
    const bool v6 = address->sa_family == AF_INET6;
    if (!v6 && address->sa_family != AF_INET)
        return Error{EAFNOSUPPORT, "rsockets have IPv4 and IPv6 addresses"};
    if (v6 && length < sizeof(sockaddr_in6)) return Error{EINVAL, "the address is cut off"};
    sockaddr_storage copy{};
    std::memcpy(&copy, address, v6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
    return copy;
}

sockaddr* plain(sockaddr_storage& address) {
    return reinterpret_cast<sockaddr*>(&address);
}

}  // namespace

// ---- before there is a peer

Result<void> Socket::apply_id_options() {
    if (id_ == nullptr && rdma_create_id(channel_, &id_, this, RDMA_PS_TCP) != 0) {
        id_ = nullptr;
        return Error{errno, "no rdma_cm id"};
    }
    int on = 1;
    if (options_.reuse_address)
        rdma_set_option(id_, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on);
    if (options_.v6_only)
        rdma_set_option(id_, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof on);
    return {};
}

Result<void> Socket::bind(const sockaddr* address, socklen_t length) {
    const Lock lock(mutex_);
    Result<sockaddr_storage> to = checked(address, length);
    if (!to) return to.error();
    if (phase_ != Phase::Fresh || bound_) return Error{EINVAL, "the rsocket has an address"};
    if (Result<void> made = apply_id_options(); !made) return made;
    if (rdma_bind_addr(id_, plain(*to)) != 0) return Error{errno, "the address cannot be bound"};
    bound_ = true;
    return {};
}

Result<void> Socket::listen(int backlog) {
    const Lock lock(mutex_);
    if (phase_ == Phase::Listening) return {};
    if (phase_ != Phase::Fresh) return Error{EINVAL, "the rsocket has a peer"};
    if (Result<void> made = apply_id_options(); !made) return made;
    sockaddr_storage any{};
    any.ss_family = AF_INET;
    if (!bound_ && rdma_bind_addr(id_, plain(any)) != 0) return Error{errno, "no port is free"};
    bound_ = true;
    if (rdma_listen(id_, backlog) != 0) return Error{errno, "the rsocket cannot listen"};
    phase_ = Phase::Listening;
    return {};
}

// ---- the passive side

void Socket::on_request(const rdma_cm_event& event) {
    Request request;
    request.id = event.id;
    request.parameters = event.param.conn;
    request.greeting =
        Greeting::parse({static_cast<const std::byte*>(event.param.conn.private_data),
                         event.param.conn.private_data_len});
    requests_.push_back(request);
}

void Socket::drop_requests() {
    for (const Request& request : requests_) {
        rdma_reject(request.id, nullptr, 0);
        rdma_destroy_id(request.id);
    }
    requests_.clear();
}

Result<std::shared_ptr<Endpoint>> Socket::accept() {
    Lock lock(mutex_);
    const Deadline deadline = deadline_of(options_.receive_timeout);
    for (;;) {
        if (phase_ != Phase::Listening) return Error{EINVAL, "the rsocket does not listen"};
        if (const int code = wait(lock, blocking_, deadline, &Socket::has_request); code != 0)
            return Error{code, "no connection to accept"};
        if (requests_.empty()) continue;
        Result<std::shared_ptr<Socket>> made = take_request();
        // One that speaks something else is no connection, and no failure of this call.
        if (made) return std::shared_ptr<Endpoint>(std::move(*made));
        if (made.error().code != EPROTO) return made.error();
    }
}

// The socket of the oldest request. A cancellation waits: the request's id has no owner meanwhile.
// Without a socket the request is kept, as the kernel keeps one when descriptors run out.
Result<std::shared_ptr<Socket>> Socket::take_request() {
    const Uncancelled part;
    Result<std::shared_ptr<Socket>> made = Socket::create(true);
    if (!made) return made;
    const Request request = requests_.front();
    requests_.pop_front();
    const Lock inner((*made)->mutex_);
    const Result<void> done = (*made)->answer(request, options_);
    if (done) return made;
    rdma_reject(request.id, nullptr, 0);
    if ((*made)->id_ == nullptr) rdma_destroy_id(request.id);
    return done.error();
}

// Becomes the socket of a request. The peer learns where to write by the private data of the reply.
Result<void> Socket::answer(const Request& request, const Options& options) {
    if (!request.greeting) return Error{EPROTO, "the peer speaks another protocol"};
    if (rdma_migrate_id(request.id, channel_) != 0) return Error{errno, "the id cannot be moved"};
    id_ = request.id;
    options_ = options;
    Result<std::unique_ptr<Link>> link = Link::create(id_, options_);
    if (!link) return link.error();
    link_ = std::move(*link);
    if (Result<void> met = link_->stream().meet(*request.greeting); !met) return met;
    const Greeting::Bytes bytes = link_->stream().greeting().emit();
    rdma_conn_param parameters = with_greeting(request.parameters, bytes);
    if (rdma_accept(id_, &parameters) != 0) return Error{errno, "the request cannot be accepted"};
    phase_ = Phase::Open;
    return {};
}

// ---- the active side

Result<void> Socket::connect(const sockaddr* address, socklen_t length) {
    Lock lock(mutex_);
    const Deadline deadline = deadline_of(options_.send_timeout);
    progress();
    if (phase_ == Phase::Open) return Error{EISCONN, "the rsocket is connected"};
    if (phase_ == Phase::Fresh) {
        Result<sockaddr_storage> to = checked(address, length);
        if (!to) return to.error();
        peer_ = *to;
        if (Result<void> made = apply_id_options(); !made) return made;
        if (Result<void> begun = begin_resolving(); !begun) return begun;
    } else if (phase_ == Phase::Listening) {
        return Error{EOPNOTSUPP, "the rsocket listens"};
    } else if (phase_ != Phase::Failed && !blocking_) {
        return Error{EALREADY, "the rsocket is connecting"};
    }
    const int code = wait(lock, blocking_, deadline, &Socket::is_settled);
    if (code != 0) return Error{code == EAGAIN ? EINPROGRESS : code, "connecting"};
    if (failure() == 0) return {};
    reported_ = failure();
    return Error{failure(), "the peer was not reached or refused"};
}

Result<void> Socket::begin_resolving() {
    const int timeout = kFirstResolveMs << resolve_tries_;
    if (rdma_resolve_addr(id_, nullptr, plain(peer_), timeout) != 0)
        return Error{errno, "the address cannot be resolved"};
    phase_ = Phase::Resolving;
    return {};
}

bool Socket::retry_resolving(int code) {
    if (code != ETIMEDOUT || resolve_tries_ == kResolveTries) return false;
    ++resolve_tries_;
    if (phase_ == Phase::Resolving) return begin_resolving().has_value();
    return rdma_resolve_route(id_, kFirstResolveMs << resolve_tries_) == 0;
}

Result<void> Socket::begin_connecting() {
    Result<std::unique_ptr<Link>> link = Link::create(id_, options_);
    if (!link) return link.error();
    link_ = std::move(*link);
    const Greeting::Bytes bytes = link_->stream().greeting().emit();
    rdma_conn_param parameters{};
    parameters.flow_control = 1;
    parameters.retry_count = kRetries;
    parameters.rnr_retry_count = kRetries;
    parameters = with_greeting(parameters, bytes);
    if (rdma_connect(id_, &parameters) != 0) return Error{errno, "no request can be sent"};
    phase_ = Phase::Connecting;
    return {};
}

void Socket::on_established(const rdma_cm_event& event) {
    if (phase_ == Phase::Connecting) {
        const rdma_conn_param& told = event.param.conn;
        const std::optional<Greeting> greeting = Greeting::parse(
            {static_cast<const std::byte*>(told.private_data), told.private_data_len});
        if (!greeting || !link_->stream().meet(*greeting)) {
            rdma_disconnect(id_);
            return fail(ENOTSUP);
        }
        phase_ = Phase::Open;
    }
    if (phase_ == Phase::Open) link_->stream().open(link_->outlet());
}

// ---- events

void Socket::on_event(const rdma_cm_event& event) {
    switch (event.event) {
        case RDMA_CM_EVENT_ADDR_RESOLVED:
            phase_ = Phase::Routing;
            if (rdma_resolve_route(id_, kFirstResolveMs) != 0) fail(errno);
            return;
        case RDMA_CM_EVENT_ROUTE_RESOLVED:
            if (Result<void> begun = begin_connecting(); !begun) fail(begun.error().code);
            return;
        case RDMA_CM_EVENT_ADDR_ERROR:
        case RDMA_CM_EVENT_ROUTE_ERROR: {
            const int code = errno_of(event, EHOSTUNREACH);
            if (!retry_resolving(code)) fail(code);
            return;
        }
        case RDMA_CM_EVENT_CONNECT_REQUEST:
            return on_request(event);
        case RDMA_CM_EVENT_ESTABLISHED:
            return on_established(event);
        case RDMA_CM_EVENT_TIMEWAIT_EXIT:
        case RDMA_CM_EVENT_ADDR_CHANGE:
            return;
        default:
            return on_lost(event);
    }
}

void Socket::on_lost(const rdma_cm_event& event) {
    if (phase_ == Phase::Listening) {  // Of a request: its peer has given up.
        const auto gone = std::find_if(requests_.begin(), requests_.end(),
                                       [&](const Request& r) { return r.id == event.id; });
        // It is destroyed when it is accepted or dropped: now the event still counts on it.
        if (gone != requests_.end()) gone->greeting.reset();
        return;
    }
    if (event.event == RDMA_CM_EVENT_REJECTED) return fail(ECONNREFUSED);
    if (event.event == RDMA_CM_EVENT_UNREACHABLE) return fail(errno_of(event, EHOSTUNREACH));
    // What arrived before counts, most of all the peer's word that it ends.
    if (phase_ == Phase::Open) link_->progress();
    fail(ECONNRESET);
    // Ends what we have on its way: the peer's queue pair may be gone, and nobody would
    // acknowledge.
    if (phase_ == Phase::Open && !std::exchange(disconnected_, true)) rdma_disconnect(id_);
}

// ---- the end

Result<void> Socket::check_open() const {
    if (phase_ == Phase::Fresh || phase_ == Phase::Listening)
        return Error{ENOTCONN, "the rsocket has no peer"};
    return {};
}

Result<void> Socket::shut_down(int how) {
    if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR) return Error{EINVAL, "no such side"};
    Lock lock(mutex_);
    progress();
    if (Result<void> open = check_open(); !open) return open;
    if (phase_ != Phase::Open) return Error{ENOTCONN, "the rsocket has no peer"};
    Stream& stream = link_->stream();
    if (how == SHUT_RD) stream.shut_reading(link_->outlet());
    if (how == SHUT_WR) stream.shut_writing(link_->outlet());
    if (how == SHUT_RDWR || !stream.is_connected()) say_farewell(lock);
    return {};
}

// All that was sent arrives before the connection ends. Each step ends by an event: an
// acknowledgement, or the queue pair's failure.
void Socket::say_farewell(Lock& lock) {
    while (wait(lock, true, std::nullopt, &Socket::is_settled) == EINTR) continue;
    link_->stream().disconnect(link_->outlet());
    while (wait(lock, true, std::nullopt, &Socket::is_quiet) == EINTR) continue;
    if (std::exchange(disconnected_, true)) return;  // Another thread was quicker.
    rdma_disconnect(id_);
}

void Socket::close() {
    Lock lock(mutex_);
    progress();
    if (phase_ == Phase::Open) say_farewell(lock);
    if (phase_ != Phase::Listening) return;
    drop_requests();
    phase_ = Phase::Failed;
    error_ = EBADF;
}

}  // namespace feroce::rsockets
