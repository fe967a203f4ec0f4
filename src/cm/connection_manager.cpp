// What the user asks for. Each call checks the state, sends at most one message and leaves the
// rest to receive() and run().
#include "cm/connection_manager.hpp"

#include <algorithm>
#include <cerrno>

namespace feroce::cm {

namespace {

constexpr Error kTooLong{EINVAL, "private data does not fit the message"};
constexpr Error kWrongState{EINVAL, "the connection is not in a state for this"};
constexpr Error kTableFull{ENOMEM, "too many connections, those in timewait included"};

template <std::size_t kBytes>
void fill(std::array<std::byte, kBytes>& field, ByteView bytes) {
    ASSERT(bytes.size() <= kBytes);
    std::copy(bytes.begin(), bytes.end(), field.begin());
}

wire::CmReq make_req(const ConnectOptions& options, const Config& config) {
    const Endpoint& e = options.endpoint;
    const Path& p = options.path;
    wire::CmReq req{.service_id = options.service,
                    .local_ca_guid = config.ca_guid,
                    .local_qkey = e.qkey,
                    .local_qpn = e.qpn,
                    .responder_resources = e.responder_resources,
                    .initiator_depth = e.initiator_depth,
                    .remote_response_timeout = config.response_timeout,
                    .transport = e.transport,
                    .end_to_end_flow_control = e.flow_control,
                    .starting_psn = e.starting_psn,
                    .local_response_timeout = config.response_timeout,
                    .retry_count = e.retry_count,
                    .pkey = p.pkey,
                    .path_mtu = p.mtu,
                    .rnr_retry_count = e.rnr_retry_count,
                    .max_cm_retries = config.max_retries,
                    .srq = e.srq,
                    .primary = {.local_gid = p.local,
                                .remote_gid = p.remote,
                                .flow_label = p.flow_label,
                                .packet_rate = p.packet_rate,
                                .traffic_class = p.traffic_class,
                                .hop_limit = p.hop_limit,
                                .service_level = p.service_level,
                                .local_ack_timeout = p.ack_timeout}};
    if (e.transport == TransportType::Extended)
        req.extended_transport = wire::kExtendedTransportXrc;
    fill(req.private_data, options.private_data);
    return req;
}

wire::CmRep make_rep(const Connection& c, const AcceptOptions& options, std::uint64_t ca_guid) {
    const Endpoint& e = options.endpoint;
    wire::CmRep rep{.local_id = c.local_id,
                    .remote_id = c.remote_id,
                    .local_qkey = e.qkey,
                    .local_qpn = e.qpn,
                    .starting_psn = e.starting_psn,
                    .responder_resources = e.responder_resources,
                    .initiator_depth = e.initiator_depth,
                    .target_ack_delay = e.target_ack_delay,
                    .end_to_end_flow_control = e.flow_control,
                    .rnr_retry_count = e.rnr_retry_count,
                    .srq = e.srq,
                    .local_ca_guid = ca_guid};
    fill(rep.private_data, options.private_data);
    return rep;
}

}  // namespace

ConnectionManager::ConnectionManager(const Config& config, RandomSource& random, MadPort& port,
                                     EventSink& sink)
    : config_(config),
      random_(random),
      phase_(draw_phase(config.keepalive, random)),
      port_(port),
      sink_(sink),
      listeners_(config.max_listeners),
      table_(config.max_connections) {
    // The random part of an id has 24 bits; it must stay easy to find a free one.
    ASSERT(config.max_connections <= 1u << 23);
    ASSERT(config.response_timeout <= kMaxTimeoutExponent && config.max_retries <= 15);
}

Result<ListenerId> ConnectionManager::listen(Instant now, const ListenOptions& options) {
    Result<ListenerId> listener = listeners_.add(options);
    if (listener) serve_waiting(now);
    return listener;
}

void ConnectionManager::unlisten(ListenerId listener) {
    listeners_.remove(listener);
}

Result<CommId> ConnectionManager::connect(Instant now, const ConnectOptions& options) {
    TRY(check_path(options.path));
    if (options.private_data.size() > sizeof(wire::CmReq::private_data)) return kTooLong;
    if (options.endpoint.transport == TransportType::Rd)
        return Error{EINVAL, "reliable datagrams are not supported"};
    if (table_.full()) return kTableFull;
    Connection& c = create(options.path, false);
    c.state = State::ReqSent;
    c.service = options.service;
    c.local_qpn = options.endpoint.qpn;
    wire::CmReq req = make_req(options, config_);
    req.local_id = c.local_id;
    await_answer(now, c);
    send(c, req);
    return c.local_id;
}

void ConnectionManager::taken(CommId id) {
    if (const Result<Connection*> connection = held(id)) settle(**connection);
}

Result<void> ConnectionManager::accept(Instant now, CommId id, const AcceptOptions& options) {
    const Result<Connection*> connection = held(id);
    TRY(connection);
    Connection& c = **connection;
    if (options.private_data.size() > sizeof(wire::CmRep::private_data)) return kTooLong;
    if (c.state != State::ReqReceived) return kWrongState;
    c.state = State::RepSent;
    c.local_qpn = options.endpoint.qpn;
    settle(c);
    bind(c);
    send(c, make_rep(c, options, config_.ca_guid));
    await_answer(now, c);
    return {};
}

Result<void> ConnectionManager::reject(Instant now, CommId id, const RejectOptions& options) {
    const Result<Connection*> connection = held(id);
    TRY(connection);
    Connection& c = **connection;
    if (options.private_data.size() > sizeof(wire::CmRej::private_data) ||
        options.additional_info.size() > wire::kAdditionalInfoSize)
        return kTooLong;
    if (c.state != State::ReqReceived && c.state != State::RepReceived && c.state != State::RepSent)
        return kWrongState;
    send_rej(c, options);
    linger(now, c);
    return {};
}

Result<void> ConnectionManager::establish(Instant now, CommId id) {
    const Result<Connection*> connection = held(id);
    TRY(connection);
    Connection& c = **connection;
    if (c.state == State::Established) return {};
    if (c.state == State::RepSent) {
        become_established(now, c);
        return {};
    }
    if (c.state != State::RepReceived)
        return Error{ENOTCONN, "there is no response to establish; the peer may have left"};
    c.state = State::Established;
    note_heard(now, c);
    send(c, wire::CmRtu{.local_id = c.local_id, .remote_id = c.remote_id});
    return {};
}

Result<void> ConnectionManager::ask_for_time(Instant, CommId id, std::uint8_t service_timeout) {
    const Result<Connection*> connection = held(id);
    TRY(connection);
    Connection& c = **connection;
    if (service_timeout > 31) return Error{EINVAL, "a service timeout has five bits"};
    if (c.state != State::ReqReceived && c.state != State::RepReceived) return kWrongState;
    const bool request = c.state == State::ReqReceived;
    send(c, wire::CmMra{.local_id = c.local_id,
                        .remote_id = c.remote_id,
                        .answered = request ? wire::CmAnswered::Req : wire::CmAnswered::Rep,
                        .service_timeout = service_timeout});
    return {};
}

Result<void> ConnectionManager::disconnect(Instant now, CommId id) {
    const Result<Connection*> connection = held(id);
    TRY(connection);
    Connection& c = **connection;
    switch (c.state) {
        case State::Established:
        case State::RepSent:
        case State::RepReceived:
            send_dreq(now, c);
            return {};
        case State::DreqSent:
        case State::Timewait:
        case State::Closed:
            return {};
        default:
            return Error{ENOTCONN, "there is no connection to end"};
    }
}

Result<CommId> ConnectionManager::sidr_request(Instant now, const SidrRequestOptions& options) {
    TRY(check_path(options.path));
    if (options.private_data.size() > sizeof(wire::CmSidrReq::private_data)) return kTooLong;
    if (table_.full()) return kTableFull;
    Connection& c = create(options.path, true);
    c.state = State::SidrReqSent;
    c.service = options.service;
    wire::CmSidrReq req{
        .request_id = c.local_id, .pkey = options.path.pkey, .service_id = options.service};
    fill(req.private_data, options.private_data);
    await_answer(now, c);
    send(c, req);
    return c.local_id;
}

Result<void> ConnectionManager::sidr_reply(Instant now, CommId id,
                                           const SidrReplyOptions& options) {
    const Result<Connection*> connection = held(id);
    TRY(connection);
    Connection& c = **connection;
    if (options.private_data.size() > sizeof(wire::CmSidrRep::private_data)) return kTooLong;
    if (c.state != State::SidrReqReceived) return kWrongState;
    send_sidr_rep(now, c, options);
    return {};
}

void ConnectionManager::release(Instant now, CommId id) {
    const Result<Connection*> connection = held(id);
    if (!connection) return;
    Connection& c = **connection;
    c.released = true;
    switch (c.state) {
        case State::ReqSent:
            send_rej(c, {.reason = RejectReason::Timeout});
            return linger(now, c);
        case State::ReqReceived:
        case State::RepReceived:
        case State::RepSent:
            send_rej(c, {});
            return linger(now, c);
        case State::Established:
            return send_dreq(now, c);
        case State::SidrReqReceived:
            return send_sidr_rep(now, c, {.status = SidrStatus::Rejected});
        case State::SidrReqSent:
        case State::Closed:
            return close(c);
        case State::DreqSent:
        case State::Timewait:
            return;
    }
}

void ConnectionManager::remove_address(const Gid& address) {
    for (const ListenerId listener : listeners_.remove_address(address))
        sink_.on_event({.type = EventType::AddressRemoved, .listener = listener});
    std::erase_if(waiting_, [&](const Waiting& w) { return w.destination == address; });
    table_.for_each([&](Connection& c) {
        if (c.path.local != address) return;
        if (c.state != State::Closed) tell_removed(c);
        close(c);
    });
}

// Besides the cause, the end that the caller waits for: nothing comes after.
void ConnectionManager::tell_removed(Connection& c) {
    if (c.state != State::Timewait) tell(c, {.type = EventType::AddressRemoved});
    switch (c.state) {
        case State::ReqSent:
        case State::RepReceived:
        case State::RepSent:
        case State::SidrReqSent:
            return tell(c, {.type = EventType::Unreachable, .service = c.service});
        case State::Established:
        case State::DreqSent:
            tell(c, {.type = EventType::Disconnected, .timed_out = true});
            return tell(c, {.type = EventType::TimewaitExit});
        case State::Timewait:
            if (c.was_connected) tell(c, {.type = EventType::TimewaitExit});
            return;
        case State::ReqReceived:
        case State::SidrReqReceived:
        case State::Closed:
            return;
    }
}

std::optional<State> ConnectionManager::state(CommId id) const {
    const Connection* c = table_.find(id);
    return c == nullptr ? std::nullopt : std::optional(c->state);
}

Result<void> ConnectionManager::check_path(const Path& path) const {
    if (path.local.is_zero() || path.remote.is_zero())
        return Error{EINVAL, "a path needs both addresses"};
    if (path.remote.is_multicast()) return Error{EINVAL, "cannot connect to a group address"};
    if (path.local.is_v4() != path.remote.is_v4())
        return Error{EAFNOSUPPORT, "the two addresses are of different families"};
    if (path.mtu < 1 || path.mtu > 5) return Error{EINVAL, "a path MTU is 1 (256) to 5 (4096)"};
    return {};
}

Result<Connection*> ConnectionManager::held(CommId id) {
    Connection* c = table_.find(id);
    if (c == nullptr || c->released) return Error{EINVAL, "no such connection"};
    return c;
}

Connection& ConnectionManager::create(const Path& path, bool sidr) {
    constexpr std::uint32_t kLowMask = (1u << kCommIdLowBits) - 1;
    CommId id{};
    do
        id.raw = std::uint32_t{config_.slot} << kCommIdLowBits |
                 static_cast<std::uint32_t>(random_.next() & kLowMask);
    while (id.raw == 0 || table_.find(id) != nullptr);
    Connection& c = table_.insert(id);
    c.path = path;
    c.sidr = sidr;
    c.transaction = id.raw;
    c.response_timeout = timeout_of(config_.response_timeout);
    c.max_retries = config_.max_retries;
    return c;
}

}  // namespace feroce::cm
