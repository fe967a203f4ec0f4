// wireprobe server|udserver ADDRESS PORT         answers clients, one at a time, until killed
// wireprobe client ADDRESS PORT PROBE            exit status 0 when every result is as expected
// This file: what both sides share, and main.
#include "wireprobe.hpp"

#include <poll.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace wireprobe {

Buffers buffers;

void die(const char* what) {
    std::printf("FAILED: %s: %s\n", what, std::strerror(errno));
    std::exit(1);
}

void fill() {
    for (std::size_t i = 0; i < kBuffer; i++) {
        buffers.local[i] = static_cast<std::uint8_t>(i % 251);
        buffers.remote[i] = static_cast<std::uint8_t>(250 - i % 251);
    }
}

rdma_addrinfo* resolve(const char* address, const char* port, bool passive, bool datagram) {
    rdma_addrinfo hints{};
    hints.ai_port_space = datagram ? RDMA_PS_UDP : RDMA_PS_TCP;
    hints.ai_flags = RAI_NUMERICHOST | (passive ? RAI_PASSIVE : 0);
    rdma_addrinfo* found = nullptr;
    if (rdma_getaddrinfo(address, port, &hints, &found) != 0) die("rdma_getaddrinfo");
    return found;
}

ibv_qp_init_attr queue_pair(bool datagram) {
    ibv_qp_init_attr wanted{};
    wanted.cap.max_send_wr = 16;
    wanted.cap.max_recv_wr = kReceives;
    wanted.cap.max_send_sge = 1;
    wanted.cap.max_recv_sge = 1;
    wanted.qp_type = datagram ? IBV_QPT_UD : IBV_QPT_RC;
    wanted.sq_sig_all = 1;
    return wanted;
}

ibv_mr* register_memory(rdma_cm_id* id, void* start, std::size_t bytes, int access) {
    ibv_mr* region = ibv_reg_mr(id->pd, start, bytes, access);
    if (region == nullptr) die("ibv_reg_mr");
    return region;
}

int next_event(rdma_cm_id* id, int milliseconds) {
    pollfd waiting{id->channel->fd, POLLIN, 0};
    if (::poll(&waiting, 1, milliseconds) != 1) return -1;
    rdma_cm_event* event = nullptr;
    if (rdma_get_cm_event(id->channel, &event) != 0) die("rdma_get_cm_event");
    const int type = event->event;
    rdma_ack_cm_event(event);
    return type;
}

bool outlive_peer(rdma_cm_id* id) {
    constexpr int kLooks = 200;
    constexpr int kLookMs = 200;
    bool is_outstanding = false;
    std::printf("ready\n");
    std::fflush(stdout);
    for (int i = 0; i < kLooks; i++) {
        if (next_event(id, kLookMs) == RDMA_CM_EVENT_DISCONNECTED) {
            std::printf("peer gone: the event says disconnected\n");
            return true;
        }
        // An empty WRITE needs no key, and is acknowledged only by one who lives.
        ibv_send_wr request{};
        request.opcode = IBV_WR_RDMA_WRITE;
        ibv_send_wr* bad = nullptr;
        if (!is_outstanding && ibv_post_send(id->qp, &request, &bad) != 0) die("ibv_post_send");
        ibv_wc done{};
        is_outstanding = ibv_poll_cq(id->send_cq, 1, &done) == 0;
        if (!is_outstanding && done.status != IBV_WC_SUCCESS) {
            std::printf("peer gone: a WRITE says %s\n", ibv_wc_status_str(done.status));
            return true;
        }
    }
    std::printf("FAILED: the peer's end was not noticed\n");
    return false;
}

}  // namespace wireprobe

int main(int count, char** words) {
    using namespace wireprobe;
    fill();
    const std::string_view role = count > 3 ? words[1] : "";
    if (role == "server" || role == "udserver") serve(words[2], words[3], role == "udserver");
    if (role != "client" || count != 5) {
        std::fputs(
            "usage: wireprobe server|udserver ADDRESS PORT\n"
            "       wireprobe client ADDRESS PORT PROBE\n",
            stderr);
        return 2;
    }
    const std::string_view probe = words[4];
    return probe == "ud" ? datagram_client(words[2], words[3]) : client(words[2], words[3], probe);
}
