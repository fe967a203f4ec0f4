// What programs get wrong: the documented errno, never a crash.
#include <cerrno>

#include "verbs/test_pair.hpp"

namespace feroce::verbs {
namespace {

class MisuseTest : public DeviceTest {};

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

TEST_F(MisuseTest, ModifyingWithValuesThatDoNotExist) {
    ibv_qp_init_attr attributes = init();
    ibv_qp* qp = ibv_create_qp(pd, &attributes);
    ASSERT_NE(qp, nullptr);
    constexpr int kInit = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    constexpr int kRtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                         IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    constexpr int kRts = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                         IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
    ibv_qp_attr good{};
    good.port_num = 1;
    good.path_mtu = IBV_MTU_1024;
    good.ah_attr.is_global = 1;
    good.ah_attr.port_num = 1;
    ASSERT_EQ(ibv_query_gid(context, 1, 0, &good.ah_attr.grh.dgid), 0);
    const auto refused = [&](ibv_qp_state state, int mask, auto&& spoil) {
        ibv_qp_attr bad = good;
        bad.qp_state = state;
        spoil(bad);
        EXPECT_EQ(ibv_modify_qp(qp, &bad, mask), EINVAL);
    };
    const auto move_to = [&](ibv_qp_state state, int mask) {
        good.qp_state = state;
        ASSERT_EQ(ibv_modify_qp(qp, &good, mask), 0);
    };
    refused(IBV_QPS_INIT, kInit, [](auto& a) { a.port_num = 2; });
    refused(IBV_QPS_INIT, kInit, [](auto& a) { a.pkey_index = 1; });
    refused(IBV_QPS_INIT, kInit | 1 << 30, [](auto&) {});
    refused(IBV_QPS_INIT, kInit & ~IBV_QP_PORT, [](auto&) {});
    move_to(IBV_QPS_INIT, kInit);
    refused(IBV_QPS_RTR, kRtr, [](auto& a) { a.path_mtu = static_cast<ibv_mtu>(77); });
    refused(IBV_QPS_RTR, kRtr, [](auto& a) { a.min_rnr_timer = 32; });
    refused(IBV_QPS_RTR, kRtr, [](auto& a) { a.max_dest_rd_atomic = 255; });
    refused(IBV_QPS_RTR, kRtr, [](auto& a) { a.ah_attr.grh.sgid_index = 250; });
    refused(IBV_QPS_RTR, kRtr, [](auto& a) { a.ah_attr.is_global = 0; });
    refused(IBV_QPS_RTR, kRtr & ~IBV_QP_AV, [](auto&) {});
    move_to(IBV_QPS_RTR, kRtr);
    refused(IBV_QPS_RTS, kRts, [](auto& a) { a.timeout = 32; });
    refused(IBV_QPS_RTS, kRts, [](auto& a) { a.max_rd_atomic = 255; });
    move_to(IBV_QPS_RTS, kRts);
    refused(IBV_QPS_INIT, kInit, [](auto&) {});
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

TEST_F(MisuseTest, SizesBeyondAllLimits) {
    ibv_srq_init_attr shared{};
    shared.attr.max_wr = ~0u;
    shared.attr.max_sge = 1;
    EXPECT_EQ(ibv_create_srq(pd, &shared), nullptr);
    EXPECT_EQ(errno, EINVAL);
    ibv_alloc_dm_attr memory{};
    memory.length = ~std::size_t{0};
    EXPECT_EQ(ibv_alloc_dm(context, &memory), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ibv_resize_cq(cq, 1 << 30), EINVAL);
    ibv_gid_entry entries[1];
    EXPECT_EQ(ibv_query_gid_table(context, entries, 0, 0), -EINVAL);
    EXPECT_EQ(ibv_reg_mr(pd, buffer, std::size_t{1} << 62, IBV_ACCESS_LOCAL_WRITE), nullptr);
    EXPECT_NE(errno, 0);
    EXPECT_EQ(ibv_import_pd(context, 0x7fff'ffff), nullptr);
    EXPECT_EQ(ibv_import_dm(context, 0x7fff'ffff), nullptr);
    EXPECT_EQ(ibv_import_device(-1), nullptr);
}

TEST_F(MisuseTest, GroupsAreForDatagramsAndMulticastAddresses) {
    ibv_qp_init_attr attributes = init();
    ibv_qp* reliable = ibv_create_qp(pd, &attributes);
    ibv_gid group{};
    group.raw[0] = 0xff;
    group.raw[1] = 0x15;
    group.raw[15] = 1;
    EXPECT_EQ(ibv_attach_mcast(reliable, &group, 0), EINVAL);
    EXPECT_EQ(ibv_destroy_qp(reliable), 0);
    attributes = init();
    attributes.qp_type = IBV_QPT_UD;
    ibv_qp* datagrams = ibv_create_qp(pd, &attributes);
    EXPECT_NE(ibv_detach_mcast(datagrams, &group, 0), 0);
    ibv_gid own{};
    ASSERT_EQ(ibv_query_gid(context, 1, 0, &own), 0);
    EXPECT_EQ(ibv_attach_mcast(datagrams, &own, 0), EINVAL);
    EXPECT_EQ(ibv_destroy_qp(datagrams), 0);
}

TEST_F(MisuseTest, NumbersWithoutANameHaveAText) {
    EXPECT_STRNE(ibv_wc_status_str(static_cast<ibv_wc_status>(999)), "");
    EXPECT_STRNE(ibv_event_type_str(static_cast<ibv_event_type>(999)), "");
    EXPECT_STRNE(ibv_port_state_str(static_cast<ibv_port_state>(999)), "");
    EXPECT_STRNE(ibv_node_type_str(static_cast<ibv_node_type>(999)), "");
    EXPECT_STRNE(ibv_wr_opcode_str(static_cast<ibv_wr_opcode>(999)), "");
    EXPECT_STREQ(ibv_wr_opcode_str(IBV_WR_BIND_MW), "bind-mw");
    EXPECT_STREQ(ibv_wr_opcode_str(static_cast<ibv_wr_opcode>(15)), "atomic-write");
}

TEST_F(MisuseTest, ABuilderWithoutARequestPostsNothing) {
    ibv_qp_init_attr_ex attributes{};
    attributes.send_cq = attributes.recv_cq = cq;
    attributes.qp_type = IBV_QPT_UD;
    attributes.cap = {4, 4, 1, 1, 0};
    attributes.pd = pd;
    attributes.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attributes.send_ops_flags = IBV_QP_EX_WITH_SEND;
    ibv_qp* base = ibv_create_qp_ex(context, &attributes);
    ASSERT_NE(base, nullptr);
    ibv_qp_ex* qp = ibv_qp_to_qp_ex(base);
    ibv_wr_start(qp);
    ibv_wr_set_sge(qp, 0, 0, 8);
    EXPECT_EQ(ibv_wr_complete(qp), EINVAL);
    ibv_wr_start(qp);
    ibv_wr_send(qp);
    ibv_wr_set_ud_addr(qp, nullptr, 1, 1);
    EXPECT_EQ(ibv_wr_complete(qp), EINVAL);
    EXPECT_EQ(ibv_destroy_qp(base), 0);
}

// A queue of one entry and no place for the second completion: the queue says so, once.
TEST_F(MisuseTest, AFullCompletionQueueIsAnEvent) {
    ibv_cq* small = ibv_create_cq(context, 1, nullptr, nullptr, 0);
    ASSERT_NE(small, nullptr);
    ibv_qp_init_attr attributes = init();
    attributes.send_cq = attributes.recv_cq = small;
    ibv_qp* qp = ibv_create_qp(pd, &attributes);
    ASSERT_NE(qp, nullptr);
    ibv_qp_attr a{};
    a.port_num = 1;
    a.qp_state = IBV_QPS_INIT;
    ASSERT_EQ(
        ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
        0);
    ibv_recv_wr wr{};
    ibv_recv_wr* bad = nullptr;
    for (int i = 0; i < 4; ++i) ASSERT_EQ(ibv_post_recv(qp, &wr, &bad), 0);
    a.qp_state = IBV_QPS_ERR;  // Flushes four receives.
    ASSERT_EQ(ibv_modify_qp(qp, &a, IBV_QP_STATE), 0);
    ibv_async_event event{};
    ASSERT_EQ(ibv_get_async_event(context, &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_CQ_ERR);
    EXPECT_EQ(event.element.cq, small);
    ibv_ack_async_event(&event);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_destroy_cq(small), 0);
}

class PostingTest : public PairTest {
protected:
    ibv_send_wr write(ibv_sge& entry) const {
        ibv_send_wr wr{};
        wr.opcode = IBV_WR_RDMA_WRITE;
        wr.sg_list = &entry;
        wr.num_sge = 1;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.wr.rdma.remote_addr = right->address(0);
        wr.wr.rdma.rkey = right->mr->rkey;
        return wr;
    }
    int post(ibv_send_wr wr) const {
        ibv_send_wr* bad = nullptr;
        return ibv_post_send(left->qp, &wr, &bad);
    }
};

TEST_F(PostingTest, RequestsThatMakeNoSense) {
    ibv_sge entry = left->sge(0, 8);
    ibv_send_wr wr = write(entry);
    wr.sg_list = nullptr;
    EXPECT_EQ(post(wr), EINVAL);
    wr = write(entry);
    wr.opcode = IBV_WR_BIND_MW;
    wr.bind_mw = {};
    EXPECT_EQ(post(wr), EINVAL);
    wr = write(entry);
    wr.opcode = IBV_WR_RDMA_READ;
    wr.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
    EXPECT_EQ(post(wr), EINVAL);
    ibv_recv_wr receive{};
    receive.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_recv(left->qp, &receive, &bad), EINVAL);
    EXPECT_EQ(bad, &receive);
    // Nothing of this has hurt the queue pair.
    EXPECT_EQ(post(write(entry)), 0);
    EXPECT_EQ(left->completion().status, IBV_WC_SUCCESS);
}

TEST_F(PostingTest, MessagesThatAreTooLong) {
    ibv_sge entries[2] = {left->sge(0, ~0u), left->sge(0, ~0u)};
    ibv_send_wr wr = write(entries[0]);
    wr.num_sge = 2;
    EXPECT_EQ(post(wr), EINVAL);
    ibv_sge inlined = left->sge(0, 65);
    wr = write(inlined);
    wr.send_flags |= IBV_SEND_INLINE;
    EXPECT_EQ(post(wr), ENOMEM);
    inlined = {8, 16, 0};  // No memory there; inline data needs no key.
    wr = write(inlined);
    wr.send_flags |= IBV_SEND_INLINE;
    EXPECT_EQ(post(wr), EFAULT);
}

TEST_F(PostingTest, AFullSendQueueNamesTheFirstThatDidNotFit) {
    ibv_sge entry = left->sge(0, 8);
    std::vector<ibv_send_wr> wrs(17, write(entry));
    for (std::size_t i = 0; i + 1 < wrs.size(); ++i) wrs[i].next = &wrs[i + 1];
    ibv_send_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_send(left->qp, wrs.data(), &bad), ENOMEM);
    EXPECT_EQ(bad, &wrs[16]);
    for (int i = 0; i < 16; ++i) EXPECT_EQ(left->completion().status, IBV_WC_SUCCESS);
}

TEST_F(PostingTest, TheBadRequestIsNamedAndThoseBeforeItCount) {
    ibv_sge entry = left->sge(0, 8);
    ibv_send_wr wrs[3] = {write(entry), write(entry), write(entry)};
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
