#include "device/completion_queue.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

namespace feroce::device {
namespace {

using transport::Completion;
using transport::WcStatus;
using Arm = CompletionQueue::Arm;

struct Listener final : CompletionListener {
    std::atomic<int> events{0};
    std::atomic<int> overflows{0};
    // Asks the queue something: would hang if the queue called out under its lock.
    void on_completion_event(CompletionQueue& cq) override { events += cq.capacity() > 0 ? 1 : 0; }
    void on_overflow(CompletionQueue& cq) override { overflows += cq.overflowed() ? 1 : 0; }
};

Completion with_id(std::uint64_t id, std::uint32_t qpn = 5) {
    Completion c;
    c.wr_id = id;
    c.qpn = Qpn{qpn};
    return c;
}

std::vector<std::uint64_t> drain(CompletionQueue& cq) {
    std::vector<std::uint64_t> ids;
    std::array<Completion, 7> out;
    while (const std::uint32_t n = cq.poll(out))
        for (std::uint32_t i = 0; i < n; ++i) ids.push_back(out[i].wr_id);
    return ids;
}

TEST(CompletionQueue, KeepsOrderWhileItGrowsAroundItsEnd) {
    CompletionQueue cq(1000, nullptr, nullptr);
    std::array<Completion, 50> out;
    for (std::uint64_t id = 0; id < 60; ++id) cq.push(with_id(id));
    ASSERT_EQ(cq.poll(out), 50u);
    EXPECT_EQ(out[49].wr_id, 49u);
    for (std::uint64_t id = 60; id < 1050; ++id) cq.push(with_id(id));
    EXPECT_EQ(cq.size(), 1000u);
    EXPECT_FALSE(cq.overflowed());
    const auto ids = drain(cq);
    ASSERT_EQ(ids.size(), 1000u);
    for (std::size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(ids[i], 50 + i);
    EXPECT_TRUE(cq.empty());
}

TEST(CompletionQueue, OverflowIsToldOnceAndLosesOnlyTheNewest) {
    Listener listener;
    CompletionQueue cq(3, &listener, nullptr);
    for (std::uint64_t id = 0; id < 3; ++id) EXPECT_TRUE(cq.push(with_id(id)));
    EXPECT_FALSE(cq.overflowed());
    EXPECT_EQ(listener.overflows, 0);
    EXPECT_FALSE(cq.push(with_id(3)));
    cq.push(with_id(4));
    EXPECT_TRUE(cq.overflowed());
    EXPECT_EQ(listener.overflows, 1);
    EXPECT_EQ(drain(cq), (std::vector<std::uint64_t>{0, 1, 2}));
    EXPECT_TRUE(cq.overflowed());
}

TEST(CompletionQueue, ARunEntersInItsOrderAsFarAsThereIsRoom) {
    Listener listener;
    CompletionQueue cq(3, &listener, nullptr);
    std::array<Completion, 5> list;
    std::array<const Completion*, 5> run;
    for (std::size_t i = 0; i < list.size(); ++i) {
        list[i] = with_id(i);
        run[i] = &list[i];
    }
    cq.arm(Arm::Next);
    EXPECT_EQ(cq.push_run(std::span(run).first(2)), 2u);
    EXPECT_EQ(cq.size(), 2u);
    EXPECT_EQ(listener.events, 1) << "one for the run";
    cq.arm(Arm::Next);
    EXPECT_EQ(cq.push_run(std::span(run).last(3)), 1u);
    EXPECT_EQ(listener.events, 2) << "of what entered,";
    EXPECT_EQ(listener.overflows, 1) << "and of what did not";
    EXPECT_EQ(drain(cq), (std::vector<std::uint64_t>{0, 1, 2}));
}

TEST(CompletionQueue, ARunHasAnEventIfOneOfItIsSolicited) {
    Listener listener;
    CompletionQueue cq(10, &listener, nullptr);
    Completion solicited = with_id(1);
    solicited.solicited = true;
    const Completion other = with_id(0);
    const std::array<const Completion*, 3> run{&other, &solicited, &other};
    cq.arm(Arm::Solicited);
    EXPECT_EQ(cq.push_run(std::span(run).first(1)), 1u);
    EXPECT_EQ(listener.events, 0);
    EXPECT_EQ(cq.push_run(run), 3u);
    EXPECT_EQ(listener.events, 1);
}

TEST(CompletionQueue, ArmedForNextFiresOnce) {
    Listener listener;
    CompletionQueue cq(10, &listener, nullptr);
    cq.push(with_id(0));
    cq.arm(Arm::Next);
    EXPECT_EQ(listener.events, 0) << "what was there before does not count";
    cq.push(with_id(1));
    EXPECT_EQ(listener.events, 1);
    cq.push(with_id(2));
    EXPECT_EQ(listener.events, 1);
}

TEST(CompletionQueue, ArmedForSolicitedWaitsForOneOrForAnError) {
    Listener listener;
    CompletionQueue cq(10, &listener, nullptr);
    Completion solicited = with_id(1);
    solicited.solicited = true;
    Completion failed = with_id(2);
    failed.status = WcStatus::FlushError;

    cq.arm(Arm::Solicited);
    cq.push(with_id(0));
    EXPECT_EQ(listener.events, 0);
    cq.push(solicited);
    EXPECT_EQ(listener.events, 1);
    cq.push(solicited);
    EXPECT_EQ(listener.events, 1) << "not armed again";
    cq.arm(Arm::Solicited);
    cq.push(failed);
    EXPECT_EQ(listener.events, 2);
}

TEST(CompletionQueue, TheWiderWishStands) {
    Listener listener;
    CompletionQueue cq(10, &listener, nullptr);
    cq.arm(Arm::Next);
    cq.arm(Arm::Solicited);
    cq.push(with_id(0));
    EXPECT_EQ(listener.events, 1);
    cq.arm(Arm::Solicited);
    cq.arm(Arm::Next);
    cq.push(with_id(1));
    EXPECT_EQ(listener.events, 2);
}

TEST(CompletionQueue, PurgeTakesOneQueuePairOnly) {
    CompletionQueue cq(10, nullptr, nullptr);
    for (std::uint64_t id = 0; id < 6; ++id) cq.push(with_id(id, id % 2 == 0 ? 5 : 6));
    cq.purge(Qpn{5});
    EXPECT_EQ(drain(cq), (std::vector<std::uint64_t>{1, 3, 5}));
}

TEST(CompletionQueue, ResizeRefusesToLoseAndThenBounds) {
    Listener listener;
    CompletionQueue cq(10, &listener, nullptr);
    for (std::uint64_t id = 0; id < 4; ++id) cq.push(with_id(id));
    EXPECT_FALSE(cq.resize(3));
    EXPECT_FALSE(cq.resize(0));
    EXPECT_EQ(cq.capacity(), 10u);
    EXPECT_TRUE(cq.resize(4));
    cq.push(with_id(4));
    EXPECT_EQ(listener.overflows, 1);
    EXPECT_TRUE(cq.resize(200));
    for (std::uint64_t id = 4; id < 200; ++id) cq.push(with_id(id));
    EXPECT_EQ(drain(cq).size(), 200u);
}

// Producers name themselves by QPN. Every completion must reach exactly one poller, and each poller
// must see each producer's in order.
// Its queue pairs may outlive it by a moment, where another thread is at work for them.
TEST(CompletionQueue, AClosedOneTakesNothingAndTellsNobody) {
    Listener listener;
    CompletionQueue cq(3, &listener, nullptr);
    EXPECT_TRUE(cq.push(with_id(1)));
    cq.arm(Arm::Next);
    cq.close();
    EXPECT_TRUE(cq.empty());
    EXPECT_FALSE(cq.push(with_id(2)));
    EXPECT_TRUE(drain(cq).empty());
    EXPECT_EQ(cq.capacity(), 0u);
    EXPECT_FALSE(cq.overflowed());
    EXPECT_EQ(listener.events, 0);
    EXPECT_EQ(listener.overflows, 0);
}

TEST(CompletionQueue, RemembersEveryShardThatItServes) {
    CompletionQueue cq(3, nullptr, nullptr);
    EXPECT_EQ(cq.shards(), 0u);
    cq.add_shards(4);
    cq.add_shards(1);
    cq.add_shards(4);
    EXPECT_EQ(cq.shards(), 5u);
}

TEST(CompletionQueue, ManyProducersManyPollers) {
    constexpr std::uint32_t kProducers = 3;
    constexpr std::uint64_t kEach = 20'000;
    Listener listener;
    CompletionQueue cq(kProducers * kEach, &listener, nullptr);
    std::atomic<std::uint64_t> polled{0};
    std::atomic<std::uint64_t> disorder{0};
    std::vector<std::atomic<int>> seen(kProducers * kEach);

    auto poller = [&] {
        std::array<Completion, 16> out;
        std::array<std::uint64_t, kProducers> next{};
        while (polled.load() < kProducers * kEach) {
            const std::uint32_t n = cq.poll(out);
            if (n == 0) cq.arm(Arm::Next);
            for (std::uint32_t i = 0; i < n; ++i) {
                const std::uint32_t producer = out[i].qpn.raw;
                if (out[i].wr_id < next[producer]) ++disorder;
                next[producer] = out[i].wr_id + 1;
                ++seen[producer * kEach + out[i].wr_id];
            }
            polled += n;
        }
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) threads.emplace_back(poller);
    for (std::uint32_t p = 0; p < kProducers; ++p)
        threads.emplace_back([&cq, p] {
            for (std::uint64_t id = 0; id < kEach; ++id) cq.push(with_id(id, p));
        });
    for (auto& thread : threads) thread.join();

    EXPECT_EQ(disorder, 0u);
    EXPECT_FALSE(cq.overflowed());
    for (const auto& count : seen) ASSERT_EQ(count, 1);
}

// What injected faults do to it.
TEST(CompletionQueue, AnnouncesOnlyIfArmed) {
    Listener listener;
    CompletionQueue cq(4, &listener, nullptr);
    cq.push(with_id(1));
    cq.announce();
    EXPECT_EQ(listener.events, 0);
    cq.arm(Arm::Next);
    cq.announce();
    cq.announce();
    EXPECT_EQ(listener.events, 1);
    EXPECT_EQ(drain(cq), (std::vector<std::uint64_t>{1}));
}

TEST(CompletionQueue, LosesAllThatComesAfterAnOverrun) {
    Listener listener;
    CompletionQueue cq(4, &listener, nullptr);
    EXPECT_TRUE(cq.push(with_id(1)));
    cq.overrun();
    cq.overrun();
    EXPECT_EQ(listener.overflows, 1);
    EXPECT_FALSE(cq.push(with_id(2)));
    EXPECT_TRUE(cq.resize(8));  // Does not mend it.
    EXPECT_FALSE(cq.push(with_id(3)));
    EXPECT_EQ(drain(cq), (std::vector<std::uint64_t>{1}));
    EXPECT_EQ(cq.capacity(), 8u);
}

}  // namespace
}  // namespace feroce::device
