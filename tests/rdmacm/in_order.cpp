// A client connects again and again, each time as soon as it is told that the connection before is
// established: it has sent that one's RTU before the next one's REQ. The server must hear of them
// in that order, although the two take different ways into its process.
//
//   in_order server|client ADDRESS PORT
#include <rdma/rdma_cma.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr int kConnections = 300;

[[noreturn]] void fail(const char* what) {
    std::perror(what);
    std::exit(1);
}

ibv_qp_init_attr queue_pair() {
    ibv_qp_init_attr out{};
    out.cap = {4, 4, 1, 1, 0};
    out.qp_type = IBV_QPT_RC;
    return out;
}

rdma_addrinfo* resolve(const char* address, const char* port, int flags) {
    rdma_addrinfo hints{}, *found = nullptr;
    hints.ai_port_space = RDMA_PS_TCP;
    hints.ai_flags = flags;
    if (rdma_getaddrinfo(address, port, &hints, &found) != 0) fail("rdma_getaddrinfo");
    return found;
}

void connect(const char* address, const char* port) {
    rdma_addrinfo* server = resolve(address, port, 0);
    std::vector<rdma_cm_id*> ids;
    for (int i = 0; i < kConnections; ++i) {
        ibv_qp_init_attr attributes = queue_pair();
        rdma_cm_id* id = nullptr;
        if (rdma_create_ep(&id, server, nullptr, &attributes) != 0) fail("rdma_create_ep");
        if (rdma_connect(id, nullptr) != 0) fail("rdma_connect");
        ids.push_back(id);
    }
    for (rdma_cm_id* id : ids) rdma_destroy_ep(id);
}

void accept(rdma_cm_id* id) {
    ibv_qp_init_attr attributes = queue_pair();
    if (rdma_create_qp(id, nullptr, &attributes) != 0) fail("rdma_create_qp");
    if (rdma_accept(id, nullptr) != 0) fail("rdma_accept");
}

int serve(const char* address, const char* port) {
    rdma_event_channel* channel = rdma_create_event_channel();
    rdma_cm_id* listener = nullptr;
    if (channel == nullptr || rdma_create_id(channel, &listener, nullptr, RDMA_PS_TCP) != 0 ||
        rdma_bind_addr(listener, resolve(address, port, RAI_PASSIVE)->ai_src_addr) != 0 ||
        rdma_listen(listener, 64) != 0)
        fail("rdma_listen");
    int requests = 0, established = 0, overtaken = 0;
    while (established < kConnections) {
        rdma_cm_event* event = nullptr;
        if (rdma_get_cm_event(channel, &event) != 0) fail("rdma_get_cm_event");
        rdma_cm_id* id = event->id;
        const rdma_cm_event_type type = event->event;
        rdma_ack_cm_event(event);
        if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
            if (requests++ != established) ++overtaken;
            accept(id);
        }
        if (type == RDMA_CM_EVENT_ESTABLISHED) ++established;
    }
    std::printf("%d of %d requests came before the connection before them was established\n",
                overtaken, requests);
    return overtaken == 0 ? 0 : 1;
}

}  // namespace

int main(int count, char** words) {
    if (count != 4) return 2;
    if (std::strcmp(words[1], "server") == 0) return serve(words[2], words[3]);
    connect(words[2], words[3]);
    return 0;
}
