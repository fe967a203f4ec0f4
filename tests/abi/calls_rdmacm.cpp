// The rows of librdmacm.
#include <netdb.h>
#include <rdma/rdma_verbs.h>
#include <rdma/rsocket.h>

#include <cstdlib>

#include "calls.hpp"

namespace feroce::calls {
namespace {

// An id with a channel that nobody reads, bound to the loopback address.
struct Id {
    rdma_event_channel* channel = rdma_create_event_channel();
    rdma_cm_id* id = nullptr;
    sockaddr_in address = loopback(0);
    sockaddr* any() { return reinterpret_cast<sockaddr*>(&address); }

    explicit Id(rdma_port_space space = RDMA_PS_TCP) {
        if (channel != nullptr && rdma_create_id(channel, &id, nullptr, space) != 0) id = nullptr;
    }
    bool bind() { return id != nullptr && rdma_bind_addr(id, any()) == 0; }
    // Takes one event, which is there already.
    void take() {
        rdma_cm_event* event = nullptr;
        if (rdma_get_cm_event(channel, &event) == 0) rdma_ack_cm_event(event);
    }
    bool resolve() {
        if (id == nullptr || rdma_resolve_addr(id, nullptr, any(), 1000) != 0) return false;
        take();
        if (id->verbs == nullptr || rdma_resolve_route(id, 1000) != 0) return false;
        take();
        return true;
    }
    bool add_qp() {
        ibv_qp_init_attr init{};
        init.cap = {4, 4, 1, 1, 0};
        init.qp_type = id->qp_type;
        return rdma_create_qp(id, nullptr, &init) == 0;
    }
    void end() {
        if (id != nullptr) rdma_destroy_ep(id);
        if (channel != nullptr) rdma_destroy_event_channel(channel);
    }
};

sockaddr_in group_address() {
    sockaddr_in group = loopback(0);
    group.sin_addr.s_addr = htonl(0xefff'0001);
    return group;
}

struct DatagramId : Id {
    sockaddr_in group = group_address();
    sockaddr* where() { return reinterpret_cast<sockaddr*>(&group); }
    DatagramId() : Id(RDMA_PS_UDP) {}
};

constexpr Row kIdRows[] = {
    {"rdma_create_event_channel",
     [](Run& r) {
         r.go();
         if (auto* c = rdma_create_event_channel()) rdma_destroy_event_channel(c);
     }},
    {"rdma_destroy_event_channel",
     [](Run& r) {
         auto* c = rdma_create_event_channel();
         r.go();
         if (c != nullptr) rdma_destroy_event_channel(c);
     }},
    {"rdma_create_id",
     [](Run& r) {
         r.go();
         Id i;
         i.end();
     }},
    {"rdma_destroy_id",
     [](Run& r) {
         Id i;
         r.go();
         if (i.id != nullptr) rdma_destroy_id(i.id);
         i.id = nullptr;
         i.end();
     }},
    {"rdma_bind_addr",
     [](Run& r) {
         Id i;
         r.go();
         i.bind();
         i.end();
     }},
    {"rdma_listen",
     [](Run& r) {
         Id i;
         const bool bound = i.bind();
         r.go();
         if (bound) rdma_listen(i.id, 4);
         i.end();
     }},
    {"rdma_resolve_addr",
     [](Run& r) {
         Id i;
         r.go();
         if (i.id != nullptr) rdma_resolve_addr(i.id, nullptr, i.any(), 1000);
         i.end();
     }},
    {"rdma_resolve_route",
     [](Run& r) {
         Id i;
         if (i.id != nullptr && rdma_resolve_addr(i.id, nullptr, i.any(), 1000) == 0) i.take();
         r.go();
         if (i.id != nullptr) rdma_resolve_route(i.id, 1000);
         i.end();
     }},
    {"rdma_migrate_id",
     [](Run& r) {
         Id i;
         r.go();
         if (i.id != nullptr) rdma_migrate_id(i.id, nullptr);
         i.end();
     }},
    {"rdma_set_option",
     [](Run& r) {
         Id i;
         std::uint8_t tos = 4;
         r.go();
         if (i.id != nullptr) rdma_set_option(i.id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 1);
         i.end();
     }},
    {"rdma_get_src_port",
     [](Run& r) {
         Id i;
         r.go();
         if (i.id != nullptr) rdma_get_src_port(i.id);
         i.end();
     }},
    {"rdma_get_dst_port",
     [](Run& r) {
         Id i;
         r.go();
         if (i.id != nullptr) rdma_get_dst_port(i.id);
         i.end();
     }},
    {"rdma_get_devices",
     [](Run& r) {
         r.go();
         if (auto** list = rdma_get_devices(nullptr)) rdma_free_devices(list);
     }},
    {"rdma_free_devices",
     [](Run& r) {
         auto** list = rdma_get_devices(nullptr);
         r.go();
         if (list != nullptr) rdma_free_devices(list);
     }},
    {"rdma_event_str",
     [](Run& r) {
         r.go();
         rdma_event_str(RDMA_CM_EVENT_ADDR_RESOLVED);
     }},
    {"rdma_ack_cm_event",
     [](Run& r) {
         Id i;
         if (i.id != nullptr) rdma_resolve_addr(i.id, nullptr, i.any(), 1000);
         r.go();
         if (i.id != nullptr) i.take();
         i.end();
     }},
    {"rdma_getaddrinfo",
     [](Run& r) {
         rdma_addrinfo* list = nullptr;
         r.go();
         if (rdma_getaddrinfo("127.0.0.1", "7471", nullptr, &list) == 0) rdma_freeaddrinfo(list);
     }},
    {"rdma_freeaddrinfo",
     [](Run& r) {
         rdma_addrinfo* list = nullptr;
         rdma_getaddrinfo("127.0.0.1", "7471", nullptr, &list);
         r.go();
         rdma_freeaddrinfo(list);
     }},
    {"rdma_set_local_ece",
     [](Run& r) {
         Id i;
         ibv_ece e{};
         r.go();
         if (i.id != nullptr) rdma_set_local_ece(i.id, &e);
         i.end();
     }},
    {"rdma_get_remote_ece",
     [](Run& r) {
         Id i;
         ibv_ece e{};
         r.go();
         if (i.id != nullptr) rdma_get_remote_ece(i.id, &e);
         i.end();
     }},
};

rdma_addrinfo* passive_address() {
    rdma_addrinfo hints{};
    hints.ai_flags = RAI_PASSIVE;
    hints.ai_port_space = RDMA_PS_TCP;
    rdma_addrinfo* list = nullptr;
    rdma_getaddrinfo("127.0.0.1", "0", &hints, &list);
    return list;
}

constexpr Row kEndpointRows[] = {
    {"rdma_create_ep",
     [](Run& r) {
         auto* a = passive_address();
         rdma_cm_id* id = nullptr;
         r.go();
         if (a != nullptr && rdma_create_ep(&id, a, nullptr, nullptr) == 0) rdma_destroy_ep(id);
         rdma_freeaddrinfo(a);
     }},
    {"rdma_destroy_ep",
     [](Run& r) {
         auto* a = passive_address();
         rdma_cm_id* id = nullptr;
         if (a != nullptr) rdma_create_ep(&id, a, nullptr, nullptr);
         r.go();
         if (id != nullptr) rdma_destroy_ep(id);
         rdma_freeaddrinfo(a);
     }},
    {"rdma_create_qp",
     [](Run& r) {
         Id i;
         const bool ready = i.resolve();
         r.go();
         if (ready) i.add_qp();
         i.end();
     }},
    {"rdma_create_qp_ex",
     [](Run& r) {
         Id i;
         const bool ready = i.resolve();
         ibv_qp_init_attr_ex init{};
         init.cap = {4, 4, 1, 1, 0};
         init.qp_type = IBV_QPT_RC;
         r.go();
         if (ready) rdma_create_qp_ex(i.id, &init);
         i.end();
     }},
    {"rdma_destroy_qp",
     [](Run& r) {
         Id i;
         if (i.resolve()) i.add_qp();
         r.go();
         if (i.id != nullptr) rdma_destroy_qp(i.id);
         i.end();
     }},
    {"rdma_create_srq",
     [](Run& r) {
         Id i;
         const bool bound = i.bind();
         ibv_srq_init_attr a{nullptr, {4, 1, 0}};
         r.go();
         if (bound) rdma_create_srq(i.id, nullptr, &a);
         i.end();
     }},
    {"rdma_create_srq_ex",
     [](Run& r) {
         Id i;
         const bool bound = i.bind();
         ibv_srq_init_attr_ex a{};
         a.attr = {4, 1, 0};
         a.comp_mask = IBV_SRQ_INIT_ATTR_TYPE;
         a.srq_type = IBV_SRQT_XRC;
         r.go();
         if (bound) rdma_create_srq_ex(i.id, &a);
         i.end();
     }},
    {"rdma_destroy_srq",
     [](Run& r) {
         Id i;
         ibv_srq_init_attr a{nullptr, {4, 1, 0}};
         if (i.bind()) rdma_create_srq(i.id, nullptr, &a);
         r.go();
         if (i.id != nullptr) rdma_destroy_srq(i.id);
         i.end();
     }},
    {"rdma_init_qp_attr",
     [](Run& r) {
         Id i;
         i.bind();
         ibv_qp_attr a{};
         a.qp_state = IBV_QPS_INIT;
         int mask;
         r.go();
         if (i.id != nullptr) rdma_init_qp_attr(i.id, &a, &mask);
         i.end();
     }},
    {"rdma_connect",
     [](Run& r) {
         Id i;
         const bool ready = i.resolve() && i.add_qp();
         r.go();
         if (ready) rdma_connect(i.id, nullptr);
         i.end();
     }},
    {"rdma_accept",
     [](Run& r) {
         Id i;
         r.go();
         if (i.id != nullptr) rdma_accept(i.id, nullptr);
         i.end();
     }},
    {"rdma_reject",
     [](Run& r) {
         Id i;
         r.go();
         if (i.id != nullptr) rdma_reject(i.id, nullptr, 0);
         i.end();
     }},
    {"rdma_reject_ece",
     [](Run& r) {
         Id i;
         r.go();
         if (i.id != nullptr) rdma_reject_ece(i.id, nullptr, 0);
         i.end();
     }},
    {"rdma_establish",
     [](Run& r) {
         Id i;
         r.go();
         if (i.id != nullptr) rdma_establish(i.id);
         i.end();
     }},
    {"rdma_notify",
     [](Run& r) {
         Id i;
         r.go();
         if (i.id != nullptr) rdma_notify(i.id, IBV_EVENT_COMM_EST);
         i.end();
     }},
    {"rdma_disconnect",
     [](Run& r) {
         Id i;
         const bool asked = i.resolve() && i.add_qp() && rdma_connect(i.id, nullptr) == 0;
         r.go();
         if (asked) rdma_disconnect(i.id);
         i.end();
     }},
    {"rdma_join_multicast",
     [](Run& r) {
         DatagramId d;
         const bool bound = d.bind();
         r.go();
         if (bound) rdma_join_multicast(d.id, d.where(), nullptr);
         d.end();
     }},
    {"rdma_join_multicast_ex",
     [](Run& r) {
         DatagramId d;
         const bool bound = d.bind();
         rdma_cm_join_mc_attr_ex a{};
         a.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
         a.addr = d.where();
         r.go();
         if (bound) rdma_join_multicast_ex(d.id, &a, nullptr);
         d.end();
     }},
    {"rdma_leave_multicast",
     [](Run& r) {
         DatagramId d;
         if (d.bind()) rdma_join_multicast(d.id, d.where(), nullptr);
         r.go();
         if (d.id != nullptr) rdma_leave_multicast(d.id, d.where());
         d.end();
     }},
};

// On descriptors that are no rsockets: tests/rsocket has the others. Polling none is a sleep.
constexpr Row kSocketRows[] = {
    {"rsocket",
     [](Run& r) {
         r.go();
         const int fd = rsocket(AF_INET, SOCK_STREAM, 0);
         if (fd >= 0) rclose(fd);
     }},
    {"rbind",
     [](Run& r) {
         r.go();
         rbind(0, nullptr, 0);
     }},
    {"rlisten",
     [](Run& r) {
         r.go();
         rlisten(0, 0);
     }},
    {"raccept",
     [](Run& r) {
         r.go();
         raccept(0, nullptr, nullptr);
     }},
    {"rconnect",
     [](Run& r) {
         r.go();
         rconnect(0, nullptr, 0);
     }},
    {"rshutdown",
     [](Run& r) {
         r.go();
         rshutdown(0, 0);
     }},
    {"rclose",
     [](Run& r) {
         r.go();
         rclose(0);
     }},
    {"rrecv",
     [](Run& r) {
         r.go();
         rrecv(0, nullptr, 0, 0);
     }},
    {"rrecvfrom",
     [](Run& r) {
         r.go();
         rrecvfrom(0, nullptr, 0, 0, nullptr, nullptr);
     }},
    {"rrecvmsg",
     [](Run& r) {
         r.go();
         rrecvmsg(0, nullptr, 0);
     }},
    {"rsend",
     [](Run& r) {
         r.go();
         rsend(0, nullptr, 0, 0);
     }},
    {"rsendto",
     [](Run& r) {
         r.go();
         rsendto(0, nullptr, 0, 0, nullptr, 0);
     }},
    {"rsendmsg",
     [](Run& r) {
         r.go();
         rsendmsg(0, nullptr, 0);
     }},
    {"rread",
     [](Run& r) {
         r.go();
         rread(0, nullptr, 0);
     }},
    {"rreadv",
     [](Run& r) {
         r.go();
         rreadv(0, nullptr, 0);
     }},
    {"rwrite",
     [](Run& r) {
         r.go();
         rwrite(0, nullptr, 0);
     }},
    {"rwritev",
     [](Run& r) {
         r.go();
         rwritev(0, nullptr, 0);
     }},
    {"rpoll",
     [](Run& r) {
         r.go();
         rpoll(nullptr, 0, -1);
     },
     true},
    {"rselect",
     [](Run& r) {
         r.go();
         rselect(0, nullptr, nullptr, nullptr, nullptr);
     },
     true},
    {"rgetpeername",
     [](Run& r) {
         r.go();
         rgetpeername(0, nullptr, nullptr);
     }},
    {"rgetsockname",
     [](Run& r) {
         r.go();
         rgetsockname(0, nullptr, nullptr);
     }},
    {"rsetsockopt",
     [](Run& r) {
         r.go();
         rsetsockopt(0, 0, 0, nullptr, 0);
     }},
    {"rgetsockopt",
     [](Run& r) {
         r.go();
         rgetsockopt(0, 0, 0, nullptr, nullptr);
     }},
    {"rfcntl",
     [](Run& r) {
         r.go();
         rfcntl(0, 0);
     }},
    {"riomap",
     [](Run& r) {
         r.go();
         riomap(0, nullptr, 0, 0, 0, 0);
     }},
    {"riounmap",
     [](Run& r) {
         r.go();
         riounmap(0, nullptr, 0);
     }},
    {"riowrite",
     [](Run& r) {
         r.go();
         riowrite(0, nullptr, 0, 0, 0);
     }},
};

}  // namespace

std::vector<Row> rdmacm_rows() {
    std::vector<Row> all(std::begin(kIdRows), std::end(kIdRows));
    all.insert(all.end(), std::begin(kEndpointRows), std::end(kEndpointRows));
    return all;
}

std::vector<Row> rsocket_rows() {
    return {std::begin(kSocketRows), std::end(kSocketRows)};
}

}  // namespace feroce::calls
