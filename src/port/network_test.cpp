#include "port/network.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "port/identity.hpp"

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

}  // namespace
}  // namespace feroce::port
