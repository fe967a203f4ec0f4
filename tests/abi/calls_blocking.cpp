// The rows that wait for what does not come. Each can be run again after it was left in the middle:
// what it needs lives longer than its thread.
#include "calls.hpp"

namespace feroce::calls {
namespace {

// A listener that nobody asks for its requests.
struct DeafListener {
    rdma_event_channel* channel = rdma_create_event_channel();
    rdma_cm_id* id = nullptr;
    DeafListener() {
        sockaddr_in address = loopback(0);
        rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP);
        rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&address));
        rdma_listen(id, 1024);
    }
    std::uint16_t port() const { return ntohs(rdma_get_src_port(id)); }
};

DeafListener& deaf_listener() {
    static DeafListener& only = *new DeafListener;
    return only;
}

rdma_cm_id* synchronous_listener() {
    static rdma_cm_id* only = [] {
        rdma_cm_id* id = nullptr;
        sockaddr_in address = loopback(0);
        rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP);
        rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&address));
        rdma_listen(id, 4);
        return id;
    }();
    return only;
}

rdma_event_channel* silent_channel() {
    static rdma_event_channel* only = rdma_create_event_channel();
    return only;
}

ibv_comp_channel* silent_completions() {
    static ibv_comp_channel* only = ibv_create_comp_channel(w.context);
    return only;
}

void add_qp(rdma_cm_id* id) {
    ibv_qp_init_attr init{};
    init.cap = {4, 4, 1, 1, 0};
    init.qp_type = IBV_QPT_RC;
    rdma_create_qp(id, nullptr, &init);
}

// Asks for a connection that nobody accepts.
void connect_to_nobody(Run& r) {
    static rdma_cm_id* last = nullptr;  // Of a thread that went away.
    if (last != nullptr) rdma_destroy_ep(last);
    last = nullptr;
    rdma_create_id(nullptr, &last, nullptr, RDMA_PS_TCP);
    sockaddr_in address = loopback(deaf_listener().port());
    rdma_resolve_addr(last, nullptr, reinterpret_cast<sockaddr*>(&address), 1000);
    rdma_resolve_route(last, 1000);
    add_qp(last);
    r.go();
    rdma_connect(last, nullptr);
}

// Accepts a request of an id that nobody asks for its events, so that it is not told of.
void accept_for_nobody(Run& r) {
    static rdma_event_channel* channel = rdma_create_event_channel();
    static rdma_cm_id *active = nullptr, *passive = nullptr;
    for (rdma_cm_id** id : {&active, &passive}) {
        if (*id != nullptr) rdma_destroy_ep(*id);
        *id = nullptr;
    }
    rdma_cm_id* listener = synchronous_listener();
    sockaddr_in address = loopback(ntohs(rdma_get_src_port(listener)));
    rdma_cm_event* event = nullptr;
    rdma_create_id(channel, &active, nullptr, RDMA_PS_TCP);
    rdma_resolve_addr(active, nullptr, reinterpret_cast<sockaddr*>(&address), 1000);
    if (rdma_get_cm_event(channel, &event) == 0) rdma_ack_cm_event(event);
    rdma_resolve_route(active, 1000);
    if (rdma_get_cm_event(channel, &event) == 0) rdma_ack_cm_event(event);
    add_qp(active);
    if (rdma_connect(active, nullptr) != 0 || rdma_get_request(listener, &passive) != 0) return;
    add_qp(passive);
    r.go();
    rdma_accept(passive, nullptr);
}

}  // namespace

std::vector<Row> blocking_rows() {
    return {
        {"ibv_get_cq_event",
         [](Run& r) {
             ibv_cq* cq;
             void* of;
             ibv_comp_channel* channel = silent_completions();
             r.go();
             ibv_get_cq_event(channel, &cq, &of);
         },
         true},
        {"ibv_get_async_event",
         [](Run& r) {
             ibv_async_event event;
             r.go();
             ibv_get_async_event(w.context, &event);
         },
         true},
        {"rdma_get_cm_event",
         [](Run& r) {
             rdma_cm_event* event;
             rdma_event_channel* channel = silent_channel();
             r.go();
             rdma_get_cm_event(channel, &event);
         },
         true},
        {"rdma_get_request",
         [](Run& r) {
             rdma_cm_id* id;
             rdma_cm_id* listener = synchronous_listener();
             r.go();
             rdma_get_request(listener, &id);
         },
         true},
        {"rdma_connect", connect_to_nobody, true},
        {"rdma_accept", accept_for_nobody, true},
    };
}

}  // namespace feroce::calls
