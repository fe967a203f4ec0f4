// What a call that ends something owes the program: after it nothing lands in GPU memory. And a
// call that is refused has changed nothing.
#include "fake_driver.hpp"
#include "verbs/common.hpp"
#include "verbs/instance.hpp"
#include "verbs/test_pair.hpp"

namespace feroce::gpu_test::ending_test {
namespace {

constexpr std::uint32_t kBytes = 4096;
constexpr int kRights = verbs::kAllAccess | IBV_ACCESS_MW_BIND;
constexpr auto kPatience = std::chrono::seconds(20);

class EndingTest : public FakeDriverTest {
protected:
    void SetUp() override {
        context = verbs::open_loopback();
        ASSERT_NE(context, nullptr);
        left = std::make_unique<verbs::Endpoint>(context);
        right = std::make_unique<verbs::Endpoint>(context);
        for (const auto& [own, peer] : {std::pair(&left, &right), std::pair(&right, &left)}) {
            ASSERT_EQ((*own)->to_init(), 0);
            ASSERT_EQ((*own)->to_rtr((*peer)->qp->qp_num), 0);
            ASSERT_EQ((*own)->to_rts(19), 0);  // Two seconds: longer than the slow copies.
        }
        std::memset(left->memory.data(), 'x', kBytes);
        mr =
            ibv_reg_mr_iova2(right->pd, buffer.pointer(), buffer.size(), buffer.address(), kRights);
        ASSERT_NE(mr, nullptr);
    }
    void TearDown() override {
        EXPECT_EQ(ibv_dereg_mr(mr), 0);
        left.reset();
        right.reset();
        EXPECT_EQ(ibv_close_device(context), 0);
    }

    // Bytes are on their way into the right one's buffer.
    bool delivers() const {
        bool out = false;
        verbs::Qp& qp = verbs::qp_of(right->qp);
        EXPECT_TRUE(
            qp.shard->inspect(kPatience, [&](device::Engine&) { out = qp.machine->delivers(); }));
        return out;
    }
    // The left one writes; returns when the copy has started, which takes long.
    void begin_write(std::uint32_t rkey) const {
        fake().delay(100'000, 100'000);
        ASSERT_EQ(left->post(IBV_WR_RDMA_WRITE, left->sge(0, kBytes), buffer.address(), rkey), 0);
        const auto give_up = std::chrono::steady_clock::now() + kPatience;
        while (!delivers()) {
            ibv_wc wc{};
            ASSERT_EQ(ibv_poll_cq(right->cq, 1, &wc), 0);  // Drives.
            ASSERT_LT(std::chrono::steady_clock::now(), give_up);
        }
    }
    int move(ibv_qp_state to, int mask = IBV_QP_STATE) const {
        ibv_qp_attr attributes{};
        attributes.qp_state = to;
        attributes.port_num = 1;
        return ibv_modify_qp(right->qp, &attributes, mask);
    }
    ibv_qp_state state() const {
        ibv_qp_attr attributes{};
        ibv_qp_init_attr init{};
        EXPECT_EQ(ibv_query_qp(right->qp, &attributes, IBV_QP_STATE, &init), 0);
        return attributes.qp_state;
    }

    ibv_context* context = nullptr;
    const DeviceBuffer buffer{1 << 16};
    std::unique_ptr<verbs::Endpoint> left;
    std::unique_ptr<verbs::Endpoint> right;
    ibv_mr* mr = nullptr;
};

TEST_F(EndingTest, NothingLandsAfterAMoveToError) {
    begin_write(mr->rkey);
    EXPECT_EQ(move(IBV_QPS_ERR), 0);
    EXPECT_FALSE(delivers());
}

TEST_F(EndingTest, NothingLandsAfterAReset) {
    begin_write(mr->rkey);
    EXPECT_EQ(move(IBV_QPS_RESET), 0);
    EXPECT_FALSE(delivers());
    EXPECT_EQ(state(), IBV_QPS_RESET);
}

TEST_F(EndingTest, ARefusedResetLeavesTheQueuePairAlone) {
    begin_write(mr->rkey);
    EXPECT_EQ(move(IBV_QPS_RESET, IBV_QP_STATE | IBV_QP_PORT), EINVAL);
    EXPECT_EQ(state(), IBV_QPS_RTS);
    fake().delay(0, 0);
    EXPECT_EQ(left->completion().status, IBV_WC_SUCCESS);
    EXPECT_EQ(buffer.contents()[kBytes - 1], 'x');
}

TEST_F(EndingTest, NothingLandsThroughAWindowThatIsGone) {
    ibv_mw* window = ibv_alloc_mw(right->pd, IBV_MW_TYPE_2);
    ASSERT_NE(window, nullptr);
    ibv_send_wr bind{}, *bad = nullptr;
    bind.opcode = IBV_WR_BIND_MW;
    bind.send_flags = IBV_SEND_SIGNALED;
    bind.bind_mw.mw = window;
    bind.bind_mw.rkey = ibv_inc_rkey(window->rkey);
    bind.bind_mw.bind_info = {mr, buffer.address(), kBytes, IBV_ACCESS_REMOTE_WRITE};
    ASSERT_EQ(ibv_post_send(right->qp, &bind, &bad), 0);
    ASSERT_EQ(right->completion().status, IBV_WC_SUCCESS);
    begin_write(bind.bind_mw.rkey);
    const std::uint64_t before = fake().copies();
    EXPECT_EQ(ibv_dealloc_mw(window), 0);
    EXPECT_GT(fake().copies(), before) << "the copy has yet to land";
}

}  // namespace
}  // namespace feroce::gpu_test::ending_test
