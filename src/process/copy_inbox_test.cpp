// The inbox of copies: what several threads put in comes out once, and no wake-up is lost.
#include "process/copy_inbox.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "process/silent_host.hpp"

namespace feroce::process {
namespace {
namespace copy_inbox_test {

class CopyInboxes : public testing::Test {
protected:
    std::atomic<int> wakes{0};
    CopyInbox inbox{[this] { ++wakes; }};
    Prng random{1};
    mem::Memory memory{{}, random};
    device::XrcDomains xrc;
    SilentPort port;
    SilentEvents events;
    device::Engine engine{{}, {memory, xrc, port, events, random, &inbox}};
};

TEST_F(CopyInboxes, WakeOnceUntilTheyAreEmptied) {
    EXPECT_FALSE(inbox.pending());
    inbox.copy_done(1, true);
    inbox.copy_done(2, false);
    EXPECT_TRUE(inbox.pending());
    EXPECT_EQ(wakes, 1);
    inbox.empty_into(Instant{}, engine);  // The engine started none of these, and does not mind.
    EXPECT_FALSE(inbox.pending());
    inbox.copy_done(3, true);
    EXPECT_EQ(wakes, 2);
}

TEST_F(CopyInboxes, LoseNoWakeUpBetweenThreads) {
    constexpr int kThreads = 4, kCopies = 1000;
    std::atomic<int> ended{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i)
        threads.emplace_back([&, i] {
            for (int n = 0; n < kCopies; ++n)
                inbox.copy_done(static_cast<mem::CopyToken>(i * kCopies + n + 1), true);
            ++ended;
        });
    int seen = 0;
    for (bool last = false; !last;) {
        last = ended == kThreads;
        if (wakes != seen) {
            seen = wakes;
            inbox.empty_into(Instant{}, engine);
        }
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_FALSE(inbox.pending()) << "something lies there and nobody was woken";
}

}  // namespace copy_inbox_test
}  // namespace
}  // namespace feroce::process
