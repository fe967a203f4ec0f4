// What the device promises and what it then does: limits, events at limits, and what a queue pair
// keeps or loses with its state.
#include <poll.h>

#include <array>
#include <vector>

#include "verbs/objects.hpp"
#include "verbs/test_pair.hpp"

namespace feroce::verbs {
namespace {

class LimitsTest : public DeviceTest {
protected:
    ibv_srq* make_srq(std::uint32_t size) const {
        ibv_srq_init_attr a{};
        a.attr = {size, 1, 0};
        return ibv_create_srq(pd, &a);
    }
    bool event_waits() const {
        pollfd entry{context->async_fd, POLLIN, 0};
        return ::poll(&entry, 1, 0) == 1;
    }
    ibv_event_type next_event() const {
        ibv_async_event event{};
        EXPECT_EQ(ibv_get_async_event(context, &event), 0);
        ibv_ack_async_event(&event);
        return event.event_type;
    }
    ibv_device_attr told() const {
        ibv_device_attr a{};
        EXPECT_EQ(ibv_query_device(context, &a), 0);
        return a;
    }
};

// A program that arms the limit and then waits for the event would wait for ever.
TEST_F(LimitsTest, ALimitAboveWhatIsPostedIsReachedAtOnce) {
    ibv_srq* srq = make_srq(16);
    ibv_srq_attr a{0, 0, 8};
    ASSERT_EQ(ibv_modify_srq(srq, &a, IBV_SRQ_LIMIT), 0);
    ASSERT_TRUE(event_waits());
    EXPECT_EQ(next_event(), IBV_EVENT_SRQ_LIMIT_REACHED);
    ASSERT_EQ(ibv_query_srq(srq, &a), 0);
    EXPECT_EQ(a.srq_limit, 0u);
    // And one that is not reached yet tells nothing.
    for (int i = 0; i < 8; ++i) {
        ibv_recv_wr wr{};
        ibv_recv_wr* bad = nullptr;
        ASSERT_EQ(ibv_post_srq_recv(srq, &wr, &bad), 0);
    }
    a.srq_limit = 8;
    ASSERT_EQ(ibv_modify_srq(srq, &a, IBV_SRQ_LIMIT), 0);
    EXPECT_FALSE(event_waits());
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

TEST_F(LimitsTest, AsManyReceiveQueuesAsToldAndNoMore) {
    std::vector<ibv_srq*> queues;
    while (ibv_srq* srq = make_srq(1)) queues.push_back(srq);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(queues.size(), static_cast<std::size_t>(told().max_srq));
    for (ibv_srq* srq : queues) EXPECT_EQ(ibv_destroy_srq(srq), 0);
    ibv_srq* again = make_srq(1);
    ASSERT_NE(again, nullptr);
    EXPECT_EQ(ibv_destroy_srq(again), 0);
}

// Leaves one of a kind of object to make.
class AllButOne {
public:
    explicit AllButOne(process::Quota& quota) : quota_(quota) {
        while (quota_.take()) ++taken_;
        quota_.give();
        --taken_;
    }
    ~AllButOne() {
        for (; taken_ > 0; --taken_) quota_.give();
    }
    AllButOne(const AllButOne&) = delete;
    AllButOne& operator=(const AllButOne&) = delete;

private:
    process::Quota& quota_;
    std::uint32_t taken_ = 0;
};

template <class Make, class Destroy>
void expect_limit(process::Quota& quota, int told, const Make& make, const Destroy& destroy) {
    EXPECT_EQ(quota.limit(), static_cast<std::uint32_t>(told));
    const AllButOne others(quota);
    for (int round = 0; round < 2; ++round) {
        auto* last = make();
        ASSERT_NE(last, nullptr) << round;
        EXPECT_EQ(make(), nullptr);
        EXPECT_EQ(errno, ENOMEM);
        EXPECT_EQ(destroy(last), 0);
    }
}

TEST_F(LimitsTest, NoMoreQueuesAndAddressesThanTold) {
    process::Quotas& quotas = process_of(context).quotas();
    const ibv_device_attr limits = told();
    expect_limit(
        quotas.queue_pairs, limits.max_qp,
        [this] {
            ibv_qp_init_attr wanted = init();
            return ibv_create_qp(pd, &wanted);
        },
        [](ibv_qp* qp) { return ibv_destroy_qp(qp); });
    expect_limit(
        quotas.completion_queues, limits.max_cq,
        [this] { return ibv_create_cq(context, 4, nullptr, nullptr, 0); },
        [](ibv_cq* queue) { return ibv_destroy_cq(queue); });
    ibv_ah_attr address{};
    address.is_global = 1;
    address.port_num = 1;
    ASSERT_EQ(ibv_query_gid(context, 1, 0, &address.grh.dgid), 0);
    expect_limit(
        quotas.address_handles, limits.max_ah,
        [this, &address] { return ibv_create_ah(pd, &address); },
        [](ibv_ah* ah) { return ibv_destroy_ah(ah); });
}

TEST_F(LimitsTest, ARegionMayBeEmpty) {
    ibv_mr* mr = ibv_reg_mr(pd, buffer, 0, IBV_ACCESS_LOCAL_WRITE);
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(mr->length, 0u);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

// The largest datagram is the port's affair, not one of the attributes that RESET forgets.
TEST_F(LimitsTest, ADatagramQueuePairKeepsItsMtuOverReset) {
    ibv_qp_init_attr wanted = init(IBV_QPT_UD);
    ibv_qp* qp = ibv_create_qp(pd, &wanted);
    ASSERT_NE(qp, nullptr);
    ibv_mr* mr = ibv_reg_mr(pd, buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE);
    ibv_ah_attr address{};
    address.is_global = 1;
    address.port_num = 1;
    ASSERT_EQ(ibv_query_gid(context, 1, 0, &address.grh.dgid), 0);
    ibv_ah* ah = ibv_create_ah(pd, &address);
    ASSERT_NE(ah, nullptr);
    for (const char* round : {"fresh", "after RESET"}) {
        ibv_qp_attr a{};
        a.port_num = 1;
        a.qp_state = IBV_QPS_INIT;
        ASSERT_EQ(
            ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
        a.qp_state = IBV_QPS_RTR;
        ASSERT_EQ(ibv_modify_qp(qp, &a, IBV_QP_STATE), 0);
        a.qp_state = IBV_QPS_RTS;
        ASSERT_EQ(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
        ibv_sge sge{reinterpret_cast<std::uintptr_t>(buffer), sizeof buffer, mr->lkey};
        ibv_send_wr wr{};
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.opcode = IBV_WR_SEND;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.wr.ud.ah = ah;
        wr.wr.ud.remote_qpn = qp->qp_num;
        ibv_send_wr* bad = nullptr;
        ASSERT_EQ(ibv_post_send(qp, &wr, &bad), 0);
        ibv_wc wc{};
        const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (ibv_poll_cq(cq, 1, &wc) == 0) ASSERT_LT(std::chrono::steady_clock::now(), give_up);
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << round;
        a.qp_state = IBV_QPS_RESET;
        ASSERT_EQ(ibv_modify_qp(qp, &a, IBV_QP_STATE), 0);
    }
    EXPECT_EQ(ibv_destroy_ah(ah), 0);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

// A program chooses the low byte of a type 2 window's key and reads the whole of it in mw->rkey.
TEST_F(PairTest, ABindTakesTheLowByteOfItsKeyAndTellsTheWhole) {
    ibv_mr* ground =
        ibv_reg_mr(right->pd, right->memory.data(), 4096, kAllAccess | IBV_ACCESS_MW_BIND);
    ibv_mw* window = ibv_alloc_mw(right->pd, IBV_MW_TYPE_2);
    ASSERT_NE(window, nullptr);
    const std::uint32_t before = window->rkey;
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_BIND_MW;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.bind_mw.mw = window;
    wr.bind_mw.rkey = (before + 1) & 0xff;
    wr.bind_mw.bind_info = {ground, right->address(0), 4096, IBV_ACCESS_REMOTE_WRITE};
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(right->qp, &wr, &bad), 0);
    EXPECT_EQ(window->rkey, (before & ~0xffu) | ((before + 1) & 0xff));
    ASSERT_EQ(right->completion().status, IBV_WC_SUCCESS);
    ASSERT_EQ(left->post(IBV_WR_RDMA_WRITE, left->sge(0, 8), right->address(64), window->rkey), 0);
    EXPECT_EQ(left->completion().status, IBV_WC_SUCCESS);
    EXPECT_EQ(ibv_dealloc_mw(window), 0);
    EXPECT_EQ(ibv_dereg_mr(ground), 0);
}

// Else a program that counts completions would wait for ever.
TEST_F(PairTest, ALostCompletionEndsTheQueuePair) {
    ASSERT_EQ(ibv_resize_cq(left->cq, 2), 0);
    for (int i = 0; i < 8; ++i)
        ASSERT_EQ(
            left->post(IBV_WR_RDMA_WRITE, left->sge(0, 8), right->address(0), right->mr->rkey), 0);
    bool queue_failed = false;
    bool pair_failed = false;
    while (!queue_failed || !pair_failed) {
        pollfd entry{context->async_fd, POLLIN, 0};
        ASSERT_EQ(::poll(&entry, 1, 20'000), 1);
        ibv_async_event event{};
        ASSERT_EQ(ibv_get_async_event(context, &event), 0);
        queue_failed |= event.event_type == IBV_EVENT_CQ_ERR;
        pair_failed |= event.event_type == IBV_EVENT_QP_FATAL && event.element.qp == left->qp;
        ibv_ack_async_event(&event);
    }
    ibv_qp_attr attributes{};
    ibv_qp_init_attr init{};
    ASSERT_EQ(ibv_query_qp(left->qp, &attributes, IBV_QP_STATE, &init), 0);
    EXPECT_EQ(attributes.qp_state, IBV_QPS_ERR);
    ASSERT_EQ(ibv_query_qp(right->qp, &attributes, IBV_QP_STATE, &init), 0);
    EXPECT_EQ(attributes.qp_state, IBV_QPS_RTS);
}

}  // namespace
}  // namespace feroce::verbs
