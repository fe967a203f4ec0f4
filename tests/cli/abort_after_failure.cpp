// A program that aborts as soon as it gets a failing completion: a queue pair connected to itself
// writes by a key that nobody has. Usage: abort_after_failure [new], for the newer way of polling.
#include <infiniband/verbs.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

void need(bool good, const char* what) {
    if (good) return;
    std::perror(what);
    std::exit(1);
}

ibv_context* open_first() {
    ibv_device** list = ::ibv_get_device_list(nullptr);
    need(list != nullptr && list[0] != nullptr, "ibv_get_device_list");
    ibv_context* context = ::ibv_open_device(list[0]);
    need(context != nullptr, "ibv_open_device");
    return context;
}

void connect_to_itself(ibv_context* context, ibv_qp* qp) {
    ibv_qp_attr a{};
    a.port_num = 1;
    a.qp_access_flags = kAccess;
    a.path_mtu = IBV_MTU_1024;
    a.dest_qp_num = qp->qp_num;
    a.timeout = 14;
    a.retry_cnt = 7;
    a.ah_attr.is_global = 1;
    a.ah_attr.port_num = 1;
    need(::ibv_query_gid(context, 1, 0, &a.ah_attr.grh.dgid) == 0, "ibv_query_gid");
    const auto move = [&](ibv_qp_state state, int mask) {
        a.qp_state = state;
        need(::ibv_modify_qp(qp, &a, IBV_QP_STATE | mask) == 0, "ibv_modify_qp");
    };
    move(IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    move(IBV_QPS_RTR, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    move(IBV_QPS_RTS, IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                          IBV_QP_MAX_QP_RD_ATOMIC);
}

bool failed(ibv_cq_ex* cq, bool newer) {
    if (newer) {
        ibv_poll_cq_attr attributes{};
        return ::ibv_start_poll(cq, &attributes) == 0 && cq->status != IBV_WC_SUCCESS;
    }
    ibv_wc wc{};
    return ::ibv_poll_cq(::ibv_cq_ex_to_cq(cq), 1, &wc) == 1 && wc.status != IBV_WC_SUCCESS;
}

}  // namespace

int main(int count, char** arguments) {
    const bool newer = count > 1 && std::strcmp(arguments[1], "new") == 0;
    static std::uint64_t word = 0;
    ibv_context* context = open_first();
    ibv_pd* pd = ::ibv_alloc_pd(context);
    ibv_cq_init_attr_ex queue{};
    queue.cqe = 4;
    ibv_cq_ex* cq = ::ibv_create_cq_ex(context, &queue);
    ibv_mr* mr = ::ibv_reg_mr(pd, &word, sizeof word, kAccess);
    need(cq != nullptr && mr != nullptr, "ibv_reg_mr");
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = ::ibv_cq_ex_to_cq(cq);
    init.qp_type = IBV_QPT_RC;
    init.cap = {1, 1, 1, 1, 0};
    ibv_qp* qp = ::ibv_create_qp(pd, &init);
    need(qp != nullptr, "ibv_create_qp");
    connect_to_itself(context, qp);
    ibv_sge sge{reinterpret_cast<std::uintptr_t>(&word), sizeof word, mr->lkey};
    ibv_send_wr wr{}, *bad = nullptr;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.wr.rdma.remote_addr = sge.addr;
    wr.wr.rdma.rkey = mr->rkey ^ 1;
    need(::ibv_post_send(qp, &wr, &bad) == 0, "ibv_post_send");
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!failed(cq, newer))
        if (std::chrono::steady_clock::now() > give_up) return 2;
    std::abort();
}
