#include "device/queue_memory.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <set>
#include <vector>

namespace feroce::device {
namespace {

constexpr std::size_t kLargest = std::size_t{1} << 20;

TEST(QueueMemory, SizesGrowInSmallSteps) {
    QueueMemory::Size before;
    for (std::size_t bytes = 1; bytes <= kLargest; bytes += bytes < 8192 ? 1 : 61) {
        const QueueMemory::Size size = QueueMemory::size_for(bytes);
        ASSERT_LT(size.index, QueueMemory::kSizes) << bytes;
        ASSERT_GE(size.bytes, bytes);
        ASSERT_LT(size.bytes - bytes, std::max<std::size_t>(64, bytes / 4)) << bytes;
        ASSERT_EQ(size.bytes % 64, 0u) << bytes;
        // One index for each size.
        ASSERT_EQ(size.bytes == before.bytes, bytes > 1 && size.index == before.index) << bytes;
        before = size;
    }
    EXPECT_LT(QueueMemory::size_for(kLargest).index, QueueMemory::kSizes);
}

TEST(QueueMemory, BlocksAreApartAndComeAgain) {
    QueueMemory memory;
    struct Block {
        std::byte* start;
        std::size_t bytes;
    };
    std::vector<Block> blocks;
    for (const std::size_t bytes :
         {1ul, 64ul, 65ul, 700ul, 2500ul, 70'000ul, kLargest, 2 * kLargest})
        for (int i = 0; i < 40; ++i) {
            void* const start = memory.allocate(bytes, 64);
            ASSERT_EQ(reinterpret_cast<std::uintptr_t>(start) % 64, 0u);
            std::memset(start, static_cast<int>(blocks.size()), bytes);
            blocks.push_back({static_cast<std::byte*>(start), bytes});
        }
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        const auto expected = static_cast<std::byte>(i);
        EXPECT_EQ(blocks[i].start[0], expected);
        EXPECT_EQ(blocks[i].start[blocks[i].bytes - 1], expected);
    }
    std::set<void*> small;
    for (const Block& block : blocks) {
        if (block.bytes == 700) small.insert(block.start);
        memory.deallocate(block.start, block.bytes, 64);
    }
    for (std::size_t i = 0; i < small.size(); ++i)
        EXPECT_TRUE(small.contains(memory.allocate(700, 64))) << "what was freed comes first";
}

// A block goes back to where it came from, never to another engine's.
TEST(QueueMemory, NoTwoAreTheSame) {
    QueueMemory one, other;
    EXPECT_TRUE(one.is_equal(one));
    EXPECT_FALSE(one.is_equal(other));
}

}  // namespace
}  // namespace feroce::device
