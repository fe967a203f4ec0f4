#include "cli/rdma_command.hpp"

#include <gtest/gtest.h>

namespace feroce::cli {
namespace {

using Words = std::vector<std::string>;

TEST(RdmaCommand, IsKnownByItsName) {
    EXPECT_TRUE(is_rdma_command("rdma"));
    EXPECT_TRUE(is_rdma_command("/tree/bin/rdma"));
    EXPECT_FALSE(is_rdma_command("/rdma/feroce"));
}

TEST(RdmaCommand, AsksOurs) {
    EXPECT_EQ(as_our_words({"dev"}), (Words{"dev"}));
    EXPECT_EQ(as_our_words({"link", "show", "feroce_lo/1"}),
              (Words{"link", "show", "feroce_lo/1"}));
    EXPECT_EQ(as_our_words({"-jp", "resource", "show", "qp"}),
              (Words{"-j", "-p", "res", "show", "qp"}));
    EXPECT_EQ(as_our_words({"-d", "--json", "stat"}), (Words{"--json", "stat"}));
    EXPECT_EQ(as_our_words({"s"}), std::nullopt);  // `rdma` takes it for `system`.
    EXPECT_EQ(as_our_words({"st"}), (Words{"stat"}));
    EXPECT_EQ(as_our_words({"r"}), (Words{"res"}));
}

TEST(RdmaCommand, LeavesTheRestToTheMachine) {
    for (const Words& words :
         {Words{}, Words{"system", "show"}, Words{"monitor"}, Words{"-V"}, Words{"-j"}, Words{""}})
        EXPECT_EQ(as_our_words(words), std::nullopt);
}

TEST(RdmaCommand, IsALinkToThisProgram) {
    Tree tree;
    add_rdma_command(tree);
    ASSERT_EQ(tree.size(), 1u);
    EXPECT_EQ(tree.begin()->first, "bin/rdma");
    EXPECT_TRUE(tree.begin()->second.link);
    EXPECT_NE(tree.begin()->second.text.find("cli_test"), std::string::npos);
}

}  // namespace
}  // namespace feroce::cli
