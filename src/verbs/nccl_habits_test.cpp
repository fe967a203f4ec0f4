// What NCCL does with a device before it trusts it with a GPU's memory.
#include "verbs/test_pair.hpp"

namespace feroce::verbs {
namespace nccl_habits_test {
namespace {

class NcclHabitsTest : public testing::Test {
protected:
    void SetUp() override {
        context = open_loopback();
        ASSERT_NE(context, nullptr);
    }
    void TearDown() override { EXPECT_EQ(ibv_close_device(context), 0); }
    ibv_context* context = nullptr;
};

// It flushes by reading a byte through a queue pair that is connected to itself.
TEST_F(NcclHabitsTest, AQueuePairConnectedToItselfReadsAndWrites) {
    Endpoint self(context);
    ASSERT_EQ(self.to_init(), 0);
    ASSERT_EQ(self.to_rtr(self.qp->qp_num), 0);
    ASSERT_EQ(self.to_rts(), 0);
    for (int i = 0; i < 100; ++i) {
        self.memory[0] = static_cast<char>(i + 1);
        ASSERT_EQ(self.post(IBV_WR_RDMA_READ, self.sge(64, 1), self.address(0), self.mr->rkey), 0);
        ASSERT_EQ(self.completion().status, IBV_WC_SUCCESS);
        ASSERT_EQ(self.memory[64], static_cast<char>(i + 1));
    }
    ASSERT_EQ(
        self.post(IBV_WR_RDMA_WRITE, self.sge(0, 30'000), self.address(30'000), self.mr->rkey), 0);
    ASSERT_EQ(self.completion().status, IBV_WC_SUCCESS);
    EXPECT_EQ(std::memcmp(self.memory.data(), self.memory.data() + 30'000, 30'000), 0);
}

TEST_F(NcclHabitsTest, ThePortTellsItsSpeed) {
    std::uint64_t speed = 0;
    ASSERT_EQ(ibv_query_port_speed(context, 1, &speed), 0);
    EXPECT_GE(speed, 1u);       // 100 Mb/s,
    EXPECT_LE(speed, 20'000u);  // and 2 Tb/s.
    EXPECT_EQ(ibv_query_port_speed(context, 2, &speed), EINVAL);
}

}  // namespace
}  // namespace nccl_habits_test
}  // namespace feroce::verbs
