// The server of wireprobe: does for each probe what its client expects, and prints what arrived.
#include <endian.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "wireprobe.hpp"

namespace wireprobe {
namespace {

constexpr int kPatienceMs = 60'000;

struct Server {
    rdma_cm_id* id;
    std::string probe;
    ibv_mr* target;
    ibv_mr* receives;
    ibv_mr* sends;
    ibv_mw* windows[kWindows];

    bool is(std::string_view name) const { return probe == name; }
};

void post_receives(Server& s) {
    ibv_mr bad = *s.receives;
    bad.lkey ^= 0x55;
    const int count = s.is("rnr") || s.is("rnrfail") ? 0 : kReceives;
    const std::size_t bytes = s.is("toolong") ? 64 : kReceive;
    for (int i = 0; i < count; i++)
        if (rdma_post_recv(s.id, nullptr, buffers.receive[i], bytes,
                           s.is("badrecv") ? &bad : s.receives) != 0)
            die("rdma_post_recv");
}

bool accept(Server& s) {
    const Target target{htobe64(reinterpret_cast<std::uintptr_t>(buffers.remote)),
                        htobe32(s.target->rkey), htobe32(kBuffer)};
    rdma_conn_param parameters{};
    parameters.private_data = &target;
    parameters.private_data_len = sizeof target;
    parameters.initiator_depth = parameters.responder_resources = 4;
    // The client repeats as often as the REP says.
    parameters.rnr_retry_count = s.is("rnrfail") ? 1 : 7;
    if (rdma_accept(s.id, &parameters) == 0) return true;
    std::printf("FAILED: rdma_accept\n");
    return false;
}

void send_to_client(Server& s, std::size_t bytes) {
    ibv_wc done{};
    if (rdma_post_send(s.id, nullptr, buffers.local, bytes, s.sends, 0) != 0) die("send");
    if (rdma_get_send_comp(s.id, &done) < 0 || done.status != IBV_WC_SUCCESS) die("send");
}

// Type 2 windows over the target, bound by work requests.
void open_windows(Server& s) {
    std::uint32_t keys[kWindows];
    for (int i = 0; i < kWindows; i++) {
        s.windows[i] = ibv_alloc_mw(s.id->pd, IBV_MW_TYPE_2);
        if (s.windows[i] == nullptr) die("ibv_alloc_mw");
        const std::uint32_t rkey = ibv_inc_rkey(s.windows[i]->rkey);
        ibv_send_wr request{};
        request.opcode = IBV_WR_BIND_MW;
        request.bind_mw.mw = s.windows[i];
        request.bind_mw.rkey = rkey;
        request.bind_mw.bind_info = {s.target, reinterpret_cast<std::uintptr_t>(buffers.remote),
                                     kBuffer, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
        ibv_send_wr* bad = nullptr;
        ibv_wc done{};
        if (ibv_post_send(s.id->qp, &request, &bad) != 0) die("bind");
        if (rdma_get_send_comp(s.id, &done) < 0 || done.status != IBV_WC_SUCCESS) die("bind");
        keys[i] = htobe32(rkey);
    }
    std::memcpy(buffers.local, keys, sizeof keys);
    send_to_client(s, sizeof keys);
}

void await_disconnect(Server& s) {
    for (int i = 0; i < 10; i++) {
        const int event = next_event(s.id, kPatienceMs);
        if (event == RDMA_CM_EVENT_DISCONNECTED) return;
        if (event < 0) break;
    }
    std::printf("FAILED: the client did not disconnect\n");
}

// Of a synchronous id, as these are, the call returns when the peer has answered.
void hang_up(Server& s) {
    ibv_wc done{};
    if (rdma_get_recv_comp(s.id, &done) < 0) die("rdma_get_recv_comp");
    std::printf("disconnect: %s\n", rdma_disconnect(s.id) == 0 ? "answered" : "FAILED");
}

// A packet that waited for our receive: long enough to see an RNR NAK.
void post_late(Server& s) {
    ::usleep(300'000);
    if (rdma_post_recv(s.id, nullptr, buffers.receive[0], kReceive, s.receives) != 0)
        die("rdma_post_recv");
}

void take_part(Server& s) {
    if (s.is("sendinv")) open_windows(s);
    if (s.is("rnr")) post_late(s);
    if (s.is("noaccess")) {
        ibv_qp_attr none{};
        if (ibv_modify_qp(s.id->qp, &none, IBV_QP_ACCESS_FLAGS) != 0) die("ibv_modify_qp");
        send_to_client(s, 1);
    }
    if (s.is("killed"))
        outlive_peer(s.id);
    else if (s.is("hangup"))
        hang_up(s);
    else
        await_disconnect(s);
}

void print_receive(const ibv_wc& done) {
    std::printf("receive: %s", ibv_wc_status_str(done.status));
    if (done.status == IBV_WC_SUCCESS) {
        std::printf(", opcode %d, %u bytes", done.opcode, done.byte_len);
        if ((done.wc_flags & IBV_WC_GRH) != 0) std::printf(", grh");
        if ((done.wc_flags & IBV_WC_IP_CSUM_OK) != 0) std::printf(", checksum");
        if ((done.wc_flags & IBV_WC_WITH_INV) != 0) std::printf(", invalidate");
        if ((done.wc_flags & IBV_WC_WITH_IMM) != 0)
            std::printf(", immediate %#x", be32toh(done.imm_data));
    }
    std::printf("\n");
}

void print_receives(const Server& s) {
    ibv_wc done{};
    while (ibv_poll_cq(s.id->recv_cq, 1, &done) > 0)
        if (done.status != IBV_WC_WR_FLUSH_ERR) print_receive(done);
}

void print_async_events(const Server& s) {
    const int fd = s.id->verbs->async_fd;
    ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
    ibv_async_event event{};
    while (ibv_get_async_event(s.id->verbs, &event) == 0) {
        std::printf("event: %s\n", ibv_event_type_str(event.event_type));
        ibv_ack_async_event(&event);
    }
}

// Whether the queue pair was broken by the peer, before we break it ourselves.
void print_state(const Server& s) {
    ibv_qp_attr found{};
    ibv_qp_init_attr unused{};
    if (ibv_query_qp(s.id->qp, &found, IBV_QP_STATE, &unused) != 0) die("ibv_query_qp");
    std::printf("queue pair: %s\n", found.qp_state == IBV_QPS_ERR ? "in error" : "working");
}

void serve_connection(rdma_cm_id* id) {
    Server s{};
    s.id = id;
    const auto* name = static_cast<const char*>(id->event->param.conn.private_data);
    s.probe.assign(name, ::strnlen(name, kName));
    fill();
    std::printf("probe %s\n", s.probe.c_str());
    if (s.is("reject")) {
        rdma_reject(id, "no", 3);
        rdma_destroy_ep(id);
        return;
    }
    s.target =
        register_memory(id, buffers.remote, kBuffer,
                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                            IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND);
    s.receives =
        register_memory(id, buffers.receive, sizeof buffers.receive, IBV_ACCESS_LOCAL_WRITE);
    s.sends = register_memory(id, buffers.local, kBuffer, 0);
    post_receives(s);
    if (accept(s)) {
        take_part(s);
        print_state(s);
        print_receives(s);
        print_async_events(s);
    }
    for (ibv_mw* window : s.windows)
        if (window != nullptr) ibv_dealloc_mw(window);
    ibv_dereg_mr(s.target);
    ibv_dereg_mr(s.receives);
    ibv_dereg_mr(s.sends);
    rdma_destroy_ep(id);
}

void serve_datagrams(rdma_cm_id* id) {
    ibv_mr* receives =
        register_memory(id, buffers.receive, sizeof buffers.receive, IBV_ACCESS_LOCAL_WRITE);
    for (auto& place : buffers.receive)
        if (rdma_post_recv(id, nullptr, place, kReceive, receives) != 0) die("rdma_post_recv");
    rdma_conn_param parameters{};
    parameters.qp_num = id->qp->qp_num;
    std::printf("probe ud\n");
    if (rdma_accept(id, &parameters) != 0) die("rdma_accept");
    for (int i = 0; i < 3; i++) {
        ibv_wc done{};
        if (rdma_get_recv_comp(id, &done) < 0) die("rdma_get_recv_comp");
        print_receive(done);  // 40 of the bytes are the GRH.
    }
    ibv_dereg_mr(receives);
    rdma_destroy_ep(id);
}

}  // namespace

void serve(const char* address, const char* port, bool datagram) {
    ibv_qp_init_attr wanted = queue_pair(datagram);
    rdma_cm_id* listener = nullptr;
    if (rdma_create_ep(&listener, resolve(address, port, true, datagram), nullptr, &wanted) != 0)
        die("rdma_create_ep");
    if (rdma_listen(listener, 4) != 0) die("rdma_listen");
    rdma_cm_id* id = nullptr;
    while (rdma_get_request(listener, &id) == 0) {
        if (datagram)
            serve_datagrams(id);
        else
            serve_connection(id);
        std::fflush(stdout);
    }
    die("rdma_get_request");
}

}  // namespace wireprobe
