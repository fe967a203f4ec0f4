#include <algorithm>
#include <cerrno>
#include <cstring>

#include "process/undisturbed.hpp"
#include "rdmacm/address.hpp"
#include "rdmacm/devices.hpp"
#include "rdmacm/events.hpp"
#include "rdmacm/id.hpp"
#include "wire/cma.hpp"

namespace feroce::rdmacm {
namespace {

bool is_request(const cm::Event& event) {
    return event.type == cm::EventType::ConnectRequest || event.type == cm::EventType::SidrRequest;
}

std::unique_ptr<CmId> make_child(const CmId& listener, const cm::Event& source) {
    auto child = std::make_unique<CmId>();
    child->stage.set(Stage::Requested);
    child->library = listener.library;
    child->service = listener.service;
    child->connection = source.connection;
    child->path = source.path;
    child->peer = source.peer;
    child->options = listener.options;
    child->base.context = listener.base.context;
    child->base.ps = listener.base.ps;
    child->base.qp_type = listener.base.qp_type;
    reserve_events(*child, cm::kEventsMax);
    const std::lock_guard held(listener.library->mutex);
    child->base.channel = listener.base.channel;
    return child;
}

// What the program gave is behind the header with the addresses.
void set_private_data(Event& event, std::size_t header, const void*& data, std::uint8_t& length) {
    if (event.private_data_length <= header) return;
    data = event.private_data.data() + header;
    length = static_cast<std::uint8_t>(event.private_data_length - header);
}

void fill_connection(Event& event, std::size_t header) {
    rdma_conn_param& p = event.base.param.conn;
    const cm::Endpoint& peer = event.source.peer;
    set_private_data(event, header, p.private_data, p.private_data_len);
    // As seen from here: what the peer may have outstanding is what we serve.
    p.responder_resources = peer.initiator_depth;
    p.initiator_depth = peer.responder_resources;
    p.flow_control = peer.flow_control ? 1 : 0;
    p.retry_count = peer.retry_count;
    p.rnr_retry_count = peer.rnr_retry_count;
    p.srq = peer.srq ? 1 : 0;
    p.qp_num = peer.qpn.raw;
}

void set_addresses(CmId& id, const Event& event) {
    Gid local = id.path.local;
    Gid remote = id.path.remote;
    std::uint16_t remote_port = 0;
    const wire::CmaHeader header =
        wire::CmaHeader::parse(std::span(event.private_data).first<wire::CmaHeader::kSize>());
    if (header.valid()) {
        local = header.destination();
        remote = header.source();
        remote_port = header.source_port;
    }
    id.local = id.path.local;
    id.remote = id.path.remote;
    rdma_addr& addresses = id.base.route.addr;
    store_address(local, wire::port_of(event.source.service), addresses.src_storage);
    store_address(remote, remote_port, addresses.dst_storage);
}

bool digest_request(Event& event) {
    CmId& child = id_of(event.base.id);
    CmId& listener = *event.account;
    set_addresses(child, event);
    if (listener.synchronous) {
        Channel* own = make_channel();
        if (own == nullptr) return false;
        process::Undisturbed call;
        move_events(call, child, *own);
        child.synchronous = true;
    } else if (child.base.channel != listener.base.channel) {
        process::Undisturbed call;
        move_events(call, child, channel_of(listener.base.channel));
    }
    if (Result<void> attached = attach_device(child); !attached) {
        refuse("rdma_get_cm_event", attached.error());
        return false;
    }
    child.starting_psn = Psn(static_cast<std::uint32_t>(child.service->random()));
    set_path_record(child);
    event.base.listen_id = &listener.base;
    event.base.event = RDMA_CM_EVENT_CONNECT_REQUEST;
    child.service->taken(*child.connection);
    if (event.source.type == cm::EventType::SidrRequest) {
        rdma_ud_param& p = event.base.param.ud;
        set_private_data(event, wire::CmaHeader::kSize, p.private_data, p.private_data_len);
        return true;
    }
    fill_connection(event, wire::CmaHeader::kSize);
    child.responder_resources = event.base.param.conn.responder_resources;
    child.initiator_depth = event.base.param.conn.initiator_depth;
    child.retry_count = child.peer.retry_count;
    return true;
}

void digest_response(Event& event) {
    CmId& id = *event.account;
    id.peer = event.source.peer;
    id.responder_resources = id.peer.initiator_depth;
    id.initiator_depth = id.peer.responder_resources;
    id.stage.advance(Stage::Asked, Stage::Answered);
    fill_connection(event, 0);
    event.base.event = RDMA_CM_EVENT_CONNECT_RESPONSE;
    if (id.base.qp == nullptr) return;  // The program connects its queue pair and establishes.
    event.base.event = RDMA_CM_EVENT_ESTABLISHED;
    Result<void> done = connect_qp(id);
    if (done) done = id.service->establish(*id.connection);
    id.stage.advance(Stage::Answered, done ? Stage::Connected : Stage::Over);
    if (done) return;
    refuse("rdma_get_cm_event", done.error());
    (void)id.service->reject(*id.connection, {});
    event.base.event = RDMA_CM_EVENT_CONNECT_ERROR;
    event.base.status = -done.error().code;
}

void digest_sidr_response(Event& event) {
    CmId& id = *event.account;
    id.stage.set(Stage::Over);
    const cm::Event& source = event.source;
    rdma_ud_param& p = event.base.param.ud;
    set_private_data(event, 0, p.private_data, p.private_data_len);
    if (source.sidr_status != cm::SidrStatus::Success) {
        event.base.event = RDMA_CM_EVENT_UNREACHABLE;
        event.base.status = static_cast<int>(source.sidr_status);
        return;
    }
    event.base.event = RDMA_CM_EVENT_ESTABLISHED;
    p.qp_num = source.peer.qpn.raw;
    p.qkey = source.peer.qkey.raw;
    p.ah_attr = address_vector(id);
}

}  // namespace

namespace {

// A request brings memory of its own, and is refused if there is none.
Events take_blank(const cm::Event& source, CmId& account) {
    if (is_request(source) || account.spare.empty()) return make_event(account, {});
    Events one;
    one.splice(one.end(), account.spare, account.spare.begin());
    one.front()->account = &account;
    return one;
}

void* on_event(const cm::Event& source, CmId& account) {
    Events one = take_blank(source, account);
    Event* const event = one.front().get();
    event->from_peer = true;
    event->source = source;
    event->private_data_length = std::min(source.private_data.size(), event->private_data.size());
    std::copy_n(source.private_data.begin(), event->private_data_length,
                event->private_data.begin());
    event->source.private_data = {};
    event->source.additional_info = {};
    CmId* id = &account;
    if (is_request(source)) id = make_child(account, source).release();
    event->base.id = &id->base;
    queue_event(std::move(one));
    return id;
}

}  // namespace

// Null where memory is wanting, which it is for requests only: the peer repeats them.
void* Library::on_cm_event(const cm::Event& source, void* owner) {
    return within_memory("rdma_cm", [&] { return on_event(source, *static_cast<CmId*>(owner)); });
}

bool digest(Event& event) {
    CmId& id = *event.account;
    switch (event.source.type) {
        case cm::EventType::ConnectRequest:
        case cm::EventType::SidrRequest:
            return digest_request(event);
        case cm::EventType::ConnectResponse:
            digest_response(event);
            return true;
        case cm::EventType::SidrResponse:
            digest_sidr_response(event);
            return true;
        case cm::EventType::Established:
            id.stage.advance(Stage::Accepted, Stage::Connected);
            event.base.event = RDMA_CM_EVENT_ESTABLISHED;
            return true;
        case cm::EventType::Rejected:
            id.stage.set(Stage::Over);
            event.base.event = RDMA_CM_EVENT_REJECTED;
            event.base.status = static_cast<int>(event.source.reason);
            set_private_data(event, 0, event.base.param.conn.private_data,
                             event.base.param.conn.private_data_len);
            stop_qp(id);
            return true;
        case cm::EventType::Unreachable:
            id.stage.set(Stage::Over);
            event.base.event = RDMA_CM_EVENT_UNREACHABLE;
            event.base.status = -ETIMEDOUT;
            stop_qp(id);
            return true;
        case cm::EventType::Disconnected:
            id.stage.set(Stage::Over);
            // The queue pair goes on until the program disconnects too: it may have sends left.
            event.base.event = RDMA_CM_EVENT_DISCONNECTED;
            event.base.status = event.source.timed_out ? -ETIMEDOUT : 0;
            return true;
        case cm::EventType::TimewaitExit:
            event.base.event = RDMA_CM_EVENT_TIMEWAIT_EXIT;
            return true;
        case cm::EventType::AddressRemoved:
            event.base.event = is_present(id.base.verbs) ? RDMA_CM_EVENT_ADDR_CHANGE
                                                         : RDMA_CM_EVENT_DEVICE_REMOVAL;
            return true;
    }
    return false;
}

void discard(std::unique_ptr<Event> event) {
    if (!is_current(*event->account->library)) return;  // Nobody in this process waits for it.
    // A request that digest() had no use for.
    const bool unused =
        event->from_peer && is_request(event->source) && event->base.listen_id == nullptr;
    CmId* child = unused ? &id_of(event->base.id) : nullptr;
    {
        Library& home = *event->account->library;
        const std::lock_guard held(home.mutex);
        ++event->account->acknowledged;
        home.acknowledgement.notify_all();
    }
    if (child != nullptr) destroy(*child);
}

}  // namespace feroce::rdmacm
