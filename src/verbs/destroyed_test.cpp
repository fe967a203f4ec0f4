// Objects that were destroyed and are used once more: an errno, and the live ones are unharmed.
#include <fcntl.h>

#include <cerrno>

#include "verbs/test_pair.hpp"

namespace feroce::verbs {
namespace {

class DestroyedTest : public DeviceTest {
protected:
    ibv_ah* make_ah() const {
        ibv_ah_attr attributes{};
        attributes.is_global = 1;
        attributes.port_num = 1;
        EXPECT_EQ(ibv_query_gid(context, 1, 0, &attributes.grh.dgid), 0);
        return ibv_create_ah(pd, &attributes);
    }
};

TEST_F(DestroyedTest, QueuePair) {
    ibv_qp_init_attr attributes = init();
    ibv_qp* qp = ibv_create_qp(pd, &attributes);
    ASSERT_NE(qp, nullptr);
    ASSERT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_destroy_qp(qp), ENODEV);
    ibv_send_wr send{};
    ibv_send_wr* bad_send = nullptr;
    EXPECT_EQ(ibv_post_send(qp, &send, &bad_send), ENODEV);
    EXPECT_EQ(bad_send, &send);
    ibv_recv_wr receive{};
    ibv_recv_wr* bad_receive = nullptr;
    EXPECT_EQ(ibv_post_recv(qp, &receive, &bad_receive), ENODEV);
    ibv_qp_attr state{};
    state.qp_state = IBV_QPS_INIT;
    EXPECT_EQ(ibv_modify_qp(qp, &state, IBV_QP_STATE), ENODEV);
    EXPECT_EQ(ibv_query_qp(qp, &state, IBV_QP_STATE, &attributes), ENODEV);
    const ibv_gid gid{};
    EXPECT_EQ(ibv_attach_mcast(qp, &gid, 0), ENODEV);
}

TEST_F(DestroyedTest, CompletionQueue) {
    ibv_cq* other = ibv_create_cq(context, 1000, nullptr, nullptr, 0);
    ASSERT_NE(other, nullptr);
    ASSERT_EQ(ibv_destroy_cq(other), 0);
    EXPECT_EQ(ibv_destroy_cq(other), ENODEV);
    ibv_wc wc{};
    EXPECT_EQ(ibv_poll_cq(other, 1, &wc), -ENODEV);
    EXPECT_EQ(ibv_req_notify_cq(other, 0), ENODEV);
    EXPECT_EQ(ibv_resize_cq(other, 100), ENODEV);
    ibv_ack_cq_events(other, 1);
    ibv_qp_init_attr attributes = init();
    attributes.recv_cq = other;
    EXPECT_EQ(ibv_create_qp(pd, &attributes), nullptr);
    EXPECT_EQ(errno, EINVAL);
}

TEST_F(DestroyedTest, Domain) {
    ibv_pd* other = ibv_alloc_pd(context);
    ASSERT_EQ(ibv_dealloc_pd(other), 0);
    EXPECT_EQ(ibv_dealloc_pd(other), ENODEV);
    EXPECT_EQ(ibv_reg_mr(other, buffer, sizeof buffer, 0), nullptr);
    EXPECT_EQ(errno, ENODEV);
    ibv_qp_init_attr attributes = init();
    EXPECT_EQ(ibv_create_qp(other, &attributes), nullptr);
    ibv_srq_init_attr shared{};
    shared.attr.max_wr = shared.attr.max_sge = 1;
    EXPECT_EQ(ibv_create_srq(other, &shared), nullptr);
    EXPECT_EQ(ibv_alloc_mw(other, IBV_MW_TYPE_1), nullptr);
    EXPECT_EQ(ibv_alloc_null_mr(other), nullptr);
    ibv_ah_attr ah{};
    EXPECT_EQ(ibv_create_ah(other, &ah), nullptr);
}

TEST_F(DestroyedTest, RegionAndWindow) {
    ibv_mr* mr = ibv_reg_mr(pd, buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE);
    ASSERT_NE(mr, nullptr);
    ASSERT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_EQ(ibv_dereg_mr(mr), ENODEV);
    EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0),
              IBV_REREG_MR_ERR_INPUT);
    ibv_mw* mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
    ASSERT_NE(mw, nullptr);
    ASSERT_EQ(ibv_dealloc_mw(mw), 0);
    EXPECT_EQ(ibv_dealloc_mw(mw), ENODEV);
}

TEST_F(DestroyedTest, SharedReceiveQueue) {
    ibv_srq_init_attr attributes{};
    attributes.attr.max_wr = attributes.attr.max_sge = 4;
    ibv_srq* srq = ibv_create_srq(pd, &attributes);
    ASSERT_NE(srq, nullptr);
    ASSERT_EQ(ibv_destroy_srq(srq), 0);
    EXPECT_EQ(ibv_destroy_srq(srq), ENODEV);
    ibv_recv_wr wr{};
    ibv_recv_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_srq_recv(srq, &wr, &bad), ENODEV);
    EXPECT_EQ(bad, &wr);
    ibv_srq_attr limit{};
    EXPECT_EQ(ibv_query_srq(srq, &limit), ENODEV);
    EXPECT_EQ(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT), ENODEV);
    ibv_qp_init_attr qp = init();
    qp.srq = srq;
    EXPECT_EQ(ibv_create_qp(pd, &qp), nullptr);
    EXPECT_EQ(errno, EINVAL);
}

TEST_F(DestroyedTest, AddressHandle) {
    ibv_qp_init_attr attributes = init(IBV_QPT_UD);
    ibv_qp* qp = ibv_create_qp(pd, &attributes);
    ASSERT_NE(qp, nullptr);
    ibv_qp_attr a{};
    a.port_num = 1;
    a.qp_state = IBV_QPS_INIT;
    ASSERT_EQ(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
              0);
    a.qp_state = IBV_QPS_RTR;
    ASSERT_EQ(ibv_modify_qp(qp, &a, IBV_QP_STATE), 0);
    a.qp_state = IBV_QPS_RTS;
    ASSERT_EQ(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
    ibv_ah* ah = make_ah();
    ASSERT_NE(ah, nullptr);
    ASSERT_EQ(ibv_destroy_ah(ah), 0);
    EXPECT_EQ(ibv_destroy_ah(ah), ENODEV);
    ibv_send_wr send{};
    send.opcode = IBV_WR_SEND;
    send.wr.ud.ah = ah;
    ibv_send_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_send(qp, &send, &bad), EINVAL);
    send.wr.ud.ah = nullptr;
    EXPECT_EQ(ibv_post_send(qp, &send, &bad), EINVAL);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

TEST_F(DestroyedTest, ChannelThreadDomainAndDeviceMemory) {
    ibv_comp_channel* channel = ibv_create_comp_channel(context);
    ASSERT_EQ(ibv_destroy_comp_channel(channel), 0);
    EXPECT_EQ(ibv_destroy_comp_channel(channel), ENODEV);
    ibv_cq* out = nullptr;
    void* cq_context = nullptr;
    EXPECT_EQ(ibv_get_cq_event(channel, &out, &cq_context), -1);
    EXPECT_EQ(ibv_create_cq(context, 4, nullptr, channel, 0), nullptr);

    ibv_td_init_attr thread{};
    ibv_td* td = ibv_alloc_td(context, &thread);
    ASSERT_EQ(ibv_dealloc_td(td), 0);
    EXPECT_NE(ibv_dealloc_td(td), 0);

    ibv_alloc_dm_attr memory{};
    memory.length = 4096;
    ibv_dm* dm = ibv_alloc_dm(context, &memory);
    ASSERT_NE(dm, nullptr);
    ASSERT_EQ(ibv_free_dm(dm), 0);
    EXPECT_NE(ibv_free_dm(dm), 0);
    EXPECT_NE(ibv_memcpy_to_dm(dm, 0, buffer, 8), 0);
    EXPECT_EQ(ibv_reg_dm_mr(pd, dm, 0, 8, IBV_ACCESS_ZERO_BASED), nullptr);
}

int open_descriptors() {
    int count = 0;
    for (int fd = 0; fd < 4096; ++fd) count += ::fcntl(fd, F_GETFD) != -1;
    return count;
}

// Threads of the device open and close some of their own meanwhile, when processes come and go.
TEST_F(DestroyedTest, DescriptorsGoWithTheirObjects) {
    constexpr int kRounds = 100;
    const int before = open_descriptors();
    for (int i = 0; i < kRounds; ++i) {
        ibv_comp_channel* channel = ibv_create_comp_channel(context);
        ASSERT_NE(channel, nullptr);
        ASSERT_EQ(ibv_destroy_comp_channel(channel), 0);
        ibv_context* other = open_loopback();
        ASSERT_NE(other, nullptr);
        ASSERT_EQ(ibv_close_device(other), 0);
    }
    EXPECT_LT(open_descriptors(), before + kRounds / 2) << "some stay with every round";
}

TEST_F(DestroyedTest, ExtendedQueues) {
    ibv_cq_init_attr_ex queue{};
    queue.cqe = 16;
    ibv_cq_ex* other = ibv_create_cq_ex(context, &queue);
    ASSERT_NE(other, nullptr);
    ibv_qp_init_attr_ex attributes{};
    attributes.send_cq = attributes.recv_cq = cq;
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap = {4, 4, 1, 1, 0};
    attributes.pd = pd;
    attributes.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attributes.send_ops_flags = IBV_QP_EX_WITH_SEND;
    ibv_qp* qp = ibv_create_qp_ex(context, &attributes);
    ASSERT_NE(qp, nullptr);
    ibv_qp_ex* extended = ibv_qp_to_qp_ex(qp);
    ASSERT_EQ(ibv_destroy_qp(qp), 0);
    ibv_wr_start(extended);
    ibv_wr_send(extended);
    EXPECT_EQ(ibv_wr_complete(extended), ENODEV);
    ASSERT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(other)), 0);
    ibv_poll_cq_attr poll{};
    EXPECT_EQ(ibv_start_poll(other, &poll), ENODEV);
}

TEST_F(DestroyedTest, Context) {
    ibv_context* other = open_loopback();
    ASSERT_NE(other, nullptr);
    ASSERT_EQ(ibv_close_device(other), 0);
    EXPECT_EQ(ibv_close_device(other), ENODEV);
    EXPECT_EQ(ibv_alloc_pd(other), nullptr);
    EXPECT_EQ(errno, ENODEV);
    EXPECT_EQ(ibv_create_cq(other, 1, nullptr, nullptr, 0), nullptr);
    EXPECT_EQ(ibv_create_comp_channel(other), nullptr);
    ibv_device_attr device{};
    EXPECT_NE(ibv_query_device(other, &device), 0);
    ibv_port_attr port{};
    EXPECT_NE(___ibv_query_port(other, 1, &port), 0);
    ibv_gid gid{};
    EXPECT_NE(ibv_query_gid(other, 1, 0, &gid), 0);
    ibv_async_event event{};
    EXPECT_EQ(ibv_get_async_event(other, &event), -1);
    EXPECT_STREQ(ibv_get_device_name(other->device), ibv_get_device_name(context->device));
}

}  // namespace
}  // namespace feroce::verbs
