#include "verbs/device_names.hpp"

#include <gtest/gtest.h>

namespace feroce::verbs {
namespace {

TEST(DeviceNames, AreThoseOfInterfacesUnlessTold) {
    EXPECT_EQ(DeviceNames().name_of("eth0", 3), "feroce_eth0");
}

TEST(DeviceNames, FollowAPattern) {
    const auto numbered = DeviceNames::parse("mlx5_%d");
    ASSERT_TRUE(numbered);
    EXPECT_EQ(numbered->name_of("eth0", 3), "mlx5_3");
    const auto named = DeviceNames::parse("%s-rdma");
    ASSERT_TRUE(named);
    EXPECT_EQ(named->name_of("eth0", 3), "eth0-rdma");
}

TEST(DeviceNames, RefuseWhatIsNoPattern) {
    for (const char* pattern :
         {"", "mlx5_0", "mlx5_%", "%d%d", "mlx5_%x", "a/%d", "%d%s", "../%d", "a b%d", "%%d"})
        EXPECT_FALSE(DeviceNames::parse(pattern)) << pattern;
    // The longest interface must have room.
    constexpr std::string_view kLong = "a123456789b123456789c123456789d123456789e123456%s";
    EXPECT_FALSE(DeviceNames::parse(kLong));
    const auto longest = DeviceNames::parse(kLong.substr(1));
    ASSERT_TRUE(longest);
    EXPECT_EQ(longest->name_of("i23456789012345", 0).size(), 61u);
}

}  // namespace
}  // namespace feroce::verbs
