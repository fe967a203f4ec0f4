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

}  // namespace
}  // namespace feroce::gas
