#include "preload/rewrite.hpp"

#include <gtest/gtest.h>

#include <string>

namespace feroce::preload {
namespace {

std::string rewritten(const std::string& path) {
    return Rewritten(path.c_str()).path();
}

TEST(Rewrite, MovesOnlyItsPrefixes) {
    set_root("/private/tree");
    EXPECT_EQ(rewritten("/sys/class/infiniband"), "/private/tree/sys/class/infiniband");
    EXPECT_EQ(rewritten("/sys/class/infiniband/"), "/private/tree/sys/class/infiniband/");
    EXPECT_EQ(rewritten("/sys/class/infiniband_verbs/abi_version"),
              "/private/tree/sys/class/infiniband_verbs/abi_version");
    EXPECT_EQ(rewritten("/dev/infiniband/uverbs0"), "/private/tree/dev/infiniband/uverbs0");
    for (const char* other : {"/sys/class/infinibandage", "/sys/class/net", "/dev/infiniband2",
                              "/dev/null", "", "/", "sys/class/infiniband", "/dev/infiniban"})
        EXPECT_EQ(rewritten(other), other);
}

TEST(Rewrite, TheGpuModuleIsThereOnceItIsUsed) {
    const std::string version = "/sys/module/nvidia_peermem/version";
    set_root("/private/tree");
    EXPECT_EQ(rewritten(version), version);
    show_gpu_module();
    EXPECT_EQ(rewritten(version), "/private/tree" + version);
    EXPECT_EQ(rewritten("/sys/module/nvidia_peermem"), "/sys/module/nvidia_peermem");
    EXPECT_EQ(rewritten("/sys/module/nvidia/version"), "/sys/module/nvidia/version");
}

TEST(Rewrite, MovesOnlyInventedPlacesOfThePciBus) {
    set_root("/private/tree");
    for (const std::string ours :
         {"/sys/bus/pci/devices/fe0c:01:00.0", "/sys/bus/pci/devices/fe0c:01:00.0/numa_node",
          "/sys/class/pci_bus/fe0c:01/../../fe0c:01:00.0", "/sys/devices/pcife0c:01"})
        EXPECT_EQ(rewritten(ours), "/private/tree" + ours);
    for (const char* other :
         {"/sys/bus/pci/devices", "/sys/bus/pci/devices/", "/sys/bus/pci/devices/0000:00:03.0",
          "/sys/class/pci_bus/0000:00", "/sys/devices/pci0000:00", "/sys/devices/pcife0c",
          "/sys/bus/pci/drivers/fe0c:01:00.0"})
        EXPECT_EQ(rewritten(other), other);
}

TEST(Rewrite, LeavesAllAloneWithoutATree) {
    for (const char* root : {static_cast<const char*>(nullptr), "", "relative"}) {
        set_root(root);
        EXPECT_EQ(rewritten("/dev/infiniband/uverbs0"), "/dev/infiniband/uverbs0");
    }
    set_root(std::string(2 * kPathMax, '/').c_str());
    EXPECT_EQ(rewritten("/dev/infiniband/uverbs0"), "/dev/infiniband/uverbs0");
}

TEST(Rewrite, NullAndEndlessPathsPass) {
    set_root("/private/tree");
    EXPECT_EQ(Rewritten(nullptr).path(), nullptr);
    const std::string endless = "/dev/infiniband/" + std::string(2 * kPathMax, 'x');
    EXPECT_EQ(rewritten(endless), endless);
    const std::string longest(kPathMax - std::string("/private/tree/dev/infiniband/").size() - 1,
                              'x');
    EXPECT_EQ(rewritten("/dev/infiniband/" + longest), "/private/tree/dev/infiniband/" + longest);
    EXPECT_EQ(rewritten("/dev/infiniband/" + longest + "x"), "/dev/infiniband/" + longest + "x");
}

}  // namespace
}  // namespace feroce::preload
