// The data path allocates nothing: once warm, 100,000 operations of each kind, from post to
// completion on both sides, make not one call of operator new.
#include <gtest/gtest.h>

#include "counting_new.hpp"
#include "engine_pair.hpp"

namespace feroce::bench {
namespace {

using transport::SendOp;

void run_operations(EnginePair& pair, SendOp op, std::uint32_t bytes, std::uint32_t count) {
    constexpr std::uint32_t kBatch = 8;
    for (std::uint32_t done = 0; done < count; done += kBatch) {
        for (std::uint32_t i = 0; i < kBatch; ++i) pair.post(op, bytes);
        ASSERT_EQ(pair.settle(), kBatch);
    }
}

class Allocations : public ::testing::TestWithParam<SendOp> {};

TEST_P(Allocations, NoneOnTheDataPath) {
    const bool atomic = GetParam() == SendOp::FetchAdd || GetParam() == SendOp::CompareSwap;
    const std::uint32_t bytes = atomic ? 8 : 5000;
    EnginePair pair(4);
    run_operations(pair, GetParam(), bytes, 4096);
    const std::uint64_t before = allocations();
    run_operations(pair, GetParam(), bytes, 100'000);
    EXPECT_EQ(allocations() - before, 0U);
}

TEST(AllocationCounter, Counts) {
    const std::uint64_t before = allocations();
    EnginePair pair(1);
    EXPECT_GT(allocations(), before);
}

INSTANTIATE_TEST_SUITE_P(All, Allocations,
                         ::testing::Values(SendOp::Send, SendOp::SendImmediate, SendOp::Write,
                                           SendOp::WriteImmediate, SendOp::Read,
                                           SendOp::CompareSwap, SendOp::FetchAdd));

}  // namespace
}  // namespace feroce::bench
