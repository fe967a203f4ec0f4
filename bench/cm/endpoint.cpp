// The steps of connections, both sides. See endpoint.hpp.
#include "endpoint.hpp"

#include <cerrno>
#include <cstdio>

namespace {

constexpr int kPatienceMs = 5'000;

rdma_conn_param parameters() {
    rdma_conn_param out{};
    out.retry_count = out.rnr_retry_count = 7;
    return out;
}

}  // namespace

Endpoint::Endpoint() : channel_(rdma_create_event_channel()) {
    if (channel_ == nullptr) die("rdma_create_event_channel");
}

Endpoint::~Endpoint() {
    if (last_ != nullptr) drop(last_);
    if (completions_ != nullptr) ibv_destroy_cq(completions_);
    if (domain_ != nullptr) ibv_dealloc_pd(domain_);
    rdma_destroy_event_channel(channel_);
}

rdma_cm_id* Endpoint::listen(std::uint16_t& port) {
    rdma_cm_id* id = nullptr;
    sockaddr_in address = loopback(0);
    if (rdma_create_id(channel_, &id, nullptr, RDMA_PS_TCP) != 0 ||
        rdma_bind_addr(id, generic(address)) != 0 || rdma_listen(id, 128) != 0)
        die("rdma_listen");
    port = ntohs(rdma_get_src_port(id));
    return id;
}

void Endpoint::make_queue_pair(rdma_cm_id* id) {
    if (domain_ == nullptr) domain_ = ibv_alloc_pd(id->verbs);
    if (completions_ == nullptr) completions_ = ibv_create_cq(id->verbs, 16, nullptr, nullptr, 0);
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = completions_;
    wanted.cap = {4, 4, 1, 1, 0};
    wanted.qp_type = IBV_QPT_RC;
    if (rdma_create_qp(id, domain_, &wanted) != 0) die("rdma_create_qp");
}

void Endpoint::drop(rdma_cm_id* id) {
    rdma_destroy_qp(id);
    if (rdma_destroy_id(id) != 0) die("rdma_destroy_id");
}

void Endpoint::retire(rdma_cm_id* id) {
    if (last_ != nullptr) drop(last_);
    last_ = id;
    is_last_over_ = false;
    done_++;
}

rdma_cm_event_type Endpoint::take(rdma_cm_id*& id) {
    rdma_cm_event* event = nullptr;
    if (rdma_get_cm_event(channel_, &event) != 0) die("rdma_get_cm_event");
    const rdma_cm_event_type type = event->event;
    id = event->id;
    if (event->status != 0) {
        errno = event->status < 0 ? -event->status : event->status;
        die(rdma_event_str(type));
    }
    rdma_ack_cm_event(event);
    if (type == RDMA_CM_EVENT_TIMEWAIT_EXIT && id == last_) is_last_over_ = true;
    return type;
}

void Endpoint::serve_event() {
    rdma_cm_id* id = nullptr;
    rdma_conn_param wanted = parameters();
    switch (take(id)) {
        case RDMA_CM_EVENT_CONNECT_REQUEST:
            make_queue_pair(id);
            if (rdma_accept(id, &wanted) != 0) die("rdma_accept");
            break;
        case RDMA_CM_EVENT_DISCONNECTED:
            rdma_disconnect(id);
            retire(id);
            break;
        default:
            break;
    }
}

void Endpoint::start(std::uint16_t port) {
    rdma_cm_id* id = nullptr;
    sockaddr_in address = loopback(port);
    if (rdma_create_id(channel_, &id, nullptr, RDMA_PS_TCP) != 0 ||
        rdma_resolve_addr(id, nullptr, generic(address), kPatienceMs) != 0)
        die("rdma_resolve_addr");
}

void Endpoint::client_event() {
    rdma_cm_id* id = nullptr;
    rdma_conn_param wanted = parameters();
    switch (take(id)) {
        case RDMA_CM_EVENT_ADDR_RESOLVED:
            if (rdma_resolve_route(id, kPatienceMs) != 0) die("rdma_resolve_route");
            break;
        case RDMA_CM_EVENT_ROUTE_RESOLVED:
            make_queue_pair(id);
            if (rdma_connect(id, &wanted) != 0) die("rdma_connect");
            break;
        case RDMA_CM_EVENT_ESTABLISHED:
            if (rdma_disconnect(id) != 0) die("rdma_disconnect");
            break;
        case RDMA_CM_EVENT_DISCONNECTED:
            retire(id);
            break;
        default:
            break;
    }
}

void Endpoint::connect_many(std::uint16_t port, int count, int at_once) {
    done_ = 0;
    for (int started = 0; done_ < count;) {
        for (; started < count && started - done_ < at_once; started++) start(port);
        client_event();
    }
}

void Endpoint::settle() {
    rdma_cm_id* id = nullptr;
    while (last_ != nullptr && !is_last_over_) take(id);
    if (last_ != nullptr) drop(last_);
    last_ = nullptr;
}
