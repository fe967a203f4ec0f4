// Joining where something is wanting.
#include <gtest/gtest.h>

#include <cerrno>

#include "feroce/gas/node.hpp"
#include "rdma/test_no_files.hpp"

namespace feroce::gas {
namespace {

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

}  // namespace
}  // namespace feroce::gas
