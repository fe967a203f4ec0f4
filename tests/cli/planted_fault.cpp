// One end of a connection that goes wrong on purpose, for tests of `feroce explain`. Two of these
// talk through whoever started them: each prints where it is, reads where the other is, prints
// "ready", reads a line, does its part, prints "done STATUS" (or errno) and stays until its input
// ends. Usage: planted_fault initiator|target FAULT DEVICE GID_INDEX
#include <infiniband/verbs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

[[noreturn]] void fail(const char* what) {
    std::perror(what);
    std::exit(1);
}

template <class T>
T* need(T* object, const char* what) {
    if (object == nullptr) fail(what);
    return object;
}

void need(int error, const char* what) {
    if (error == 0) return;
    errno = error;
    fail(what);
}

struct Place {
    std::uint32_t qpn = 0;
    std::uint32_t rkey = 0;
    std::uint64_t address = 0;
    ibv_gid gid{};
};

constexpr std::size_t kBytes = 8192;
constexpr std::uint32_t kQkey = 0x11;

struct End {
    bool initiates = false;
    std::string fault;
    int gid_index = 0;
    ibv_context* context = nullptr;
    ibv_pd* pd = nullptr;
    ibv_cq* cq = nullptr;
    ibv_mr* mr = nullptr;
    ibv_qp* qp = nullptr;
    alignas(64) std::array<std::byte, kBytes> memory{};

    bool is(const char* name) const { return fault == name; }
    int refusal = 0;  // The errno of a connect that fails on purpose.
    bool datagrams() const { return is("wrong-qkey") || is("ud-no-receive") || is("ud-no-grh"); }
    bool connect_is_refused() const {
        return initiates && (is("gid-index") || is("no-grh") || is("mtu-large"));
    }
    // Who waits for an answer that never comes should not wait long; who gets one may have to.
    bool silent() const {
        return is("wrong-state") || is("killed") || is("hole-there") || is("hole-back") ||
               is("address-gone") || is("exits") || is("psn") || is("psn-behind") ||
               is("destroyed");
    }
};

ibv_context* open_device(const char* name) {
    int count = 0;
    ibv_device** list = need(::ibv_get_device_list(&count), "ibv_get_device_list");
    ibv_context* context = nullptr;
    for (int i = 0; i < count; ++i)
        if (std::strcmp(::ibv_get_device_name(list[i]), name) == 0)
            context = ::ibv_open_device(list[i]);
    ::ibv_free_device_list(list);
    return need(context, name);
}

void make_objects(End& end, const char* device) {
    end.context = open_device(device);
    end.pd = need(::ibv_alloc_pd(end.context), "ibv_alloc_pd");
    end.cq = need(::ibv_create_cq(end.context, end.is("cq-overrun") ? 2 : 16, nullptr, nullptr, 0),
                  "ibv_create_cq");
    const int remote = end.is("mr-access") ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
    end.mr = need(::ibv_reg_mr(end.pd, end.memory.data(), kBytes, IBV_ACCESS_LOCAL_WRITE | remote),
                  "ibv_reg_mr");
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = end.cq;
    init.qp_type = end.datagrams() ? IBV_QPT_UD : IBV_QPT_RC;
    init.cap = {64, 64, 1, 1, 0};
    end.qp = need(::ibv_create_qp(end.pd, &init), "ibv_create_qp");
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qkey = kQkey;
    if (!end.is("qp-access")) attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    need(::ibv_modify_qp(end.qp, &attr,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                             (end.datagrams() ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)),
         "INIT");
}

void tell_place(const End& end) {
    ibv_gid gid{};
    need(::ibv_query_gid(end.context, 1, end.gid_index, &gid), "ibv_query_gid");
    std::printf("%" PRIx32 " %" PRIx32 " %" PRIxPTR " ", end.qp->qp_num, end.mr->rkey,
                reinterpret_cast<std::uintptr_t>(end.memory.data()));
    for (const std::uint8_t byte : gid.raw) std::printf("%02x", byte);
    std::printf("\n");
    std::fflush(stdout);
}

Place hear_place() {
    Place place;
    char gid[33] = "";
    if (std::scanf("%" SCNx32 " %" SCNx32 " %" SCNx64 " %32s", &place.qpn, &place.rkey,
                   &place.address, gid) != 4)
        fail("the peer's place");
    for (std::size_t i = 0; i < 16; ++i) {
        const char digits[] = {gid[2 * i], gid[2 * i + 1], 0};
        place.gid.raw[i] = static_cast<std::uint8_t>(std::strtoul(digits, nullptr, 16));
    }
    return place;
}

ibv_ah_attr way_to(const End& end, const Place& peer) {
    ibv_ah_attr way{};
    way.is_global = 1;
    way.port_num = 1;
    way.grh.hop_limit = 64;
    way.grh.sgid_index = static_cast<std::uint8_t>(end.gid_index);
    way.grh.dgid = peer.gid;
    return way;
}

void connect(End& end, const Place& peer) {
    if (end.is("wrong-state") && !end.initiates) return;
    if (end.is("posted-early") && end.initiates) return;
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = end.is("mtu") && !end.initiates ? IBV_MTU_512 : IBV_MTU_1024;
    attr.dest_qp_num = peer.qpn;
    attr.rq_psn = 1000;
    attr.max_dest_rd_atomic = 1;
    attr.min_rnr_timer = 12;
    attr.ah_attr = way_to(end, peer);
    if (end.is("psn") && !end.initiates) attr.rq_psn = 5000;
    if (end.is("psn-behind") && !end.initiates) attr.rq_psn = 500;
    if (end.connect_is_refused()) {
        if (end.is("gid-index")) attr.ah_attr.grh.sgid_index = 77;
        if (end.is("no-grh")) attr.ah_attr.is_global = 0;
        if (end.is("mtu-large")) attr.path_mtu = static_cast<ibv_mtu>(IBV_MTU_4096 + 1);
    }
    const int rtr = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    const int error = ::ibv_modify_qp(end.qp, &attr, IBV_QP_STATE | (end.datagrams() ? 0 : rtr));
    if (end.connect_is_refused()) {
        end.refusal = error;
        return;
    }
    need(error, "RTR");
    attr.qp_state = IBV_QPS_RTS;
    attr.sq_psn = 1000;
    attr.timeout = end.silent() ? 14 : 18;  // 67 ms or 1 s, eight times.
    if (end.is("late")) attr.timeout = 22;  // 17 s: it ends before.
    attr.retry_cnt = 7;
    attr.rnr_retry = end.is("queue-full") ? 7 : 1;  // 7: for ever.
    attr.max_rd_atomic = 1;
    const int rts = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    need(::ibv_modify_qp(end.qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | (end.datagrams() ? 0 : rts)),
         "RTS");
}

void post_receives(const End& end) {
    const bool wants = !end.initiates || end.is("orderly");
    if (!wants || end.is("no-receive") || end.is("wrong-state") || end.is("queue-full") ||
        end.is("ud-no-receive"))
        return;
    const std::uint32_t bytes = end.is("ud-no-grh") ? 64 : kBytes;
    ibv_sge sge{reinterpret_cast<std::uintptr_t>(end.memory.data()), bytes, end.mr->lkey};
    ibv_recv_wr wr{};
    ibv_recv_wr* bad = nullptr;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    const int count = end.is("cq-overrun") ? end.cq->cqe + 4 : 4;
    for (int i = 0; i < count; ++i) need(::ibv_post_recv(end.qp, &wr, &bad), "ibv_post_recv");
}

ibv_wc_status wait_for_completion(const End& end) {
    ibv_wc wc{};
    int count = 0;
    while (count == 0) count = ::ibv_poll_cq(end.cq, 1, &wc);
    return wc.status;
}

// Ends the connection as programs do, and takes what is flushed.
int end_orderly(const End& end) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    need(::ibv_modify_qp(end.qp, &attr, IBV_QP_STATE), "ERR");
    return wait_for_completion(end);
}

// Until the queue is full: the peer has no receives.
int fill(const End& end, ibv_send_wr& wr) {
    ibv_send_wr* bad = nullptr;
    int error = 0;
    while (error == 0) error = ::ibv_post_send(end.qp, &wr, &bad);
    return error;
}

int register_badly(End& end) {
    const int access = IBV_ACCESS_REMOTE_WRITE;  // Without LOCAL_WRITE: nobody may.
    return ::ibv_reg_mr(end.pd, end.memory.data(), kBytes, access) == nullptr ? errno : 0;
}

int initiate(End& end, const Place& peer) {
    if (end.is("orderly")) return end_orderly(end);
    if (end.is("reg-mr")) return register_badly(end);
    if (end.connect_is_refused()) return end.refusal;
    ibv_sge sge{reinterpret_cast<std::uintptr_t>(end.memory.data()), 64, end.mr->lkey};
    ibv_send_wr wr{};
    ibv_send_wr* bad = nullptr;
    wr.wr_id = 0x42;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.send_flags = IBV_SEND_SIGNALED;
    const bool sends = end.is("no-receive") || end.is("cq-overrun") || end.datagrams() ||
                       end.is("queue-full") || end.is("inline");
    wr.opcode = sends ? IBV_WR_SEND : IBV_WR_RDMA_WRITE;
    if (end.datagrams()) {
        ibv_ah_attr way = way_to(end, peer);
        wr.wr.ud = {need(::ibv_create_ah(end.pd, &way), "ibv_create_ah"), peer.qpn,
                    end.is("wrong-qkey") ? kQkey * 2 : kQkey};
    } else {
        wr.wr.rdma = {peer.address, peer.rkey};
    }
    if (end.is("bad-rkey")) wr.wr.rdma.rkey ^= 0x100;
    if (end.is("bad-lkey")) sge.lkey ^= 0x100;
    if (end.is("own-gone")) need(::ibv_dereg_mr(end.mr), "ibv_dereg_mr");
    if (end.is("inline")) {
        sge.length = kBytes;
        wr.send_flags |= IBV_SEND_INLINE;
    }
    if (end.is("queue-full")) return fill(end, wr);
    if (end.is("out-of-bounds")) wr.wr.rdma.remote_addr += kBytes - 8;
    if (end.is("mtu")) sge.length = 3000;
    // The message whose completion is lost was acknowledged before; the next one fails.
    const int messages = end.is("cq-overrun") ? end.cq->cqe + 2 : 1;
    ibv_wc_status status = IBV_WC_SUCCESS;
    for (int i = 0; i < messages; ++i) {
        if (const int error = ::ibv_post_send(end.qp, &wr, &bad); error != 0) return error;
        if (end.is("late")) return 0;
        status = wait_for_completion(end);
    }
    return status;
}

void read_line() {
    for (int c = 0; c != EOF && c != '\n';) c = std::getchar();
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 5) return 2;
    static End end;
    end.initiates = std::strcmp(argv[1], "initiator") == 0;
    end.fault = argv[2];
    end.gid_index = std::atoi(argv[4]);
    make_objects(end, argv[3]);
    tell_place(end);
    const Place peer = hear_place();
    read_line();  // The rest of that line.
    connect(end, peer);
    post_receives(end);
    std::printf("ready\n");
    std::fflush(stdout);
    read_line();
    if (end.is("exits") && !end.initiates) ::_exit(3);
    if (end.is("deregistered") && !end.initiates) {
        need(::ibv_dereg_mr(end.mr), "ibv_dereg_mr");
        std::printf("gone\n");
        std::fflush(stdout);
    }
    if ((end.is("destroyed") || end.is("late")) && !end.initiates) {
        need(::ibv_destroy_qp(end.qp), "ibv_destroy_qp");
        std::printf("gone\n");
        std::fflush(stdout);
    }
    if (end.initiates) {
        std::printf("done %d\n", initiate(end, peer));
        std::fflush(stdout);
    }
    for (int c = 0; c != EOF; c = std::getchar())
        if (end.is("late") && end.initiates && c == '\n') initiate(end, peer);
    if (end.is("late") && end.initiates) need(::ibv_destroy_qp(end.qp), "ibv_destroy_qp");
    return 0;
}
