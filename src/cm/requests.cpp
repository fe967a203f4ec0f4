// What arrives before there is a connection: REQ and SIDR_REQ, new, repeated, stale, or for a
// service that nobody offers.
#include <algorithm>

#include "base/rollback.hpp"
#include "base/shortage.hpp"
#include "cm/connection_manager.hpp"
#include "wire/cma.hpp"

namespace feroce::cm {

namespace {

// Both requests carry the service id at the same place, behind an id and 32 other bits.
ServiceId service_of(wire::CmView message) {
    return {load_be64(message.subspan<8, 8>())};
}

Path path_of(const wire::CmReq& req, const Gid& local, const Gid& remote) {
    // The addresses are those of the datagram: answers must get there, whatever the REQ says.
    return {.local = local,
            .remote = remote,
            .mtu = req.path_mtu,
            .flow_label = req.primary.flow_label,
            .traffic_class = req.primary.traffic_class,
            .hop_limit = req.primary.hop_limit,
            .service_level = req.primary.service_level,
            .packet_rate = req.primary.packet_rate,
            .ack_timeout = req.primary.local_ack_timeout,
            .pkey = req.pkey};
}

Endpoint peer_of(const wire::CmReq& req) {
    return {.qpn = req.local_qpn,
            .starting_psn = req.starting_psn,
            .transport = req.transport,
            .responder_resources = req.responder_resources,
            .initiator_depth = req.initiator_depth,
            .retry_count = req.retry_count,
            .rnr_retry_count = req.rnr_retry_count,
            .flow_control = req.end_to_end_flow_control,
            .srq = req.srq,
            .qkey = req.local_qkey,
            .target_ack_delay = 0,
            .ca_guid = req.local_ca_guid};
}

bool is_supported(const wire::CmReq& req) {
    switch (req.transport) {
        case TransportType::Rc:
        case TransportType::Uc:
            return true;
        case TransportType::Rd:
            return false;
        case TransportType::Extended:
            return req.extended_transport == wire::kExtendedTransportXrc;
    }
    ASSERT(false);  // The field has two bits.
}

}  // namespace

void ConnectionManager::on_request(const Arrival& a, Patience patience) {
    if (!with_memory([&] { take_request(a, patience); })) drop(Drop::NoMemory);
}

void ConnectionManager::take_request(const Arrival& a, Patience patience) {
    if (a.mad.attribute == wire::CmAttribute::Req)
        on_req(a, patience);
    else
        on_sidr_req(a, patience);
}

void ConnectionManager::on_req(const Arrival& a, Patience patience) {
    const wire::CmReq req = wire::CmReq::parse(a.mad.message);
    if (req.local_id.raw == 0) return drop(Drop::Malformed);
    if (Connection* c = table_.find_remote(a.source, req.local_id, false))
        return on_duplicate_req(a, req, *c);
    if (Connection* c = table_.find_live_qpn(a.source, req.local_qpn)) return on_stale(a, *c);
    if (!is_supported(req)) return refuse(a, RejectReason::InvalidTransportType);
    if (req.path_mtu < 1 || req.path_mtu > 5) return refuse(a, RejectReason::InvalidPathMtu);
    const Gid named = wire::named_address(a.source, a.destination, a.mad);
    Listener* listener = listeners_.match(req.service_id, named);
    if (listener == nullptr) return on_unserved(a, patience);
    deliver_req(a, req, *listener);
}

void ConnectionManager::on_sidr_req(const Arrival& a, Patience patience) {
    const wire::CmSidrReq req = wire::CmSidrReq::parse(a.mad.message);
    if (req.request_id.raw == 0) return drop(Drop::Malformed);
    if (Connection* c = table_.find_remote(a.source, req.request_id, true)) {
        if (c->state == State::Timewait) return replay(a.now, *c);
        return drop(Drop::WrongState);
    }
    const Gid named = wire::named_address(a.source, a.destination, a.mad);
    Listener* listener = listeners_.match(req.service_id, named);
    if (listener == nullptr) return on_unserved(a, patience);
    deliver_sidr_req(a, req, *listener);
}

void ConnectionManager::on_duplicate_req(const Arrival& a, const wire::CmReq& req, Connection& c) {
    // The same id for another queue pair: the peer has started anew and we never heard of the end.
    if (req.local_qpn != c.remote_qpn) return on_stale(a, c);
    const bool asked_for_time =
        c.state == State::ReqReceived && c.last_sent == wire::CmAttribute::Mra;
    const bool refused = c.state == State::Timewait && c.last_sent == wire::CmAttribute::Rej;
    if (asked_for_time || refused || c.state == State::RepSent) return replay(a.now, c);
    if (c.state == State::Timewait) return refuse(a, RejectReason::StaleConnection);
    drop(Drop::WrongState);
}

// IBTA: the new request is refused and the connection that the peer has forgotten is ended; the
// peer's next request finds the way free.
void ConnectionManager::on_stale(const Arrival& a, Connection& old) {
    refuse(a, RejectReason::StaleConnection);
    if (old.state == State::Established) send_dreq(a.now, old);
}

Connection* ConnectionManager::admit(const Arrival& a, Listener& listener) {
    if (table_.full() || listener.pending >= listener.options.backlog) {
        drop(Drop::TableFull);
        refuse(a, RejectReason::NoResources);
        return nullptr;
    }
    const bool sidr = a.mad.attribute == wire::CmAttribute::SidrReq;
    Connection& c = create({.local = a.destination, .remote = a.source}, sidr);
    c.listener = listener.id;
    c.transaction = a.mad.transaction;
    c.in_backlog = true;
    ++listener.pending;
    return &c;
}

void ConnectionManager::deliver_req(const Arrival& a, const wire::CmReq& req, Listener& listener) {
    Connection* c = admit(a, listener);
    if (c == nullptr) return;
    Rollback forget([&] { forget_request(*c); });
    c->state = State::ReqReceived;
    c->service = req.service_id;
    c->path = path_of(req, a.destination, a.source);
    c->response_timeout = timeout_of(req.local_response_timeout);
    c->max_retries = req.max_cm_retries;
    table_.set_remote_id(*c, req.local_id);
    table_.set_remote_qpn(*c, req.local_qpn);
    c->is_feroce = req.local_ca_guid >> 32 == kFeroceGuid;
    tell(*c, {.type = EventType::ConnectRequest,
              .service = req.service_id,
              .peer = peer_of(req),
              .private_data = req.private_data});
    forget.keep();
}

void ConnectionManager::deliver_sidr_req(const Arrival& a, const wire::CmSidrReq& req,
                                         Listener& listener) {
    Connection* c = admit(a, listener);
    if (c == nullptr) return;
    Rollback forget([&] { forget_request(*c); });
    c->state = State::SidrReqReceived;
    c->service = req.service_id;
    c->path.pkey = req.pkey;
    table_.set_remote_id(*c, req.request_id);
    tell(*c, {.type = EventType::SidrRequest,
              .service = req.service_id,
              .private_data = req.private_data});
    forget.keep();
}

// The user has not heard of it.
void ConnectionManager::forget_request(Connection& c) {
    settle(c);
    table_.erase(c);
}

void ConnectionManager::on_unserved(const Arrival& a, Patience patience) {
    const auto is_same = [&](const Waiting& w) {
        return w.source == a.source && w.destination == a.destination &&
               std::equal(w.mad.begin(), w.mad.end(), a.bytes.begin(), a.bytes.end());
    };
    if (std::any_of(waiting_.begin(), waiting_.end(), is_same)) return drop(Drop::WrongState);
    if (port_.offer(a.source, a.destination, a.bytes, a.origin)) return;
    if (patience == Patience::Refuse || waiting_.size() >= config_.max_waiting_requests)
        return refuse(a, RejectReason::InvalidServiceId, SidrStatus::UnsupportedService);
    Waiting& w = waiting_.emplace_back();
    w.until = a.now + config_.listen_grace;
    w.source = a.source;
    w.destination = a.destination;
    w.origin = a.origin;
    std::copy(a.bytes.begin(), a.bytes.end(), w.mad.begin());
}

// Refuses a request without keeping anything of it: a repetition is refused again.
void ConnectionManager::refuse(const Arrival& a, RejectReason reason, SidrStatus status) {
    if (a.mad.attribute == wire::CmAttribute::Req) {
        const wire::CmReq req = wire::CmReq::parse(a.mad.message);
        return answer(a, wire::CmRej{.remote_id = req.local_id, .reason = reason});
    }
    const wire::CmSidrReq req = wire::CmSidrReq::parse(a.mad.message);
    answer(a, wire::CmSidrRep{
                  .request_id = req.request_id, .status = status, .service_id = req.service_id});
}

void ConnectionManager::serve_waiting(Instant now) {
    for (auto it = waiting_.begin(); it != waiting_.end();) {
        const Waiting w = *it;
        const wire::CmMad mad = *wire::parse_cm_mad(w.mad);
        const Gid named = wire::named_address(w.source, w.destination, mad);
        if (listeners_.match(service_of(mad.message), named) == nullptr) {
            ++it;
            continue;
        }
        it = waiting_.erase(it);
        // Served, so it does not come to wait again.
        on_request({now, w.source, w.destination, mad, w.mad, w.origin}, Patience::Refuse);
    }
}

void ConnectionManager::expire_waiting(Instant now) {
    while (!waiting_.empty() && waiting_.front().until <= now) {
        const Waiting w = waiting_.front();
        waiting_.pop_front();
        on_request({now, w.source, w.destination, *wire::parse_cm_mad(w.mad), w.mad, w.origin},
                   Patience::Refuse);
    }
}

}  // namespace feroce::cm
