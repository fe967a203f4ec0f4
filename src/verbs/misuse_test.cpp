// What programs get wrong: the documented errno, never a crash.
#include <cerrno>

#include "verbs/test_pair.hpp"

namespace feroce::verbs {
namespace {

class MisuseTest : public testing::Test {
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
    ibv_qp_init_attr init() const {
        ibv_qp_init_attr out{};
        out.send_cq = out.recv_cq = cq;
        out.qp_type = IBV_QPT_RC;
        out.cap = {4, 4, 1, 1, 0};
        return out;
    }

    ibv_context* context = nullptr;
    ibv_pd* pd = nullptr;
    ibv_cq* cq = nullptr;
    char buffer[4096] = {};
};

TEST_F(MisuseTest, Regions) {
    EXPECT_EQ(ibv_reg_mr(pd, buffer, 16, IBV_ACCESS_REMOTE_WRITE), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ibv_reg_mr(pd, buffer, 16, 1 << 15), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ibv_reg_mr(pd, reinterpret_cast<void*>(4096), 16, IBV_ACCESS_LOCAL_WRITE), nullptr);
    EXPECT_EQ(errno, EFAULT);
    EXPECT_EQ(ibv_reg_mr(pd, buffer, ~std::size_t{0}, 0), nullptr);
    EXPECT_NE(errno, 0);
}

TEST_F(MisuseTest, DomainsInUseCannotGo) {
    ibv_mr* mr = ibv_reg_mr(pd, buffer, 16, 0);
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(MisuseTest, CompletionQueues) {
    EXPECT_EQ(ibv_create_cq(context, 0, nullptr, nullptr, 0), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ibv_create_cq(context, -1, nullptr, nullptr, 0), nullptr);
    EXPECT_EQ(ibv_create_cq(context, 1 << 30, nullptr, nullptr, 0), nullptr);
    EXPECT_EQ(ibv_create_cq(context, 16, nullptr, nullptr, 1000), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ibv_resize_cq(cq, 0), EINVAL);
}

TEST_F(MisuseTest, QueuePairLimits) {
    const auto refused = [this](auto&& change, int expected) {
        ibv_qp_init_attr attributes = init();
        change(attributes);
        errno = 0;
        EXPECT_EQ(ibv_create_qp(pd, &attributes), nullptr);
        EXPECT_EQ(errno, expected);
    };
    refused([](auto& a) { a.cap.max_send_wr = 1 << 20; }, EINVAL);
    refused([](auto& a) { a.cap.max_recv_wr = 1 << 20; }, EINVAL);
    refused([](auto& a) { a.cap.max_send_sge = 1000; }, EINVAL);
    refused([](auto& a) { a.cap.max_inline_data = 1 << 20; }, EINVAL);
    refused([](auto& a) { a.send_cq = nullptr; }, EINVAL);
    refused([](auto& a) { a.recv_cq = nullptr; }, EINVAL);
    refused([](auto& a) { a.qp_type = IBV_QPT_RAW_PACKET; }, EOPNOTSUPP);
    refused([](auto& a) { a.qp_type = static_cast<ibv_qp_type>(99); }, EOPNOTSUPP);
}

TEST_F(MisuseTest, WrongStates) {
    ibv_qp_init_attr attributes = init();
    ibv_qp* qp = ibv_create_qp(pd, &attributes);
    ASSERT_NE(qp, nullptr);
    ibv_send_wr send{};
    ibv_send_wr* bad_send = nullptr;
    EXPECT_EQ(ibv_post_send(qp, &send, &bad_send), EINVAL);
    EXPECT_EQ(bad_send, &send);
    ibv_recv_wr receive{};
    ibv_recv_wr* bad_receive = nullptr;
    EXPECT_EQ(ibv_post_recv(qp, &receive, &bad_receive), EINVAL);
    EXPECT_EQ(bad_receive, &receive);
    ibv_qp_attr to{};
    to.qp_state = IBV_QPS_RTS;
    EXPECT_EQ(ibv_modify_qp(qp, &to, IBV_QP_STATE), EINVAL);
    to.qp_state = static_cast<ibv_qp_state>(77);
    EXPECT_EQ(ibv_modify_qp(qp, &to, IBV_QP_STATE), EINVAL);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

TEST_F(MisuseTest, AddressesNeedAGlobalRoute) {
    ibv_ah_attr attributes{};
    attributes.port_num = 1;
    EXPECT_EQ(ibv_create_ah(pd, &attributes), nullptr);
    EXPECT_EQ(errno, EINVAL);
    attributes.is_global = 1;
    attributes.grh.sgid_index = 200;
    EXPECT_EQ(ibv_create_ah(pd, &attributes), nullptr);
    EXPECT_EQ(errno, EINVAL);
}

TEST_F(MisuseTest, Queries) {
    ibv_port_attr port{};
    EXPECT_EQ(___ibv_query_port(context, 2, &port), EINVAL);
    ibv_gid gid{};
    EXPECT_EQ(ibv_query_gid(context, 1, 100000, &gid), -1);
    EXPECT_EQ(ibv_query_gid(context, 1, 60, &gid), 0);  // Empty, but in the table.
    ibv_gid_entry entry{};
    EXPECT_EQ(ibv_query_gid_ex(context, 1, 60, &entry, 0), ENODATA);
    EXPECT_EQ(ibv_query_gid_ex(context, 1, 0, &entry, 0), 0);
    EXPECT_EQ(entry.gid_type, std::uint32_t{IBV_GID_TYPE_ROCE_V2});
    __be16 pkey = 0;
    EXPECT_EQ(ibv_query_pkey(context, 1, 1, &pkey), -1);
    EXPECT_EQ(ibv_query_pkey(context, 1, 0, &pkey), 0);
}

class PostingTest : public PairTest {};

TEST_F(PostingTest, TheBadRequestIsNamedAndThoseBeforeItCount) {
    ibv_sge entry = left->sge(0, 8);
    ibv_send_wr wrs[3] = {};
    for (ibv_send_wr& wr : wrs) {
        wr.opcode = IBV_WR_RDMA_WRITE;
        wr.sg_list = &entry;
        wr.num_sge = 1;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.wr.rdma.remote_addr = right->address(0);
        wr.wr.rdma.rkey = right->mr->rkey;
    }
    wrs[0].next = &wrs[1];
    wrs[1].next = &wrs[2];
    wrs[1].num_sge = 1000;
    ibv_send_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_send(left->qp, wrs, &bad), EINVAL);
    EXPECT_EQ(bad, &wrs[1]);
    EXPECT_EQ(left->completion().status, IBV_WC_SUCCESS);
    wrs[1].num_sge = -1;
    EXPECT_EQ(ibv_post_send(left->qp, &wrs[1], &bad), EINVAL);
    wrs[2].opcode = static_cast<ibv_wr_opcode>(99);
    EXPECT_EQ(ibv_post_send(left->qp, &wrs[2], &bad), EINVAL);
}

TEST_F(PostingTest, AFullReceiveQueueSaysSo) {
    for (int i = 0; i < 16; ++i) ASSERT_EQ(right->post_receive(0, 8), 0);
    EXPECT_EQ(right->post_receive(0, 8), ENOMEM);
}

}  // namespace
}  // namespace feroce::verbs
