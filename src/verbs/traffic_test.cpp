// Operations through the ABI, over real sockets on loopback.
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <numeric>
#include <string>

#include "verbs/test_pair.hpp"

extern "C" std::size_t feroce_explain(ibv_qp* qp, char* out, std::size_t size);

namespace feroce::verbs {
namespace {

TEST_F(PairTest, WriteReadAndSendMoveTheBytes) {
    std::iota(left->memory.begin(), left->memory.end(), char{1});
    ASSERT_EQ(
        left->post(IBV_WR_RDMA_WRITE, left->sge(0, 5000), right->address(100), right->mr->rkey), 0);
    ASSERT_EQ(left->completion().status, IBV_WC_SUCCESS);
    EXPECT_EQ(std::memcmp(left->memory.data(), right->memory.data() + 100, 5000), 0);

    ASSERT_EQ(
        right->post(IBV_WR_RDMA_READ, right->sge(10000, 5000), left->address(0), left->mr->rkey),
        0);
    ASSERT_EQ(right->completion().status, IBV_WC_SUCCESS);
    EXPECT_EQ(std::memcmp(left->memory.data(), right->memory.data() + 10000, 5000), 0);

    ASSERT_EQ(right->post_receive(20000, 6000, 7), 0);
    ASSERT_EQ(left->post(IBV_WR_SEND, left->sge(0, 5000), 0, 0), 0);
    const ibv_wc received = right->completion();
    EXPECT_EQ(received.status, IBV_WC_SUCCESS);
    EXPECT_EQ(received.opcode, IBV_WC_RECV);
    EXPECT_EQ(received.wr_id, 7u);
    EXPECT_EQ(received.byte_len, 5000u);
    EXPECT_EQ(received.qp_num, right->qp->qp_num);
    EXPECT_EQ(std::memcmp(left->memory.data(), right->memory.data() + 20000, 5000), 0);
    EXPECT_EQ(left->completion().status, IBV_WC_SUCCESS);
}

TEST_F(PairTest, FetchAddsCountExactly) {
    std::uint64_t old = 0;
    for (std::uint64_t i = 0; i < 100; ++i) {
        ASSERT_EQ(left->post(IBV_WR_ATOMIC_FETCH_AND_ADD, left->sge(0, 8), right->address(64),
                             right->mr->rkey),
                  0);
        ASSERT_EQ(left->completion().status, IBV_WC_SUCCESS);
        std::memcpy(&old, left->memory.data(), 8);
        EXPECT_EQ(old, i);
    }
}

TEST_F(PairTest, AQueryTellsTheNextPsns) {
    ibv_qp_attr before{};
    ibv_qp_attr after{};
    ibv_qp_init_attr init{};
    ASSERT_EQ(ibv_query_qp(left->qp, &before, IBV_QP_SQ_PSN, &init), 0);
    for (int i = 0; i < 5; ++i) {
        ASSERT_EQ(
            left->post(IBV_WR_RDMA_WRITE, left->sge(0, 8), right->address(0), right->mr->rkey), 0);
        ASSERT_EQ(left->completion().status, IBV_WC_SUCCESS);
    }
    ASSERT_EQ(ibv_query_qp(left->qp, &after, IBV_QP_SQ_PSN, &init), 0);
    EXPECT_EQ(after.sq_psn, before.sq_psn + 5);
    EXPECT_EQ(after.sq_draining, 0);
    ASSERT_EQ(ibv_query_qp(right->qp, &after, IBV_QP_RQ_PSN, &init), 0);
    EXPECT_EQ(after.rq_psn, before.sq_psn + 5);
}

TEST_F(PairTest, AQueryTellsWhetherTheSendQueueDrains) {
    const auto drains = [this] {
        ibv_qp_attr attributes{};
        ibv_qp_init_attr init{};
        EXPECT_EQ(ibv_query_qp(left->qp, &attributes, IBV_QP_STATE, &init), 0);
        EXPECT_EQ(attributes.qp_state, IBV_QPS_SQD);
        return attributes.sq_draining != 0;
    };
    ibv_qp_attr to{};
    to.qp_state = IBV_QPS_RESET;  // So that the request is not answered.
    ASSERT_EQ(ibv_modify_qp(right->qp, &to, IBV_QP_STATE), 0);
    ASSERT_EQ(left->post(IBV_WR_RDMA_WRITE, left->sge(0, 8), right->address(0), right->mr->rkey),
              0);
    to.qp_state = IBV_QPS_SQD;
    ASSERT_EQ(ibv_modify_qp(left->qp, &to, IBV_QP_STATE), 0);
    EXPECT_TRUE(drains());
    ASSERT_EQ(right->to_init(), 0);
    ASSERT_EQ(right->to_rtr(left->qp->qp_num), 0);
    EXPECT_EQ(left->completion().status, IBV_WC_SUCCESS);
    EXPECT_FALSE(drains());
}

TEST_F(PairTest, AWrongKeyIsAnErrorOnBothSides) {
    ASSERT_EQ(
        left->post(IBV_WR_RDMA_WRITE, left->sge(0, 8), right->address(0), right->mr->rkey ^ 1), 0);
    const ibv_wc wc = left->completion();
    EXPECT_EQ(wc.status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_NE(wc.vendor_err, 0u);  // The reason's number.
    ibv_async_event event{};
    ASSERT_EQ(ibv_get_async_event(context, &event), 0);
    EXPECT_TRUE(event.event_type == IBV_EVENT_QP_ACCESS_ERR ||
                event.event_type == IBV_EVENT_COMM_EST);
    ibv_ack_async_event(&event);
    ibv_qp_attr attributes{};
    ibv_qp_init_attr init{};
    ASSERT_EQ(ibv_query_qp(left->qp, &attributes, IBV_QP_STATE, &init), 0);
    EXPECT_EQ(attributes.qp_state, IBV_QPS_ERR);
}

TEST_F(PairTest, MemoryThatGoesAwayIsAnErrorAndNotASignal) {
    void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ibv_mr* mr =
        ibv_reg_mr_iova2(right->pd, page, 4096, reinterpret_cast<std::uintptr_t>(page), kAllAccess);
    ASSERT_NE(mr, nullptr);
    ::munmap(page, 4096);
    ASSERT_EQ(left->post(IBV_WR_RDMA_WRITE, left->sge(0, 8), reinterpret_cast<std::uintptr_t>(page),
                         mr->rkey),
              0);
    EXPECT_EQ(left->completion().status, IBV_WC_REM_OP_ERR);
    // Whoever looks for the cause learns which region it was.
    char said[1024], key[32];
    const std::string why(said, feroce_explain(right->qp, said, sizeof said));
    std::snprintf(key, sizeof key, "key 0x%08x, 4096 bytes", mr->rkey);
    EXPECT_NE(why.find(key), std::string::npos) << why;
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(PairTest, OneEventForOneArming) {
    ASSERT_EQ(ibv_req_notify_cq(left->cq, 0), 0);
    for (int i = 0; i < 2; ++i) {
        ASSERT_EQ(
            left->post(IBV_WR_RDMA_WRITE, left->sge(0, 8), right->address(0), right->mr->rkey), 0);
        ASSERT_EQ(left->completion().status, IBV_WC_SUCCESS);
    }
    ibv_cq* cq = nullptr;
    void* cq_context = nullptr;
    ASSERT_EQ(ibv_get_cq_event(left->channel, &cq, &cq_context), 0);
    EXPECT_EQ(cq, left->cq);
    EXPECT_EQ(cq_context, left.get());
    ibv_ack_cq_events(cq, 1);
    const int flags = ::fcntl(left->channel->fd, F_GETFL);
    ::fcntl(left->channel->fd, F_SETFL, flags | O_NONBLOCK);
    EXPECT_EQ(ibv_get_cq_event(left->channel, &cq, &cq_context), -1);
    EXPECT_EQ(errno, EAGAIN);
}

// libiscsi acknowledges an event whether it got one or not.
TEST_F(PairTest, AQueueWithMoreAcknowledgementsThanEventsCanBeDestroyed) {
    ibv_comp_channel* channel = ibv_create_comp_channel(context);
    ASSERT_NE(channel, nullptr);
    ::fcntl(channel->fd, F_SETFL, O_NONBLOCK);
    ibv_cq* cq = ibv_create_cq(context, 4, nullptr, channel, 0);
    ibv_cq* found = nullptr;
    void* cq_context = nullptr;
    EXPECT_EQ(ibv_get_cq_event(channel, &found, &cq_context), -1);
    ibv_ack_cq_events(cq, 1);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

TEST_F(PairTest, AnEventWakesASleeperWithoutPolling) {
    ASSERT_EQ(right->post_receive(0, 100), 0);
    ASSERT_EQ(ibv_req_notify_cq(right->cq, 0), 0);
    ASSERT_EQ(left->post(IBV_WR_SEND, left->sge(0, 100), 0, 0), 0);
    ibv_cq* cq = nullptr;
    void* cq_context = nullptr;
    ASSERT_EQ(ibv_get_cq_event(right->channel, &cq, &cq_context), 0);
    ibv_ack_cq_events(cq, 1);
    ibv_wc wc{};
    EXPECT_EQ(ibv_poll_cq(right->cq, 1, &wc), 1);
    EXPECT_EQ(left->completion().status, IBV_WC_SUCCESS);
}

TEST_F(PairTest, DestroyingAQueueTakesItsUnreadEventsAlong) {
    ibv_comp_channel* channel = ibv_create_comp_channel(context);
    ibv_cq* cq = ibv_create_cq(context, 4, nullptr, channel, 0);
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.qp_type = IBV_QPT_RC;
    init.cap = {1, 1, 1, 1, 0};
    ibv_qp* qp = ibv_create_qp(left->pd, &init);
    ASSERT_NE(qp, nullptr);
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.port_num = 1;
    ASSERT_EQ(ibv_modify_qp(qp, &attributes,
                            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
              0);
    ibv_recv_wr wr{};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_recv(qp, &wr, &bad), 0);
    ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
    attributes.qp_state = IBV_QPS_ERR;  // Flushes the receive: an event.
    ASSERT_EQ(ibv_modify_qp(qp, &attributes, IBV_QP_STATE), 0);
    EXPECT_EQ(ibv_destroy_comp_channel(channel), EBUSY);
    EXPECT_EQ(ibv_destroy_cq(cq), EBUSY);
    ASSERT_EQ(ibv_destroy_qp(qp), 0);
    ASSERT_EQ(ibv_destroy_cq(cq), 0);
    pollfd readable{channel->fd, POLLIN, 0};
    EXPECT_EQ(::poll(&readable, 1, 0), 0);
    EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

// The child may use nothing of the parent's, but all that it opens itself.
TEST_F(PairTest, AForkedChildStartsAnew) {
    const pid_t child = ::fork();
    if (child == 0) {
        ibv_wc wc{};
        bool good = left->post(IBV_WR_SEND, left->sge(0, 1), 0, 0) == ENODEV;
        good = good && ibv_poll_cq(left->cq, 1, &wc) < 0;
        good = good && ibv_alloc_pd(context) == nullptr && errno == ENODEV;
        ibv_device_attr device{};
        good = good && ibv_query_device(context, &device) == 0;
        ibv_context* own = open_loopback();
        if (own == nullptr) ::_exit(2);
        {
            Endpoint a(own), b(own);
            connect(a, b);
            a.post(IBV_WR_RDMA_WRITE, a.sge(0, 100), b.address(0), b.mr->rkey);
            good = good && a.completion().status == IBV_WC_SUCCESS;
        }
        ::_exit(good ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
    // The parent goes on.
    ASSERT_EQ(left->post(IBV_WR_RDMA_WRITE, left->sge(0, 8), right->address(0), right->mr->rkey),
              0);
    EXPECT_EQ(left->completion().status, IBV_WC_SUCCESS);
}

TEST_F(PairTest, ResetTakesTheCompletionsAlong) {
    ASSERT_EQ(left->post_receive(0, 8), 0);
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_ERR;
    ASSERT_EQ(ibv_modify_qp(left->qp, &attributes, IBV_QP_STATE), 0);
    attributes.qp_state = IBV_QPS_RESET;
    ASSERT_EQ(ibv_modify_qp(left->qp, &attributes, IBV_QP_STATE), 0);
    ibv_wc wc{};
    EXPECT_EQ(ibv_poll_cq(left->cq, 1, &wc), 0);
}

}  // namespace
}  // namespace feroce::verbs
