// Memory of the real runtime: its blocks are aligned, and go back as they came.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "feroce/runtime.hpp"

namespace feroce::rdma {
namespace {

TEST(RuntimeMemory, BlocksAreAligned) {
    RealRuntime runtime;
    for (const std::size_t bytes : {1u, 64u, 70'000u, 3u << 20})
        for (const std::size_t alignment : {8u, 64u, 4096u}) {
            void* const block = runtime.memory().allocate(bytes, alignment);
            const std::size_t least = bytes < (2u << 20) ? 64 : 2u << 20;
            EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % std::max(alignment, least), 0u);
            static_cast<std::byte*>(block)[bytes - 1] = std::byte{1};
            runtime.memory().deallocate(block, bytes, alignment);
        }
}

}  // namespace
}  // namespace feroce::rdma
