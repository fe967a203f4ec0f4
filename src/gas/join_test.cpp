// Joining where something is wanting.
#include <gtest/gtest.h>

#include <cerrno>

#include "base/sanitizers.hpp"
#include "feroce/gas/node.hpp"
#include "rdma/test_no_files.hpp"

namespace feroce::gas {
namespace {

#ifndef FEROCE_ASAN  // UBSan, which comes with it, looks at objects by a descriptor.
TEST(Join, WithoutADescriptorIsAnError) {
    NodeOptions options;
    options.threads = 2;
    const auto joined = [&options] {
        const rdma::NoFiles none;
        return Node::join(options);
    }();
    ASSERT_FALSE(joined);
    EXPECT_EQ(joined.error().code, EMFILE) << joined.error().why;
    EXPECT_TRUE(Node::join(options)) << "there are some again";
}
#endif

#if !defined(FEROCE_ASAN) && !defined(FEROCE_TSAN)  // Their operator new ends the program.
TEST(Join, WithMoreMemoryThanThereIsIsAnError) {
    NodeOptions options;
    for (const std::uint64_t bytes : {std::uint64_t{1} << 47, ~std::uint64_t{0}}) {
        options.memory = bytes;
        const auto joined = Node::join(options);
        ASSERT_FALSE(joined) << bytes;
        EXPECT_EQ(joined.error().code, ENOMEM) << joined.error().why;
    }
}
#endif

}  // namespace
}  // namespace feroce::gas
