#include "cli/metrics/counter_tree.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace feroce::cli::counter_tree_test {
namespace {

namespace fs = std::filesystem;

constexpr char kPort[] = "class/infiniband/feroce_x/ports/1/";

std::vector<DeviceInfo> one_device() {
    DeviceInfo device;
    device.name = "feroce_x";
    device.verbs_name = "uverbs0";
    device.interface = "x";
    device.up = true;
    return {device};
}

std::string text_of(const fs::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

class CounterFolderTest : public testing::Test {
protected:
    void SetUp() override {
        std::string name = testing::TempDir() + "countersXXXXXX";
        ASSERT_NE(::mkdtemp(name.data()), nullptr);
        root_ = name;
    }
    void TearDown() override { fs::remove_all(root_); }
    std::string port_file(const char* name) const { return text_of(root_ / kPort / name); }

    fs::path root_;
};

TEST(CounterTree, HasTheFilesThatExportersRead) {
    const Counts counts{{"sent_bytes", 4'003},
                        {"sent_pkts", 7},
                        {"ack_timeouts", 5},
                        {"drop_bad_icrc", 2},
                        {"error/IBV_WC_REM_ACCESS_ERR/peer_refused", 3}};
    Tree tree = describe_counters(one_device(), {{"feroce_x", counts}});
    const auto text = [&tree](const char* name) { return tree[kPort + std::string(name)].text; };
    EXPECT_EQ(text("counters/port_xmit_data"), "1000\n") << "in words of four bytes";
    EXPECT_EQ(text("counters/port_xmit_packets"), "7\n");
    EXPECT_EQ(text("counters/port_rcv_packets"), "0\n");
    EXPECT_EQ(text("counters/port_rcv_errors"), "2\n");
    EXPECT_EQ(text("hw_counters/sent_pkts"), "7\n") << "rxe's name";
    EXPECT_EQ(text("hw_counters/local_ack_timeout_err"), "5\n") << "mlx5's";
    EXPECT_EQ(text("hw_counters/req_cqe_error"), "3\n");
    EXPECT_EQ(text("state"), "4: ACTIVE\n");
    EXPECT_EQ(tree.count("class/infiniband/feroce_x/fw_ver"), 1U);
    for (const auto& [path, entry] : tree) EXPECT_EQ(path.rfind("class/", 0), 0U) << path;
}

TEST_F(CounterFolderTest, FollowsTheTree) {
    CounterFolder folder((root_ / "new").string());
    ASSERT_TRUE(folder.claim());
    root_ /= "new";
    ASSERT_TRUE(folder.write(describe_counters(one_device(), {})));
    EXPECT_EQ(port_file("hw_counters/sent_pkts"), "0\n");
    ASSERT_TRUE(folder.write(describe_counters(one_device(), {{"feroce_x", {{"sent_pkts", 9}}}})));
    EXPECT_EQ(port_file("hw_counters/sent_pkts"), "9\n");
    EXPECT_EQ(port_file("state"), "4: ACTIVE\n");
    ASSERT_TRUE(folder.write(describe_counters({}, {})));
    EXPECT_FALSE(fs::exists(root_ / "class/infiniband/feroce_x")) << "the device is gone";
    root_ = root_.parent_path();
}

TEST_F(CounterFolderTest, TakesOverWhatAnotherOfUsLeft) {
    {
        CounterFolder before(root_.string());
        ASSERT_TRUE(before.claim());
        ASSERT_TRUE(
            before.write(describe_counters(one_device(), {{"feroce_x", {{"sent_pkts", 9}}}})));
        std::ofstream(root_ / kPort / "hw_counters/left_over") << "1\n";
        CounterFolder too_early(root_.string());
        const Result<void> claimed = too_early.claim();
        ASSERT_FALSE(claimed);
        EXPECT_EQ(claimed.error().code, EBUSY);
    }
    CounterFolder after(root_.string());
    ASSERT_TRUE(after.claim());
    ASSERT_TRUE(after.write(describe_counters(one_device(), {})));
    EXPECT_EQ(port_file("hw_counters/sent_pkts"), "0\n");
    EXPECT_FALSE(fs::exists(root_ / kPort / "hw_counters/left_over"));
}

TEST_F(CounterFolderTest, LeavesAFolderOfOthersAlone) {
    std::ofstream(root_ / "letter") << "dear\n";
    CounterFolder folder(root_.string());
    const Result<void> claimed = folder.claim();
    ASSERT_FALSE(claimed);
    EXPECT_EQ(claimed.error().code, ENOTEMPTY);
    EXPECT_EQ(text_of(root_ / "letter"), "dear\n");
    EXPECT_EQ(std::distance(fs::directory_iterator(root_), {}), 1);
}

}  // namespace
}  // namespace feroce::cli::counter_tree_test
