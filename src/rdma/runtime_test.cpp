// The real runtime: its blocks of memory are aligned, and go back as they came; without a
// descriptor for it there is an error and no end of the program.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "base/sanitizers.hpp"
#include "feroce/runtime.hpp"
#include "feroce/workers.hpp"
#include "rdma/test_no_files.hpp"

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

#ifndef FEROCE_ASAN  // UBSan, which comes with it, looks at objects by a descriptor.
TEST(Workers, WithoutADescriptorAreAnError) {
    const auto started = [] {
        const NoFiles none;
        return Workers::start(2);
    }();
    ASSERT_FALSE(started);
    EXPECT_EQ(started.error().code, EMFILE) << started.error().why;
    EXPECT_TRUE(Workers::start(2)) << "there are some again";
}
#endif

}  // namespace
}  // namespace feroce::rdma
