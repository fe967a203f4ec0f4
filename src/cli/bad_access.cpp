// A program that does wrong on purpose: it connects two queue pairs of its own and writes through
// the one with a key that the other never gave. What it prints is all that plain verbs tells;
// `feroce explain` tells the rest. With --wait it stays until its standard input ends.
#include <infiniband/verbs.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

struct Fabric {
    ibv_context* context = nullptr;
    ibv_pd* pd = nullptr;
    ibv_cq* cq = nullptr;
    ibv_mr* mr = nullptr;
    std::array<ibv_qp*, 2> qps{};
};

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

void connect(ibv_context* context, ibv_qp* qp, std::uint32_t peer) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    need(::ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
         "INIT");
    attr = {};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = peer;
    attr.rq_psn = 1000;
    attr.max_dest_rd_atomic = 1;
    attr.min_rnr_timer = 12;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.hop_limit = 64;
    need(::ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid), "ibv_query_gid");
    need(::ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                             IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
         "RTR");
    attr.qp_state = IBV_QPS_RTS;
    attr.sq_psn = 1000;
    attr.timeout = 14;
    attr.retry_cnt = 7;
    attr.rnr_retry = 7;
    attr.max_rd_atomic = 1;
    need(::ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                             IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC),
         "RTS");
}

Fabric set_up(const char* device, void* memory, std::size_t size) {
    Fabric f;
    f.context = open_device(device);
    f.pd = need(::ibv_alloc_pd(f.context), "ibv_alloc_pd");
    f.cq = need(::ibv_create_cq(f.context, 16, nullptr, nullptr, 0), "ibv_create_cq");
    const int access = IBV_ACCESS_LOCAL_WRITE;  // An int: the macro mixes it with another enum.
    f.mr = need(::ibv_reg_mr(f.pd, memory, size, access), "ibv_reg_mr");
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = f.cq;
    init.cap = {.max_send_wr = 4,
                .max_recv_wr = 4,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = 0};
    init.qp_type = IBV_QPT_RC;
    for (ibv_qp*& qp : f.qps) qp = need(::ibv_create_qp(f.pd, &init), "ibv_create_qp");
    connect(f.context, f.qps[0], f.qps[1]->qp_num);
    connect(f.context, f.qps[1], f.qps[0]->qp_num);
    return f;
}

ibv_wc_status write_with_wrong_key(const Fabric& f, void* memory) {
    ibv_sge sge{reinterpret_cast<std::uintptr_t>(memory), 8, f.mr->lkey};
    ibv_send_wr wr{}, *bad = nullptr;
    wr.wr_id = 0x42;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = sge.addr;
    wr.wr.rdma.rkey = f.mr->rkey ^ 0x5500;
    need(::ibv_post_send(f.qps[0], &wr, &bad), "ibv_post_send");
    ibv_wc wc{};
    int count = 0;
    while (count == 0) count = ::ibv_poll_cq(f.cq, 1, &wc);
    std::printf("work request 0x%llx: %s\n", static_cast<unsigned long long>(wc.wr_id),
                ::ibv_wc_status_str(wc.status));
    std::fflush(stdout);
    return wc.status;
}

}  // namespace

int main(int argc, char** argv) {
    const bool waits = argc > 1 && std::strcmp(argv[1], "--wait") == 0;
    const bool names_device = argc > (waits ? 2 : 1);
    const char* device = names_device ? argv[argc - 1] : "feroce_lo";
    if (!names_device) ::setenv("FEROCE_DEVICES", "lo", 0);
    static std::uint64_t memory[8];
    const Fabric fabric = set_up(device, memory, sizeof memory);
    const ibv_wc_status status = write_with_wrong_key(fabric, memory);
    char byte;
    while (waits && ::read(STDIN_FILENO, &byte, 1) > 0) continue;
    return status == IBV_WC_REM_ACCESS_ERR ? 0 : 1;
}
