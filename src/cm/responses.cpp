// What arrives for a connection. A message counts only if it names our id and the peer's and comes
// from the peer's address; one that was answered before is answered again with the same MAD.
#include <algorithm>

#include "base/shortage.hpp"
#include "cm/connection_manager.hpp"

namespace feroce::cm {

void ConnectionManager::receive(Instant now, const Gid& source, const Gid& destination,
                                ByteView mad, Origin origin) {
    ++counters_.received;
    const std::optional<wire::CmMad> parsed = wire::parse_cm_mad(mad);
    if (!parsed) return drop(Drop::Malformed);
    const Arrival a{now, source, destination, *parsed, mad, origin};
    switch (parsed->attribute) {
        case wire::CmAttribute::Req:
        case wire::CmAttribute::SidrReq:
            return on_request(a, Patience::Wait);
        case wire::CmAttribute::Mra:
            return on_mra(a);
        case wire::CmAttribute::Rej:
            return on_rej(a);
        case wire::CmAttribute::Rep:
            return on_rep(a);
        case wire::CmAttribute::Rtu:
            return on_rtu(a);
        case wire::CmAttribute::Dreq:
            return on_dreq(a);
        case wire::CmAttribute::Drep:
            return on_drep(a);
        case wire::CmAttribute::SidrRep:
            return on_sidr_rep(a);
        case wire::CmAttribute::Lap:
            return on_lap(a);
        case wire::CmAttribute::Alive:
            return on_alive(a);
        case wire::CmAttribute::Apr:  // Answers a LAP; we never send one.
            return drop(Drop::WrongState);
    }
}

bool ConnectionManager::is_from_peer(const Arrival& a, const Connection& c, CommId theirs) {
    const bool same =
        a.source == c.path.remote && !c.sidr && (c.remote_id.raw == 0 || c.remote_id == theirs);
    if (!same) drop(Drop::WrongPeer);
    return same;
}

Connection* ConnectionManager::find_peer(const Arrival& a, CommId ours, CommId theirs) {
    Connection* c = table_.find(ours);
    if (c == nullptr) drop(Drop::UnknownConnection);
    return c != nullptr && is_from_peer(a, *c, theirs) ? c : nullptr;
}

void ConnectionManager::on_mra(const Arrival& a) {
    const wire::CmMra mra = wire::CmMra::parse(a.mad.message);
    Connection* c = find_peer(a, mra.remote_id, mra.local_id);
    if (c == nullptr) return;
    const bool expected = (c->state == State::ReqSent && mra.answered == wire::CmAnswered::Req) ||
                          (c->state == State::RepSent && mra.answered == wire::CmAnswered::Rep);
    if (!expected) return drop(Drop::WrongState);
    table_.set_deadline(*c, a.now + timeout_of(mra.service_timeout) + c->response_timeout);
}

void ConnectionManager::on_rej(const Arrival& a) {
    const wire::CmRej rej = wire::CmRej::parse(a.mad.message);
    Connection* c = nullptr;
    if (rej.remote_id.raw != 0) {
        c = find_peer(a, rej.remote_id, rej.local_id);
    } else {  // The peer gave up before it learned our id.
        c = table_.find_remote(a.source, rej.local_id, false);
        bool taken = false;
        const auto offer = [&] { taken = port_.offer(a.source, a.destination, a.bytes, a.origin); };
        if (c == nullptr && !(with_memory(offer) && taken)) drop(Drop::UnknownConnection);
    }
    if (c == nullptr) return;
    switch (c->state) {
        case State::ReqSent:
        case State::ReqReceived:
        case State::RepReceived:
        case State::RepSent: {
            const std::size_t info =
                std::min<std::size_t>(rej.additional_info_size, rej.additional_info.size());
            tell(*c, {.type = EventType::Rejected,
                      .reason = rej.reason,
                      .additional_info = ByteView(rej.additional_info).first(info),
                      .private_data = rej.private_data});
            return linger(a.now, *c);
        }
        case State::Established:
        case State::DreqSent:
            return end_connected(a.now, *c, false);
        default:
            return drop(Drop::WrongState);
    }
}

void ConnectionManager::on_rep(const Arrival& a) {
    const wire::CmRep rep = wire::CmRep::parse(a.mad.message);
    if (rep.local_id.raw == 0) return drop(Drop::Malformed);
    Connection* c = table_.find(rep.remote_id);
    if (c == nullptr) {
        drop(Drop::UnknownConnection);
        return refuse_rep(a, rep);
    }
    if (!is_from_peer(a, *c, rep.local_id)) return;
    if (c->state == State::ReqSent) return take_rep(a, rep, *c);
    const bool repeats =
        (c->state == State::RepReceived && c->last_sent == wire::CmAttribute::Mra) ||
        (c->state == State::Established && c->last_sent == wire::CmAttribute::Rtu) ||
        (c->state == State::Timewait && c->last_sent == wire::CmAttribute::Rej);
    if (repeats) return replay(a.now, *c);
    if (c->state == State::Timewait || c->state == State::Closed) return refuse_rep(a, rep);
    drop(Drop::WrongState);
}

void ConnectionManager::take_rep(const Arrival& a, const wire::CmRep& rep, Connection& c) {
    table_.set_remote_id(c, rep.local_id);
    table_.set_remote_qpn(c, rep.local_qpn);
    c.is_feroce = rep.local_ca_guid >> 32 == kFeroceGuid;
    // From here the peer repeats its REP, and gives up if the caller never establishes.
    table_.set_deadline(c, kNever);
    c.state = State::RepReceived;
    bind(c);
    c.transaction = a.mad.transaction;
    tell(c, {.type = EventType::ConnectResponse,
             .service = c.service,
             .peer = {.qpn = rep.local_qpn,
                      .starting_psn = rep.starting_psn,
                      .responder_resources = rep.responder_resources,
                      .initiator_depth = rep.initiator_depth,
                      .rnr_retry_count = rep.rnr_retry_count,
                      .flow_control = rep.end_to_end_flow_control,
                      .srq = rep.srq,
                      .qkey = rep.local_qkey,
                      .target_ack_delay = rep.target_ack_delay,
                      .ca_guid = rep.local_ca_guid},
             .private_data = rep.private_data});
}

void ConnectionManager::refuse_rep(const Arrival& a, const wire::CmRep& rep) {
    answer(a, wire::CmRej{.local_id = rep.remote_id,
                          .remote_id = rep.local_id,
                          .answered = wire::CmAnswered::Rep,
                          .reason = RejectReason::InvalidCommId});
}

void ConnectionManager::on_rtu(const Arrival& a) {
    const wire::CmRtu rtu = wire::CmRtu::parse(a.mad.message);
    Connection* c = find_peer(a, rtu.remote_id, rtu.local_id);
    if (c == nullptr) return;
    if (c->state != State::RepSent) return drop(Drop::WrongState);
    become_established(a.now, *c);
}

void ConnectionManager::on_dreq(const Arrival& a) {
    const wire::CmDreq dreq = wire::CmDreq::parse(a.mad.message);
    Connection* c = table_.find(dreq.remote_id);
    if (c == nullptr || c->state == State::Timewait || c->state == State::Closed) {
        // Our DREP was lost, or we have forgotten: the peer is waiting to hear that it is over.
        if (c == nullptr) drop(Drop::UnknownConnection);
        if (c != nullptr && !is_from_peer(a, *c, dreq.local_id)) return;
        ++counters_.replayed;
        return answer(a, wire::CmDrep{.local_id = dreq.remote_id, .remote_id = dreq.local_id});
    }
    if (!is_from_peer(a, *c, dreq.local_id)) return;
    if (dreq.remote_qpn != c->local_qpn) return drop(Drop::WrongPeer);
    take_dreq(a, dreq, *c);
}

void ConnectionManager::take_dreq(const Arrival& a, const wire::CmDreq& dreq, Connection& c) {
    // The peer cannot know the id of a request that was not answered.
    if (c.state == State::ReqReceived) return drop(Drop::WrongState);
    const State before = c.state;
    c.transaction = a.mad.transaction;
    send(c, wire::CmDrep{.local_id = c.local_id, .remote_id = dreq.local_id});
    if (before == State::ReqSent) {
        // The REP was lost and the peer has left: for the caller the request was refused.
        tell(c, {.type = EventType::Rejected, .reason = RejectReason::ConsumerReject});
        return linger(a.now, c);
    }
    // Nobody ends what was not established: the RTU was lost.
    if (before == State::RepSent) become_established(a.now, c);
    end_connected(a.now, c, false);
}

void ConnectionManager::on_drep(const Arrival& a) {
    const wire::CmDrep drep = wire::CmDrep::parse(a.mad.message);
    Connection* c = find_peer(a, drep.remote_id, drep.local_id);
    if (c == nullptr) return;
    // Or the answer to our ALIVE of a peer that has forgotten the connection.
    const bool forgotten = c->state == State::Established && c->asked > 0;
    if (c->state != State::DreqSent && !forgotten) return drop(Drop::WrongState);
    end_connected(a.now, *c, false);
}

// Alternate paths are refused: RoCE reroutes below us, and sessions above have several paths.
void ConnectionManager::on_lap(const Arrival& a) {
    const wire::CmLap lap = wire::CmLap::parse(a.mad.message);
    const Connection* c = find_peer(a, lap.remote_id, lap.local_id);
    const bool known = c != nullptr && c->state == State::Established;
    answer(a, wire::CmApr{
                  .local_id = lap.remote_id,
                  .remote_id = lap.local_id,
                  .status = known ? wire::AprStatus::Unsupported : wire::AprStatus::InvalidCommId});
}

void ConnectionManager::on_sidr_rep(const Arrival& a) {
    const wire::CmSidrRep rep = wire::CmSidrRep::parse(a.mad.message);
    Connection* c = table_.find(rep.request_id);
    if (c == nullptr) return drop(Drop::UnknownConnection);
    if (!c->sidr || a.source != c->path.remote) return drop(Drop::WrongPeer);
    if (c->state != State::SidrReqSent) return drop(Drop::WrongState);
    tell(*c, {.type = EventType::SidrResponse,
              .service = c->service,
              .peer = {.qpn = rep.qpn, .qkey = rep.qkey},
              .sidr_status = rep.status,
              .private_data = rep.private_data});
    close(*c);
}

}  // namespace feroce::cm
