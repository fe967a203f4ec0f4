// Joining where something is wanting.
#include <gtest/gtest.h>

#include <cerrno>

#include "feroce/gas/node.hpp"
#include "rdma/test_no_files.hpp"

namespace feroce::gas {
namespace {

TEST(Join, WithoutADescriptorIsAnError) {
    const auto joined = [] {
        const rdma::NoFiles none;
        return Node::join(NodeOptions{.threads = 2});
    }();
    ASSERT_FALSE(joined);
    EXPECT_EQ(joined.error().code, EMFILE) << joined.error().why;
    EXPECT_TRUE(Node::join(NodeOptions{.threads = 2})) << "there are some again";
}

}  // namespace
}  // namespace feroce::gas
