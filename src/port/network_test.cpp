#include "port/network.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "port/identity.hpp"
#include "port/inet_socket.hpp"
#include "port/route.hpp"

namespace feroce::port {
namespace {

TEST(Network, AThreadThatIsThereDoesItsWorkItself) {
    const std::shared_ptr<Network> network = *Network::enter();
    EXPECT_EQ(network->run([] { return ::gettid(); }), ::gettid());
    int done = 0;
    network->run([&] { ++done; });
    EXPECT_EQ(done, 1);
}

// Runs `body` on threads that have left the network; the errno of one that could not leave.
template <class Body>
int on_threads_that_left(int count, Body&& body) {
    std::atomic<int> refused{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i)
        threads.emplace_back([&] {
            if (::unshare(CLONE_NEWNET) == 0)
                body();
            else
                refused = errno;
        });
    for (std::thread& thread : threads) thread.join();
    return refused;
}

TEST(Network, WorkOfAThreadThatLeftIsDoneThere) {
    const std::shared_ptr<Network> network = *Network::enter();
    const std::uint64_t here = network_of_caller();
    std::uint64_t before = here;
    std::uint64_t worked = 0;
    std::uint64_t after = here;
    const int refused = on_threads_that_left(1, [&] {
        before = network_of_caller();
        worked = network->run([] { return network_of_caller(); });
        after = network_of_caller();
    });
    if (refused == EPERM) GTEST_SKIP() << "network namespaces take root";
    ASSERT_EQ(refused, 0);
    EXPECT_EQ(worked, here);
    EXPECT_NE(before, here);
    EXPECT_EQ(after, before) << "the caller stays where it went";
}

TEST(Network, DoesOneThingAtATime) {
    const std::shared_ptr<Network> network = *Network::enter();
    constexpr int kThreads = 8;
    constexpr int kTimes = 200;
    int done = 0;  // Of one thread, or ThreadSanitizer complains.
    const int refused = on_threads_that_left(kThreads, [&] {
        for (int i = 0; i < kTimes; ++i) network->run([&] { ++done; });
    });
    if (refused == EPERM) GTEST_SKIP() << "network namespaces take root";
    ASSERT_EQ(refused, 0);
    EXPECT_EQ(done, kThreads * kTimes);
}

TEST(Network, WhatWorkThrowsReachesTheCaller) {
    const std::shared_ptr<Network> network = *Network::enter();
    std::string heard;
    const int refused = on_threads_that_left(1, [&] {
        try {
            network->run([]() -> int { throw std::runtime_error("no memory"); });
        } catch (const std::runtime_error& error) {
            heard = error.what();
        }
        heard += network->run([] { return std::string(", and on it goes"); });
    });
    if (refused == EPERM) GTEST_SKIP() << "network namespaces take root";
    ASSERT_EQ(refused, 0);
    EXPECT_EQ(heard, "no memory, and on it goes");
}

// Of loopback, in a namespace of the calling thread's own. 0: none.
bool set_loopback_address(std::uint32_t address) {
    const Fd fd = inet_socket(AF_INET);
    ifreq request{};
    std::strcpy(request.ifr_name, "lo");
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_addr.s_addr = htonl(address);
    std::memcpy(&request.ifr_addr, &in, sizeof in);
    if (::ioctl(fd.get(), SIOCSIFADDR, &request) != 0) return false;
    request.ifr_flags = IFF_UP;
    return ::ioctl(fd.get(), SIOCSIFFLAGS, &request) == 0;
}

// Zero if there is no route.
Gid gid_or_zero(const Result<Gid>& answer) {
    return answer ? *answer : Gid{};
}

TEST(Network, RemembersARouteUntilTheTablesChange) {
    const Gid peer = Gid::from_v4(0x0a010203);
    // 10.1.2.1, none, 192.168.1.1.
    const std::vector<std::uint32_t> steps{0x0a010201, 0, 0xc0a80101};
    std::vector<Gid> found, right;
    const int refused = on_threads_that_left(1, [&] {
        const std::shared_ptr<Network> network = *Network::enter();
        for (const std::uint32_t address : steps) {
            if (!set_loopback_address(address)) return;
            for (int i = 0; i < 2; ++i) {
                found.push_back(gid_or_zero(network->source_for(peer, 0)));
                right.push_back(gid_or_zero(route_source(peer, 0)));
            }
        }
    });
    if (refused == EPERM) GTEST_SKIP() << "network namespaces take root";
    ASSERT_EQ(refused, 0);
    ASSERT_EQ(found.size(), 2 * steps.size());
    EXPECT_EQ(found, right);
    EXPECT_EQ(found.front(), Gid::from_v4(steps.front()));
    EXPECT_NE(found.back(), found.front()) << "the answers should have changed";
}

}  // namespace
}  // namespace feroce::port
