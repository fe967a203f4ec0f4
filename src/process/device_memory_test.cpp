#include "process/device_memory.hpp"

#include <gtest/gtest.h>

#include <array>

namespace feroce::process {
namespace {

TEST(DeviceMemory, ABlockIsFoundWhileSomebodyHoldsIt) {
    DeviceMemory memory;
    auto block = memory.allocate(64, 4096);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block->at(0)) % 4096, 0u);
    const std::uint32_t handle = block->handle();
    EXPECT_EQ(memory.find(handle), block);
    EXPECT_EQ(memory.find(handle + 1), nullptr);
    block.reset();
    EXPECT_EQ(memory.find(handle), nullptr);
    EXPECT_NE(memory.allocate(8, 8)->handle(), handle);
}

TEST(DeviceMemory, CopiesWholeWordsWithinTheBlock) {
    DeviceMemory memory;
    const auto block = memory.allocate(64, 8);
    std::array<std::byte, 16> in{}, out{};
    in.fill(std::byte{7});
    EXPECT_TRUE(block->copy_in(48, in));
    EXPECT_TRUE(block->copy_out(48, out));
    EXPECT_EQ(in, out);
    EXPECT_FALSE(block->copy_in(52, in)) << "beyond the end";
    EXPECT_FALSE(block->copy_in(2, in));
    EXPECT_FALSE(block->copy_out(0, ByteSpan(out).first(3)));
    EXPECT_FALSE(block->holds(~std::uint64_t{0}, 4));
    EXPECT_TRUE(block->holds(64, 0));
    EXPECT_FALSE(DeviceBlock().copy_in(0, in));
}

}  // namespace
}  // namespace feroce::process
