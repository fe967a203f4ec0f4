#include "cli/sysfs_tree.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace feroce::cli {
namespace {

namespace fs = std::filesystem;

// A name of its own for each call, so that trees of tests do not meet those of users.
DeviceInfo example(const std::string& interface) {
    DeviceInfo device;
    device.name = "feroce_" + interface;
    device.verbs_name = "uverbs0";
    device.interface = interface;
    device.guid = 0x0011'22ff'fe33'4455;
    device.up = true;
    device.gids = {Gid::from_v4(0x0a00'0001)};
    return device;
}

std::string content(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

TEST(SysfsTree, HoldsWhatProgramsLookFor) {
    const Result<std::string> root = install_tree(describe_tree({example("test0")}));
    ASSERT_TRUE(root);
    const std::string device = *root + "/sys/class/infiniband/feroce_test0/";
    EXPECT_EQ(content(device + "node_type"), "1: CA\n");
    EXPECT_EQ(content(device + "node_guid"), "0011:22ff:fe33:4455\n");
    EXPECT_EQ(content(device + "ports/1/state"), "4: ACTIVE\n");
    EXPECT_EQ(content(device + "ports/1/link_layer"), "Ethernet\n");
    EXPECT_EQ(content(device + "ports/1/gids/0"), "0000:0000:0000:0000:0000:ffff:0a00:0001\n");
    EXPECT_EQ(content(device + "ports/1/gid_attrs/types/0"), "RoCE v2\n");
    EXPECT_EQ(content(device + "ports/1/gid_attrs/ndevs/0"), "test0\n");
    EXPECT_TRUE(fs::is_symlink(device + "device/net/test0"));
    EXPECT_EQ(content(device + "hca_type"), "feroce\n");
    EXPECT_EQ(content(device + "device/class"), "0x020000\n");
    EXPECT_EQ(content(device + "device/numa_node"), "-1\n");
    for (const char* name : {"vendor", "device", "local_cpus"})
        EXPECT_NE(content(device + "device/" + name), "") << name;
    // NCCL opens them all and ends where one is missing.
    for (int i = 1; i < 64; ++i) {
        const std::string index = std::to_string(i);
        EXPECT_TRUE(fs::exists(device + "ports/1/gid_attrs/types/" + index)) << i;
        EXPECT_EQ(content(device + "ports/1/gids/" + index),
                  "0000:0000:0000:0000:0000:0000:0000:0000\n");
    }
    EXPECT_TRUE(fs::exists(*root + "/sys/module/nvidia_peermem/version"));
    EXPECT_TRUE(fs::is_character_file(*root + "/dev/infiniband/uverbs0"));
    struct stat info {};
    ASSERT_EQ(::stat(fs::path(*root).parent_path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0700u);
    fs::remove_all(*root);
}

// Links as the kernel has them, in both directions.
TEST(SysfsTree, HasAPlaceOnThePciBusOnRequest) {
    const PciPlaces places = PciPlaces::parse("0000:c1:00.0").value();
    DeviceInfo second = example("test5");
    second.verbs_name = "uverbs1";
    const Result<std::string> root =
        install_tree(describe_tree({example("test4"), second}, places));
    ASSERT_TRUE(root);
    const fs::path sys = fs::path(*root) / "sys";
    for (const auto& [number, address] : {std::pair{"4", "0000:c1:00.0"}, {"5", "0000:c2:00.0"}}) {
        const fs::path device = sys / "class/infiniband" / (std::string("feroce_test") + number);
        const fs::path card = fs::canonical(device / "device");
        EXPECT_EQ(card.filename(), address);
        EXPECT_EQ(card.parent_path().filename(), "pcife0c:" + std::string(address + 5, 2));
        // As Mooncake finds it, and NCCL.
        EXPECT_EQ(fs::canonical(device / "../.."), card);
        EXPECT_EQ(fs::canonical(card / "subsystem").filename(), "pci");
        EXPECT_EQ(fs::canonical(sys / "bus/pci/devices" / address), card);
        EXPECT_EQ(
            fs::canonical(sys / "class/pci_bus" / std::string(address, 7) / "../.." / address),
            card);
        EXPECT_EQ(content(card / "class"), "0x020000\n");
        EXPECT_EQ(content(card / "numa_node"), "-1\n");
        EXPECT_EQ(content(device / "node_type"), "1: CA\n");
        EXPECT_EQ(content(device / "ports/1/state"), "4: ACTIVE\n");
    }
    EXPECT_EQ(content(sys / "class/infiniband_verbs/uverbs0/ibdev"), "feroce_test4\n");
    EXPECT_EQ(content(sys / "class/infiniband_verbs/uverbs1/device/class"), "0x020000\n");
    fs::remove_all(*root);
}

TEST(SysfsTree, IsSharedUntilSomethingChanges) {
    const Result<std::string> first = install_tree(describe_tree({example("test1")}));
    const Result<std::string> again = install_tree(describe_tree({example("test1")}));
    DeviceInfo down = example("test1");
    down.up = false;
    const Result<std::string> changed = install_tree(describe_tree({down}));
    ASSERT_TRUE(first && again && changed);
    EXPECT_EQ(*first, *again);
    EXPECT_NE(*first, *changed);
    fs::remove_all(*first);
    fs::remove_all(*changed);
}

TEST(SysfsTree, UnusedOnesGoAway) {
    const Result<std::string> old = install_tree(describe_tree({example("test2")}));
    ASSERT_TRUE(old);
    fs::last_write_time(*old, fs::file_time_type::clock::now() - std::chrono::hours(48));
    const Result<std::string> fresh = install_tree(describe_tree({example("test3")}));
    ASSERT_TRUE(fresh);
    EXPECT_FALSE(fs::exists(*old));
    EXPECT_TRUE(fs::exists(*fresh));
    fs::remove_all(*fresh);
}

}  // namespace
}  // namespace feroce::cli
