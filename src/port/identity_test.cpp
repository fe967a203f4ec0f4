#include "port/identity.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

namespace feroce::port {
namespace {

TEST(Identity, IsThatOfTheCallingThread) {
    struct stat network {};
    ASSERT_EQ(::stat("/proc/self/ns/net", &network), 0);
    const Identity identity = capture_identity(Sharing::Any);
    EXPECT_EQ(identity.user, ::geteuid());
    EXPECT_EQ(identity.network, network.st_ino);
    EXPECT_EQ(identity.sharing, Sharing::Any);
    EXPECT_TRUE(identity.serves_others());
    EXPECT_FALSE(capture_identity(Sharing::User).serves_others());
}

TEST(Identity, AThreadThatMovesIsInANetworkOfItsOwn) {
    const std::uint64_t before = network_of_caller();
    std::uint64_t moved = before;
    int refused = 0;
    std::thread([&] {
        if (::unshare(CLONE_NEWNET) != 0) refused = errno;
        moved = capture_identity(Sharing::Default).network;
    }).join();
    if (refused == EPERM) GTEST_SKIP() << "network namespaces take root";
    ASSERT_EQ(refused, 0);
    EXPECT_NE(moved, before);
    EXPECT_EQ(network_of_caller(), before);
}

}  // namespace
}  // namespace feroce::port
