// What calls, arrivals and timers share: sending and sending again, and the ways a connection ends.
#include <algorithm>

#include "cm/connection_manager.hpp"

namespace feroce::cm {

namespace {

// The peer's manager answers a DREQ itself and at once, so silence is a loss: it is repeated soon,
// then ever less often. After eight times, 13 s, the peer is taken for dead; with a fifth of all
// frames lost, one live peer in 3,500 is.
constexpr Duration kDreqGap = timeout_of(14);  // 67 ms.
constexpr std::uint8_t kDreqRetries = 7;

std::uint8_t retries_of(const Connection& c) {
    return c.state == State::DreqSent ? std::min(c.max_retries, kDreqRetries) : c.max_retries;
}

Duration patience_of(const Connection& c) {
    if (c.state != State::DreqSent) return c.response_timeout;
    return std::min(c.response_timeout, kDreqGap * (1 << (retries_of(c) - c.retries_left)));
}

}  // namespace

void ConnectionManager::transmit(const Connection& c) {
    ++counters_.sent;
    port_.send(c.path.local, c.path.remote, c.last_mad);
}

void ConnectionManager::replay(Instant now, Connection& c) {
    ++counters_.replayed;
    transmit(c);
    // The peer has not heard our last word yet, so it is kept for another while.
    if (c.state == State::Timewait) linger(now, c);
}

void ConnectionManager::await_answer(Instant now, Connection& c) {
    c.retries_left = retries_of(c);
    table_.set_deadline(c, now + patience_of(c));
}

void ConnectionManager::send_dreq(Instant now, Connection& c) {
    c.state = State::DreqSent;
    c.transaction = c.local_id.raw;
    send(c, wire::CmDreq{
                .local_id = c.local_id, .remote_id = c.remote_id, .remote_qpn = c.remote_qpn});
    await_answer(now, c);
}

void ConnectionManager::send_rej(Connection& c, const RejectOptions& options) {
    wire::CmRej rej{.local_id = c.local_id,
                    .remote_id = c.remote_id,
                    .answered = wire::CmAnswered::Other,
                    .reason = options.reason};
    if (c.state == State::ReqReceived) rej.answered = wire::CmAnswered::Req;
    if (c.state == State::RepReceived) rej.answered = wire::CmAnswered::Rep;
    rej.additional_info_size = static_cast<std::uint8_t>(options.additional_info.size());
    std::copy(options.additional_info.begin(), options.additional_info.end(),
              rej.additional_info.begin());
    if (options.reason == RejectReason::Timeout) {
        // IBTA: a timeout names the sender's adapter, as the peer may not know our id.
        rej.additional_info_size = 8;
        store_be64(std::span(rej.additional_info).first<8>(), config_.ca_guid);
    }
    std::copy(options.private_data.begin(), options.private_data.end(), rej.private_data.begin());
    send(c, rej);
}

void ConnectionManager::send_sidr_rep(Instant now, Connection& c, const SidrReplyOptions& options) {
    wire::CmSidrRep rep{.request_id = c.remote_id,
                        .status = options.status,
                        .qpn = options.qpn,
                        .service_id = c.service,
                        .qkey = options.qkey};
    std::copy(options.private_data.begin(), options.private_data.end(), rep.private_data.begin());
    send(c, rep);
    linger(now, c);
}

void ConnectionManager::run(Instant now) {
    expire_waiting(now);
    counters_.sent += farewells_.run(now, port_);
    ask_suspects(now);
    while (Connection* c = table_.expired(now)) on_deadline(now, *c);
}

Instant ConnectionManager::next_wakeup() const {
    const Instant waiting = waiting_.empty() ? kNever : waiting_.front().until;
    const Instant suspects = suspects_.empty() ? kNever : suspects_due_;
    return std::min({waiting, suspects, table_.next_deadline(), farewells_.next_wakeup()});
}

void ConnectionManager::on_deadline(Instant now, Connection& c) {
    if (c.state == State::Timewait) {
        if (c.was_connected) tell(c, {.type = EventType::TimewaitExit});
        return close(c);
    }
    if (c.state == State::Established) return keep_alive(now, c);
    if (c.retries_left == 0) return give_up(now, c);
    --c.retries_left;
    ++counters_.retried;
    transmit(c);
    table_.set_deadline(c, now + patience_of(c));
}

void ConnectionManager::give_up(Instant now, Connection& c) {
    if (c.state == State::DreqSent) return end_connected(now, c, true);
    tell(c, {.type = EventType::Unreachable, .service = c.service});
    if (c.state == State::SidrReqSent) return close(c);
    ASSERT(c.state == State::ReqSent || c.state == State::RepSent);
    send_rej(c, {.reason = RejectReason::Timeout});
    linger(now, c);
}

void ConnectionManager::become_established(Instant now, Connection& c) {
    c.state = State::Established;
    note_heard(now, c);
    tell(c, {.type = EventType::Established});
}

// Our last word (REJ, SIDR_REP) is kept for a peer that repeats its question. The Linux kernel does
// so every 1.5 response timeouts, so two of them may be lost before the user is asked again.
void ConnectionManager::linger(Instant now, Connection& c) {
    enter_timewait(c, now + 4 * timeout_of(config_.response_timeout));
}

void ConnectionManager::end_connected(Instant now, Connection& c, bool timed_out) {
    c.was_connected = true;
    tell(c, {.type = EventType::Disconnected, .timed_out = timed_out});
    enter_timewait(c, now + 2 * timeout_of(c.path.ack_timeout));
}

void ConnectionManager::enter_timewait(Connection& c, Instant until) {
    c.state = State::Timewait;
    unbind(c);
    settle(c);
    table_.set_deadline(c, until);
}

void ConnectionManager::close(Connection& c) {
    c.state = State::Closed;
    unbind(c);
    settle(c);
    table_.unlink(c);
    if (c.released) table_.erase(c);
}

void ConnectionManager::bind(Connection& c) {
    c.bound = true;
    sink_.on_bound({.local_id = c.local_id,
                    .remote_id = c.remote_id,
                    .remote_qpn = c.remote_qpn,
                    .local = c.path.local,
                    .remote = c.path.remote});
}

void ConnectionManager::unbind(Connection& c) {
    if (!c.bound) return;
    c.bound = false;
    sink_.on_unbound(c.local_id);
}

void ConnectionManager::settle(Connection& c) {
    if (!c.in_backlog) return;
    c.in_backlog = false;
    if (Listener* listener = listeners_.find(c.listener)) --listener->pending;
}

void ConnectionManager::tell(const Connection& c, Event event) {
    if (c.released) return;
    event.connection = c.local_id;
    event.listener = c.listener;
    event.path = c.path;
    sink_.on_event(event);
}

const char* to_string(EventType type) {
    switch (type) {
        case EventType::ConnectRequest:
            return "ConnectRequest";
        case EventType::ConnectResponse:
            return "ConnectResponse";
        case EventType::Established:
            return "Established";
        case EventType::Rejected:
            return "Rejected";
        case EventType::Unreachable:
            return "Unreachable";
        case EventType::Disconnected:
            return "Disconnected";
        case EventType::TimewaitExit:
            return "TimewaitExit";
        case EventType::SidrRequest:
            return "SidrRequest";
        case EventType::SidrResponse:
            return "SidrResponse";
        case EventType::AddressRemoved:
            return "AddressRemoved";
    }
    ASSERT(false);
}

}  // namespace feroce::cm
