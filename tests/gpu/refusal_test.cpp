// What GPU memory cannot do, and the words that `feroce explain` has for it.
#include "fake_driver.hpp"
#include "verbs/explain.hpp"
#include "verbs/instance.hpp"
#include "verbs/test_pair.hpp"

namespace feroce::gpu_test::refusal_test {
namespace {

class RefusalTest : public FakeDriverTest {
protected:
    void SetUp() override {
        context = verbs::open_loopback();
        ASSERT_NE(context, nullptr);
        left = std::make_unique<verbs::Endpoint>(context);
        right = std::make_unique<verbs::Endpoint>(context);
        verbs::connect(*left, *right);
        mr = ibv_reg_mr_iova2(right->pd, buffer.pointer(), buffer.size(), buffer.address(),
                              verbs::kAllAccess);
        ASSERT_NE(mr, nullptr);
        buffer.fill(bytes);
    }
    void TearDown() override {
        EXPECT_EQ(ibv_dereg_mr(mr), 0);
        left.reset();
        right.reset();
        EXPECT_EQ(ibv_close_device(context), 0);
    }
    static std::string words_of(const verbs::Endpoint& end) {
        verbs::Instance& instance = verbs::Instance::get();
        return verbs::explain(instance, verbs::find_failure(instance, verbs::qp_of(end.qp)));
    }

    ibv_context* context = nullptr;
    const DeviceBuffer buffer{4096};
    const std::vector<unsigned char> bytes = pattern(4096, 3);
    std::unique_ptr<verbs::Endpoint> left;
    std::unique_ptr<verbs::Endpoint> right;
    ibv_mr* mr = nullptr;
};

TEST_F(RefusalTest, AtomicsOnAPeersMemory) {
    ASSERT_EQ(left->post(IBV_WR_ATOMIC_FETCH_AND_ADD, left->sge(0, 8), buffer.address(), mr->rkey),
              0);
    EXPECT_EQ(left->completion().status, IBV_WC_REM_OP_ERR);
    EXPECT_NE(words_of(*left).find("GPU"), std::string::npos) << words_of(*left);
    EXPECT_NE(words_of(*right).find("GPU"), std::string::npos) << words_of(*right);
    EXPECT_EQ(buffer.contents(), bytes);
}

// The answer of an atomic is an ordinary one: it may lie there.
TEST_F(RefusalTest, ButNotTheAnswerOfAnAtomic) {
    const std::uint64_t word = 41;
    std::memcpy(left->memory.data(), &word, sizeof word);
    ASSERT_EQ(right->post(IBV_WR_ATOMIC_FETCH_AND_ADD, {buffer.address(), 8, mr->lkey},
                          left->address(0), left->mr->rkey),
              0);
    ASSERT_EQ(right->completion().status, IBV_WC_SUCCESS);
    std::uint64_t answer = 0;
    std::memcpy(&answer, buffer.contents().data(), sizeof answer);
    EXPECT_EQ(answer, 41u);
}

TEST_F(RefusalTest, InlineData) {
    ibv_sge sge{buffer.address(), 16, mr->lkey};
    ibv_send_wr wr{}, *bad = nullptr;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
    EXPECT_EQ(ibv_post_send(right->qp, &wr, &bad), EFAULT);
    EXPECT_EQ(bad, &wr);
    // As it says, without the flag it works.
    ASSERT_EQ(left->post_receive(0, 64), 0);
    wr.send_flags = IBV_SEND_SIGNALED;
    ASSERT_EQ(ibv_post_send(right->qp, &wr, &bad), 0);
    EXPECT_EQ(right->completion().status, IBV_WC_SUCCESS);
    ASSERT_EQ(left->completion().status, IBV_WC_SUCCESS);
    EXPECT_EQ(std::memcmp(left->memory.data(), bytes.data(), 16), 0);
}

}  // namespace
}  // namespace feroce::gpu_test::refusal_test
