#include "port/network.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

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

// Runs `body` on threads that have left the network; false if that is not allowed.
template <class Body>
bool on_threads_that_left(int count, Body&& body) {
    std::atomic<bool> may{true};
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i)
        threads.emplace_back([&] {
            if (::unshare(CLONE_NEWNET) == 0)
                body();
            else
                may = false;
        });
    for (std::thread& thread : threads) thread.join();
    return may;
}

TEST(Network, WorkOfAThreadThatLeftIsDoneThere) {
    const std::shared_ptr<Network> network = *Network::enter();
    const std::uint64_t here = network_of_caller();
    std::uint64_t before = here;
    std::uint64_t worked = 0;
    std::uint64_t after = here;
    const bool may = on_threads_that_left(1, [&] {
        before = network_of_caller();
        worked = network->run([] { return network_of_caller(); });
        after = network_of_caller();
    });
    if (!may) GTEST_SKIP() << "network namespaces take root";
    EXPECT_EQ(worked, here);
    EXPECT_NE(before, here);
    EXPECT_EQ(after, before) << "the caller stays where it went";
}

TEST(Network, DoesOneThingAtATime) {
    const std::shared_ptr<Network> network = *Network::enter();
    constexpr int kThreads = 8;
    constexpr int kTimes = 200;
    int done = 0;  // Of one thread, or ThreadSanitizer complains.
    const bool may = on_threads_that_left(kThreads, [&] {
        for (int i = 0; i < kTimes; ++i) network->run([&] { ++done; });
    });
    if (!may) GTEST_SKIP() << "network namespaces take root";
    EXPECT_EQ(done, kThreads * kTimes);
}

TEST(Network, WhatWorkThrowsReachesTheCaller) {
    const std::shared_ptr<Network> network = *Network::enter();
    std::string heard;
    const bool may = on_threads_that_left(1, [&] {
        try {
            network->run([]() -> int { throw std::runtime_error("no memory"); });
        } catch (const std::runtime_error& error) {
            heard = error.what();
        }
        heard += network->run([] { return std::string(", and on it goes"); });
    });
    if (!may) GTEST_SKIP() << "network namespaces take root";
    EXPECT_EQ(heard, "no memory, and on it goes");
}

}  // namespace
}  // namespace feroce::port
