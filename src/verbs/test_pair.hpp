// Two reliable queue pairs of one process, connected over loopback through the real port.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "verbs/abi.hpp"

namespace feroce::verbs {

inline constexpr int kAllAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

inline ibv_context* open_loopback() {
    ::setenv("FEROCE_DEVICES", "lo", 1);
    int count = 0;
    ibv_device** list = ibv_get_device_list(&count);
    ibv_context* context = count == 1 ? ibv_open_device(list[0]) : nullptr;
    ibv_free_device_list(list);
    return context;
}

struct Endpoint {
    explicit Endpoint(ibv_context* c, ibv_qp_type type = IBV_QPT_RC) : context(c) {
        pd = ibv_alloc_pd(context);
        channel = ibv_create_comp_channel(context);
        cq = ibv_create_cq(context, 64, this, channel, 0);
        memory.resize(1 << 16);
        mr = ibv_reg_mr_iova2(pd, memory.data(), memory.size(),
                              reinterpret_cast<std::uintptr_t>(memory.data()), kAllAccess);
        ibv_qp_init_attr init{};
        init.send_cq = init.recv_cq = cq;
        init.qp_type = type;
        init.cap = {16, 16, 4, 4, 64};
        qp = ibv_create_qp(pd, &init);
    }
    ~Endpoint() {
        EXPECT_EQ(ibv_destroy_qp(qp), 0);
        EXPECT_EQ(ibv_dereg_mr(mr), 0);
        EXPECT_EQ(ibv_destroy_cq(cq), 0);
        EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
        EXPECT_EQ(ibv_dealloc_pd(pd), 0);
    }

    int to_init() const {
        ibv_qp_attr a{};
        a.qp_state = IBV_QPS_INIT;
        a.port_num = 1;
        a.qp_access_flags = kAllAccess;
        return ibv_modify_qp(qp, &a,
                             IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    }
    int to_rtr(std::uint32_t peer_qpn, ibv_mtu mtu = IBV_MTU_1024) const {
        ibv_qp_attr a{};
        a.qp_state = IBV_QPS_RTR;
        a.path_mtu = mtu;
        a.dest_qp_num = peer_qpn;
        a.max_dest_rd_atomic = 4;
        a.min_rnr_timer = 1;
        a.ah_attr.is_global = 1;
        a.ah_attr.port_num = 1;
        a.ah_attr.grh.hop_limit = 64;
        EXPECT_EQ(ibv_query_gid(context, 1, 0, &a.ah_attr.grh.dgid), 0);
        return ibv_modify_qp(qp, &a,
                             IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    }
    // Half a second, eight times: shards on an overloaded machine wait for a processor that long.
    int to_rts(std::uint8_t timeout = 17) const {
        ibv_qp_attr a{};
        a.qp_state = IBV_QPS_RTS;
        a.timeout = timeout;
        a.retry_cnt = 7;
        a.rnr_retry = 7;
        a.max_rd_atomic = 4;
        return ibv_modify_qp(qp, &a,
                             IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                 IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    }

    ibv_sge sge(std::size_t offset, std::uint32_t length) const {
        return {reinterpret_cast<std::uintptr_t>(memory.data()) + offset, length, mr->lkey};
    }
    std::uint64_t address(std::size_t offset) const {
        return reinterpret_cast<std::uintptr_t>(memory.data()) + offset;
    }
    int post_receive(std::size_t offset, std::uint32_t length, std::uint64_t wr_id = 0) const {
        ibv_sge entry = sge(offset, length);
        ibv_recv_wr wr{};
        wr.wr_id = wr_id;
        wr.sg_list = &entry;
        wr.num_sge = 1;
        ibv_recv_wr* bad = nullptr;
        return ibv_post_recv(qp, &wr, &bad);
    }
    // One signalled request on memory[offset, offset + length).
    int post(ibv_wr_opcode opcode, ibv_sge entry, std::uint64_t remote, std::uint32_t rkey) const {
        ibv_send_wr wr{};
        wr.wr_id = 42;
        wr.sg_list = &entry;
        wr.num_sge = 1;
        wr.opcode = opcode;
        wr.send_flags = IBV_SEND_SIGNALED;
        if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
            wr.wr.atomic.remote_addr = remote;
            wr.wr.atomic.rkey = rkey;
            wr.wr.atomic.compare_add = 1;
        } else {
            wr.wr.rdma.remote_addr = remote;
            wr.wr.rdma.rkey = rkey;
        }
        ibv_send_wr* bad = nullptr;
        return ibv_post_send(qp, &wr, &bad);
    }
    // Polls until a completion comes; status GENERAL_ERR with wr_id -1 if none does in time.
    ibv_wc completion() const {
        ibv_wc wc{};
        const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (std::chrono::steady_clock::now() < give_up)
            if (ibv_poll_cq(cq, 1, &wc) == 1) return wc;
        wc.status = IBV_WC_GENERAL_ERR;
        wc.wr_id = ~std::uint64_t{0};
        return wc;
    }

    ibv_context* context;
    ibv_pd* pd = nullptr;
    ibv_comp_channel* channel = nullptr;
    ibv_cq* cq = nullptr;
    ibv_mr* mr = nullptr;
    ibv_qp* qp = nullptr;
    std::vector<char> memory;
};

inline void connect(const Endpoint& a, const Endpoint& b) {
    ASSERT_EQ(a.to_init(), 0);
    ASSERT_EQ(b.to_init(), 0);
    ASSERT_EQ(a.to_rtr(b.qp->qp_num), 0);
    ASSERT_EQ(b.to_rtr(a.qp->qp_num), 0);
    ASSERT_EQ(a.to_rts(), 0);
    ASSERT_EQ(b.to_rts(), 0);
}

class PairTest : public testing::Test {
protected:
    void SetUp() override {
        context = open_loopback();
        ASSERT_NE(context, nullptr);
        left = std::make_unique<Endpoint>(context);
        right = std::make_unique<Endpoint>(context);
        connect(*left, *right);
    }
    void TearDown() override {
        left.reset();
        right.reset();
        EXPECT_EQ(ibv_close_device(context), 0);
    }

    ibv_context* context = nullptr;
    std::unique_ptr<Endpoint> left;
    std::unique_ptr<Endpoint> right;
};

// A device, and what every queue pair needs; the test makes the rest.
class DeviceTest : public testing::Test {
protected:
    void SetUp() override {
        context = open_loopback();
        ASSERT_NE(context, nullptr);
        pd = ibv_alloc_pd(context);
        cq = ibv_create_cq(context, 16, nullptr, nullptr, 0);
    }
    void TearDown() override {
        EXPECT_EQ(ibv_destroy_cq(cq), 0);
        EXPECT_EQ(ibv_dealloc_pd(pd), 0);
        EXPECT_EQ(ibv_close_device(context), 0);
    }
    ibv_qp_init_attr init(ibv_qp_type type = IBV_QPT_RC) const {
        ibv_qp_init_attr out{};
        out.send_cq = out.recv_cq = cq;
        out.qp_type = type;
        out.cap = {4, 4, 1, 1, 0};
        return out;
    }

    ibv_context* context = nullptr;
    ibv_pd* pd = nullptr;
    ibv_cq* cq = nullptr;
    char buffer[4096] = {};
};

}  // namespace feroce::verbs
