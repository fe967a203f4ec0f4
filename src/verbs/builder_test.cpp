// Requests built by ibv_wr_*: a batch is posted whole or not at all.
#include <cerrno>

#include "verbs/test_pair.hpp"

namespace feroce::verbs {
namespace {

// A queue pair that is connected to itself.
class BuilderTest : public DeviceTest {
protected:
    void SetUp() override {
        DeviceTest::SetUp();
        mr = ibv_reg_mr(pd, buffer, sizeof buffer, kAllAccess);
        ASSERT_NE(mr, nullptr);
        ibv_qp_init_attr_ex attributes{};
        attributes.send_cq = attributes.recv_cq = cq;
        attributes.qp_type = IBV_QPT_RC;
        attributes.cap = {4, 4, 2, 1, 16};
        attributes.pd = pd;
        attributes.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        attributes.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
        qp = ibv_create_qp_ex(context, &attributes);
        ASSERT_NE(qp, nullptr);
        extended = ibv_qp_to_qp_ex(qp);
        to_rts();
    }
    void TearDown() override {
        EXPECT_EQ(ibv_destroy_qp(qp), 0);
        EXPECT_EQ(ibv_dereg_mr(mr), 0);
        DeviceTest::TearDown();
    }
    void to_rts() const {
        ibv_qp_attr a{};
        a.port_num = 1;
        a.qp_access_flags = kAllAccess;
        a.path_mtu = IBV_MTU_1024;
        a.dest_qp_num = qp->qp_num;
        a.max_dest_rd_atomic = a.max_rd_atomic = 1;
        a.timeout = 14;
        a.retry_cnt = 7;
        a.ah_attr.is_global = 1;
        a.ah_attr.port_num = 1;
        ASSERT_EQ(ibv_query_gid(context, 1, 0, &a.ah_attr.grh.dgid), 0);
        a.qp_state = IBV_QPS_INIT;
        ASSERT_EQ(ibv_modify_qp(
                      qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
                  0);
        a.qp_state = IBV_QPS_RTR;
        ASSERT_EQ(
            ibv_modify_qp(qp, &a,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                              IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
            0);
        a.qp_state = IBV_QPS_RTS;
        ASSERT_EQ(ibv_modify_qp(qp, &a,
                                IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                    IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC),
                  0);
    }
    std::uintptr_t at(std::size_t offset) const {
        return reinterpret_cast<std::uintptr_t>(buffer) + offset;
    }
    void write(std::uint64_t id, std::size_t from, std::size_t to, std::uint32_t length) const {
        extended->wr_id = id;
        extended->wr_flags = IBV_SEND_SIGNALED;
        ibv_wr_rdma_write(extended, mr->rkey, at(to));
        ibv_wr_set_sge(extended, mr->lkey, at(from), length);
    }
    // The id of the next completion; 0 if none comes in time.
    std::uint64_t next() const {
        ibv_wc wc{};
        const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (std::chrono::steady_clock::now() < give_up)
            if (ibv_poll_cq(cq, 1, &wc) == 1) return wc.status == IBV_WC_SUCCESS ? wc.wr_id : 0;
        return 0;
    }

    ibv_mr* mr = nullptr;
    ibv_qp* qp = nullptr;
    ibv_qp_ex* extended = nullptr;
};

TEST_F(BuilderTest, ABatchWithAMistakePostsNothing) {
    std::memset(buffer, 7, 64);
    ibv_wr_start(extended);
    write(1, 0, 1024, 64);
    extended->wr_id = 2;
    ibv_wr_atomic_fetch_add(extended, mr->rkey, at(2048), 1);
    ibv_wr_set_sge(extended, mr->lkey, at(512), 4);  // An atomic's result has eight bytes.
    EXPECT_EQ(ibv_wr_complete(extended), EINVAL);
    // What is posted later completes first, since nothing was before it.
    ibv_wr_start(extended);
    write(3, 0, 2048, 64);
    ASSERT_EQ(ibv_wr_complete(extended), 0);
    EXPECT_EQ(next(), 3u);
    EXPECT_EQ(buffer[1024], 0);
    EXPECT_EQ(buffer[2048], 7);
}

TEST_F(BuilderTest, ABatchThatDoesNotFitPostsNothing) {
    ibv_wr_start(extended);
    for (std::uint64_t id = 1; id <= 5; ++id) write(id, 0, 1024, 8);
    EXPECT_EQ(ibv_wr_complete(extended), ENOMEM);
    ibv_wr_start(extended);
    for (std::uint64_t id = 11; id <= 14; ++id) write(id, 0, 1024, 8);
    ASSERT_EQ(ibv_wr_complete(extended), 0);
    for (std::uint64_t id = 11; id <= 14; ++id) EXPECT_EQ(next(), id);
}

TEST_F(BuilderTest, InErrorABatchIsFlushedWholeOrNotAtAll) {
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_ERR;
    ASSERT_EQ(ibv_modify_qp(qp, &a, IBV_QP_STATE), 0);
    ibv_wr_start(extended);
    write(1, 0, 1024, 8);
    ibv_wr_atomic_fetch_add(extended, mr->rkey, at(2048), 1);
    EXPECT_EQ(ibv_wr_complete(extended), EINVAL);
    ibv_wc wc{};
    EXPECT_EQ(ibv_poll_cq(cq, 1, &wc), 0);
}

TEST_F(BuilderTest, TheLastSetterOfARequestCounts) {
    buffer[100] = 1;
    buffer[200] = 2;
    char inlined = 3;
    ibv_wr_start(extended);
    write(1, 100, 1024, 1);
    ibv_wr_set_sge(extended, mr->lkey, at(200), 1);
    write(2, 100, 1025, 1);
    ibv_wr_set_inline_data(extended, &inlined, 1);
    write(3, 100, 1026, 1);
    ASSERT_EQ(ibv_wr_complete(extended), 0);
    for (std::uint64_t id = 1; id <= 3; ++id) EXPECT_EQ(next(), id);
    EXPECT_EQ(buffer[1024], 2);
    EXPECT_EQ(buffer[1025], 3);
    EXPECT_EQ(buffer[1026], 1);
}

}  // namespace
}  // namespace feroce::verbs
