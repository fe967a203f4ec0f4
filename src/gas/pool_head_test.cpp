#include "gas/pool_head.hpp"

#include <gtest/gtest.h>

namespace feroce::gas::detail {
namespace {

// A thread that is stopped while others change a pool takes no old head for the one of now, however
// many changes were made that it can have slept through.
TEST(PoolHead, IsNotTheSameAgain) {
    constexpr std::uint64_t kTerabyte = std::uint64_t{1} << 40;
    for (const std::uint64_t bytes :
         {std::uint64_t{64} << 10, std::uint64_t{16} << 20, kTerabyte}) {
        const PoolHead code(bytes);
        const std::uint64_t top = code.link_to(bytes - 64), other = code.link_to(0);
        const std::uint64_t seen = code.next(0, top);
        std::uint64_t head = seen;
        for (std::uint32_t changes = 0; changes < 1 << 18; ++changes) {
            head = code.next(head, changes % 2 == 0 ? other : top);
            ASSERT_NE(head, seen);
            ASSERT_EQ(code.offset(head), changes % 2 == 0 ? 0 : bytes - 64);
        }
    }
}

TEST(PoolHead, AnEmptyPoolCountsOn) {
    const PoolHead code(4096);
    const std::uint64_t one = code.next(0, code.link_to(0));
    EXPECT_EQ(code.offset(one), 0u);
    const std::uint64_t none = code.next(one, 0);
    EXPECT_EQ(code.link(none), 0u);
    EXPECT_NE(none, 0u);
    EXPECT_NE(code.next(none, code.link_to(0)), one);
}

}  // namespace
}  // namespace feroce::gas::detail
