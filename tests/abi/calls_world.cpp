#include <chrono>
#include <cstdlib>
#include <cstring>

#include "calls.hpp"

namespace feroce::calls {
namespace {

constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                        IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;

bool connect_to_itself(World& made) {
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_INIT;
    a.port_num = 1;
    a.qp_access_flags = kAccess;
    const int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    if (ibv_modify_qp(made.qp, &a, init) != 0) return false;
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = IBV_MTU_1024;
    a.dest_qp_num = made.qp->qp_num;
    a.max_dest_rd_atomic = 1;
    a.min_rnr_timer = 1;
    a.ah_attr = made.address();
    const int rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    if (ibv_modify_qp(made.qp, &a, rtr) != 0) return false;
    a.qp_state = IBV_QPS_RTS;
    a.timeout = 14;
    a.retry_cnt = 7;
    a.rnr_retry = 7;
    a.max_rd_atomic = 1;
    const int rts = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
    return ibv_modify_qp(made.qp, &a, rts) == 0;
}

}  // namespace

World& world() {
    static World& only = *new World;
    return only;
}

ibv_ah_attr World::address() const {
    ibv_ah_attr a{};
    a.is_global = 1;
    a.port_num = 1;
    a.grh.hop_limit = 64;
    a.grh.dgid = gid;
    return a;
}

ibv_qp* World::make_qp(ibv_srq* srq) const {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.srq = srq;
    init.qp_type = IBV_QPT_RC;
    init.cap = {16, 16, 1, 1, 64};
    return ibv_create_qp(pd, &init);
}

bool World::open() {
    ::setenv("FEROCE_DEVICES", "lo", 1);
    int count = 0;
    devices = ibv_get_device_list(&count);
    if (count != 1) return false;
    context = ibv_open_device(devices[0]);
    if (context == nullptr) return false;
    pd = ibv_alloc_pd(context);
    channel = ibv_create_comp_channel(context);
    cq = ibv_create_cq(context, 64, nullptr, channel, 0);
    mr = ibv_reg_mr(pd, buffer.data(), buffer.size(), kAccess);
    qp = make_qp();
    return qp != nullptr && ibv_query_gid(context, 1, 0, &gid) == 0 && connect_to_itself(*this);
}

int World::post_send() {
    ibv_sge sge{reinterpret_cast<std::uintptr_t>(buffer.data()), 64, mr->lkey};
    ibv_send_wr wr{};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(qp, &wr, &bad);
}

int World::post_receive() {
    ibv_sge sge{reinterpret_cast<std::uintptr_t>(buffer.data()) + 2048, 64, mr->lkey};
    ibv_recv_wr wr{};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    return ibv_post_recv(qp, &wr, &bad);
}

bool World::works() {
    if (post_receive() != 0 || post_send() != 0) return false;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    ibv_wc wc{};
    int sends = 0, receives = 0;
    while (sends < 1 || receives < 1) {
        const int count = ibv_poll_cq(cq, 1, &wc);
        if (count < 0 || (count == 1 && wc.status != IBV_WC_SUCCESS)) return false;
        if (count == 1) ++((wc.opcode & IBV_WC_RECV) != 0 ? receives : sends);
        if (std::chrono::steady_clock::now() > end) return false;
    }
    // What rows have posted besides completes as well, and is not waited for.
    while (ibv_poll_cq(cq, 1, &wc) > 0) continue;
    return true;
}

sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    return address;
}

std::vector<Row> all_rows() {
    std::vector<Row> all;
    for (const auto& rows : {verbs_rows(), verbs_table_rows(), rdmacm_rows(), rsocket_rows(),
                             blocking_rows(), later_rows()})
        all.insert(all.end(), rows.begin(), rows.end());
    return all;
}

}  // namespace feroce::calls
