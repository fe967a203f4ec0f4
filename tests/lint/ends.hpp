// Two connected queue pairs of one process, for small programs with one mistake each. All waits
// end; a program that cannot get so far ends with status 1.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace lint_programs {

inline constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                               IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
inline constexpr std::uint32_t kQkey = 0x1111;

inline void need(bool good, const char* what) {
    if (good) return;
    std::perror(what);
    std::exit(1);
}

inline ibv_context* open_first() {
    ibv_device** list = ::ibv_get_device_list(nullptr);
    need(list != nullptr && list[0] != nullptr, "ibv_get_device_list");
    ibv_context* context = ::ibv_open_device(list[0]);
    need(context != nullptr, "ibv_open_device");
    ::ibv_free_device_list(list);
    return context;
}

struct Wishes {
    ibv_qp_type type = IBV_QPT_RC;
    int cqe = 64;
    std::uint32_t sends = 16;
    int access = kAccess;
    std::uint8_t rnr_retry = 7;
    std::uint32_t first_psn = 0;  // That it sends with, and the peer does not expect.
    ibv_mtu mtu = IBV_MTU_1024;
    bool one_thread = false;  // Its queues are of a thread domain.
    bool exchanges = false;   // The peer's number and first PSN.
};

struct End {
    End(ibv_context* c, const Wishes& w) : context(c), wishes(w), memory(1 << 16) {
        pd = ::ibv_alloc_pd(context);
        channel = ::ibv_create_comp_channel(context);
        if (w.one_thread)
            make_domain();
        else
            cq = ::ibv_create_cq(context, w.cqe, nullptr, channel, 0);
        mr = ::ibv_reg_mr(pd, memory.data(), memory.size(), w.access);
        need(cq != nullptr && mr != nullptr, "ibv_reg_mr");
        ibv_qp_init_attr init{};
        init.send_cq = init.recv_cq = cq;
        init.qp_type = w.type;
        init.cap = {w.sends, 16, 4, 4, 64};
        qp = ::ibv_create_qp(domain != nullptr ? domain : pd, &init);
        need(qp != nullptr, "ibv_create_qp");
    }
    void make_domain() {
        ibv_td_init_attr nothing{};
        td = ::ibv_alloc_td(context, &nothing);
        need(td != nullptr, "ibv_alloc_td");
        ibv_parent_domain_init_attr parts{};
        parts.pd = pd;
        parts.td = td;
        domain = ::ibv_alloc_parent_domain(context, &parts);
        need(domain != nullptr, "ibv_alloc_parent_domain");
        ibv_cq_init_attr_ex attributes{};
        attributes.cqe = static_cast<std::uint32_t>(wishes.cqe);
        attributes.channel = channel;
        attributes.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
        attributes.parent_domain = domain;
        ibv_cq_ex* made = ::ibv_create_cq_ex(context, &attributes);
        need(made != nullptr, "ibv_create_cq_ex");
        cq = ::ibv_cq_ex_to_cq(made);
    }
    void close() {
        need(::ibv_destroy_qp(qp) == 0, "ibv_destroy_qp");
        need(::ibv_dereg_mr(mr) == 0, "ibv_dereg_mr");
        need(::ibv_destroy_cq(cq) == 0, "ibv_destroy_cq");
        need(::ibv_destroy_comp_channel(channel) == 0, "ibv_destroy_comp_channel");
        need(domain == nullptr || ::ibv_dealloc_pd(domain) == 0, "ibv_dealloc_pd");
        need(td == nullptr || ::ibv_dealloc_td(td) == 0, "ibv_dealloc_td");
        need(::ibv_dealloc_pd(pd) == 0, "ibv_dealloc_pd");
    }

    void connect(std::uint32_t peer) {
        ibv_qp_attr a{};
        a.port_num = 1;
        a.qp_access_flags = static_cast<unsigned>(wishes.access);
        a.qkey = kQkey;
        a.path_mtu = wishes.mtu;
        a.dest_qp_num = peer;
        a.max_dest_rd_atomic = a.max_rd_atomic = 4;
        a.min_rnr_timer = 1;
        a.timeout = 10;
        a.retry_cnt = 5;
        a.rnr_retry = wishes.rnr_retry;
        a.sq_psn = wishes.first_psn;
        if (wishes.exchanges) {
            a.dest_qp_num = wishes.first_psn;
            a.rq_psn = peer;
        }
        a.ah_attr.is_global = 1;
        a.ah_attr.port_num = 1;
        need(::ibv_query_gid(context, 1, 0, &a.ah_attr.grh.dgid) == 0, "ibv_query_gid");
        const bool datagrams = wishes.type == IBV_QPT_UD;
        move(a, IBV_QPS_INIT,
             IBV_QP_PKEY_INDEX | IBV_QP_PORT | (datagrams ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
        move(a, IBV_QPS_RTR,
             datagrams ? 0
                       : IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
        move(a, IBV_QPS_RTS,
             datagrams ? IBV_QP_SQ_PSN
                       : IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                             IBV_QP_MAX_QP_RD_ATOMIC);
    }
    void move(ibv_qp_attr& a, ibv_qp_state state, int mask) {
        a.qp_state = state;
        need(::ibv_modify_qp(qp, &a, IBV_QP_STATE | mask) == 0, "ibv_modify_qp");
    }

    ibv_sge sge(std::uint32_t length, std::size_t offset = 0) const {
        return {reinterpret_cast<std::uintptr_t>(memory.data()) + offset, length, mr->lkey};
    }
    int receive(ibv_sge entry, std::uint64_t id = 1) const {
        ibv_recv_wr wr{}, *bad = nullptr;
        wr.wr_id = id;
        wr.sg_list = &entry;
        wr.num_sge = 1;
        return ::ibv_post_recv(qp, &wr, &bad);
    }
    int send(ibv_send_wr wr, ibv_sge entry) const {
        ibv_send_wr* bad = nullptr;
        wr.sg_list = &entry;
        wr.num_sge = 1;
        return ::ibv_post_send(qp, &wr, &bad);
    }
    // Polls until a completion comes; false if none does in time.
    bool poll(ibv_wc& wc, std::chrono::seconds patience = std::chrono::seconds(20)) const {
        const auto end = std::chrono::steady_clock::now() + patience;
        while (std::chrono::steady_clock::now() < end)
            if (::ibv_poll_cq(cq, 1, &wc) == 1) return true;
        return false;
    }

    ibv_context* context;
    Wishes wishes;
    std::vector<std::uint8_t> memory;
    ibv_pd* pd = nullptr;
    ibv_td* td = nullptr;
    ibv_pd* domain = nullptr;  // With the thread domain.
    ibv_comp_channel* channel = nullptr;
    ibv_cq* cq = nullptr;
    ibv_mr* mr = nullptr;
    ibv_qp* qp = nullptr;
};

struct Ends {
    explicit Ends(const Wishes& a_wishes = {}, const Wishes& b_wishes = {})
        : context(open_first()), a(context, a_wishes), b(context, b_wishes) {
        a.connect(b.qp->qp_num);
        b.connect(a.qp->qp_num);
    }
    void close() {
        a.close();
        b.close();
        need(::ibv_close_device(context) == 0, "ibv_close_device");
    }

    ibv_context* context;
    End a, b;
};

inline ibv_send_wr signaled(ibv_wr_opcode opcode, std::uint64_t id = 7) {
    ibv_send_wr wr{};
    wr.wr_id = id;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    return wr;
}

inline ibv_send_wr read_from(const End& peer, std::uint64_t id = 7) {
    ibv_send_wr wr = signaled(IBV_WR_RDMA_READ, id);
    wr.wr.rdma.remote_addr = reinterpret_cast<std::uintptr_t>(peer.memory.data());
    wr.wr.rdma.rkey = peer.mr->rkey;
    return wr;
}

inline ibv_send_wr write_to(const End& peer, std::uint64_t id = 7) {
    ibv_send_wr wr = signaled(IBV_WR_RDMA_WRITE, id);
    wr.wr.rdma.remote_addr = reinterpret_cast<std::uintptr_t>(peer.memory.data());
    wr.wr.rdma.rkey = peer.mr->rkey;
    return wr;
}

}  // namespace lint_programs
