// Loops without a network: timers, tasks, groups, signals, messages from other threads; addresses.
#include <gtest/gtest.h>

#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "feroce/rdma.hpp"
#include "rdma/fake_runtime.hpp"

namespace feroce::rdma {
namespace {

using namespace std::chrono_literals;

class Loops : public testing::Test {
public:
    FakeRuntime runtime;
    Loop loop{runtime};
};

struct Alarm : Timer {
    Alarm(Loop& loop, std::vector<int>& into, int what)
        : Timer(loop, [](Timer& t) { static_cast<Alarm&>(t).ring(); }), log(into), name(what) {}
    void ring() { log.push_back(name); }
    std::vector<int>& log;
    int name;
};

struct Gathered : Deferred {
    explicit Gathered(Loop& loop)
        : Deferred(loop, [](Deferred& d) { ++static_cast<Gathered&>(d).runs; }) {}
    int runs = 0;
};

Task<void> gather(Gathered& gathered, int& runs_seen) {
    for (int i = 0; i < 3; ++i) gathered.schedule();
    runs_seen = gathered.runs;
    co_return;
}

TEST_F(Loops, SpinLongerWhereNewsComesSoon) {
    std::vector<int> rung;
    Alarm alarm(loop, rung, 1);
    // How long the loop spins before it waits for an alarm in `delay`.
    const auto spun_before = [&](Duration delay) {
        alarm.arm(loop.after(delay));
        for (const std::size_t before = rung.size(); rung.size() == before;) loop.poll_or_wait();
        return runtime.spun();
    };
    EXPECT_EQ(spun_before(1ms), 20us);
    for (const Duration expected : {20us, 40us, 80us, 160us, 200us, 200us})
        EXPECT_EQ(spun_before(210us), expected);
    EXPECT_EQ(spun_before(1ms), 200us);
    EXPECT_EQ(spun_before(1ms), 20us) << "as at first after a long wait";
}

TEST_F(Loops, ARoundHasATimeUntilACallBlocksInIt) {
    const Instant before = loop.round_time();
    runtime.relax();
    EXPECT_EQ(loop.round_time(), before + 1us) << "no round: the clock's";
    std::vector<Duration> seen;
    const auto look = [&] {
        seen.push_back(loop.round_time() - before);
        runtime.relax();
    };
    loop.post([&] {
        look();
        look();
        loop.poll();
        look();
    });
    loop.poll();
    look();
    EXPECT_EQ(seen, (std::vector<Duration>{1us, 1us, 3us, 4us}));
}

TEST_F(Loops, WhatARoundGathersIsDoneOnceAtItsEnd) {
    Gathered gathered(loop);
    int runs_seen = -1;
    loop.spawn(gather(gathered, runs_seen));
    EXPECT_EQ(runs_seen, 0) << "not at once";
    EXPECT_EQ(gathered.runs, 0);
    loop.poll();
    EXPECT_EQ(gathered.runs, 1);
    loop.poll();
    EXPECT_EQ(gathered.runs, 1);
    // One that a coroutine of the round asks for is done in the same round; one that has ended is
    // not done at all.
    Signal go(loop);
    const auto wait = [](Signal& signal, Gathered& what) -> Task<void> {
        (void)co_await signal.wait();
        what.schedule();
    };
    loop.spawn(wait(go, gathered));
    go.notify_all();
    loop.poll();
    EXPECT_EQ(gathered.runs, 2);
    std::make_unique<Gathered>(loop)->schedule();
    loop.poll();
}

TEST_F(Loops, TimersFireInOrderWhateverIsCancelledAndMoved) {
    std::minstd_rand random(7);
    for (int round = 0; round < 200; ++round) {
        std::vector<int> log;
        std::vector<std::unique_ptr<Alarm>> alarms;
        std::vector<int> expected;
        for (int i = 0; i < 40; ++i) {
            alarms.push_back(std::make_unique<Alarm>(loop, log, i));
            alarms.back()->arm(loop.after(1us * static_cast<int>(random() % 1000)));
        }
        for (auto& alarm : alarms)
            if (random() % 3 == 0) alarm->arm(loop.after(1us * static_cast<int>(random() % 1000)));
        for (int i = 0; i < 10; ++i) alarms[random() % alarms.size()]->cancel();
        for (int i = 0; i < 5; ++i) alarms.erase(alarms.begin() + random() % alarms.size());
        std::vector<Alarm*> armed;
        for (auto& alarm : alarms)
            if (alarm->armed()) armed.push_back(alarm.get());
        std::stable_sort(armed.begin(), armed.end(),
                         [](Alarm* a, Alarm* b) { return a->at() < b->at(); });
        std::vector<Instant> times;
        for (Alarm* alarm : armed) times.push_back(alarm->at());
        const Instant end = loop.after(2ms);
        while (loop.now() < end) loop.poll_or_wait(end);
        std::vector<Instant> fired;
        for (int name : log)
            for (Alarm* alarm : armed)
                if (alarm->name == name) fired.push_back(alarm->at());
        EXPECT_EQ(fired, times);
    }
}

TEST_F(Loops, ATimerMayArmItselfForAMomentGoneBy) {
    struct Again : Timer {
        explicit Again(Loop& loop)
            : Timer(loop, [](Timer& t) {
                  auto& self = static_cast<Again&>(t);
                  ++self.count;
                  self.arm(Instant{});
              }) {}
        int count = 0;
    } again(loop);
    again.arm(loop.now());
    for (int i = 0; i < 5; ++i) loop.poll();
    EXPECT_EQ(again.count, 5);
}

Task<int> twice(int value) {
    co_return 2 * value;
}

TEST_F(Loops, ATaskHandsOnItsValue) {
    const auto sum = []() -> Task<int> {
        int all = 0;
        for (int i = 0; i < 1000; ++i) all += co_await twice(i);
        co_return all;
    };
    EXPECT_EQ(loop.run(sum()), 999'000);
}

TEST_F(Loops, WhatATaskThrowsReachesWhoAwaitsIt) {
    const auto inner = []() -> Task<int> {
        throw std::runtime_error("inner");
        co_return 1;
    };
    const auto outer = [&]() -> Task<std::string> {
        try {
            (void)co_await inner();
        } catch (const std::runtime_error& error) {
            co_return error.what();
        }
        co_return "nothing";
    };
    EXPECT_EQ(loop.run(outer()), "inner");
    loop.spawn([](Loop& on) -> Task<void> {
        (void)co_await on.sleep(1ms);
        throw std::runtime_error("spawned");
    }(loop));
    const auto pause = [](Loop& on) -> Task<void> { (void)co_await on.sleep(1s); };
    EXPECT_THROW(loop.run(pause(loop)), std::runtime_error);
}

TEST_F(Loops, SleepsEndInTheOrderOfTheirTimes) {
    std::vector<int> order;
    TaskGroup group(loop);
    for (const int delay : {30, 10, 20})
        group.spawn([](Loop& on, int time, std::vector<int>& log) -> Task<void> {
            EXPECT_TRUE(co_await on.sleep(time * 1ms));
            log.push_back(time);
        }(loop, delay, order));
    EXPECT_TRUE(loop.run(group.join()));
    EXPECT_EQ(order, (std::vector{10, 20, 30}));
}

TEST_F(Loops, TheStricterLimitCounts) {
    const auto sleep = [](Loop& on) -> Task<int> {
        Result<> slept = co_await on.sleep(1s);
        co_return slept ? 0 : slept.error().code;
    };
    const auto outer = [&](Duration mine) -> Task<int> {
        co_return co_await sleep(loop).until(loop.after(mine));
    };
    EXPECT_EQ(loop.run(sleep(loop)), 0);
    EXPECT_EQ(loop.run(outer(2s)), 0);
    EXPECT_EQ(loop.run(outer(1ms)), ETIMEDOUT);
    EXPECT_EQ(loop.run(outer(2s).until(loop.after(1ms))), ETIMEDOUT);
    std::stop_source source;
    source.request_stop();
    EXPECT_EQ(loop.run(outer(2s).with(source.get_token())), ECANCELED);
}

TEST_F(Loops, ASignalServesWhoCameFirst) {
    Signal signal(loop);
    std::vector<int> order;
    TaskGroup group(loop);
    for (int i = 0; i < 3; ++i)
        group.spawn([](Signal& on, int name, std::vector<int>& log) -> Task<void> {
            EXPECT_TRUE(co_await on.wait());
            log.push_back(name);
        }(signal, i, order));
    EXPECT_TRUE(signal.notify_one());
    loop.poll();
    EXPECT_EQ(order, std::vector{0});
    signal.notify_all();
    loop.poll();
    EXPECT_EQ(order, (std::vector{0, 1, 2}));
    EXPECT_FALSE(signal.notify_one());
}

TEST_F(Loops, AGroupThatEndsEndsItsTasks) {
    int ended = 0;
    struct Guard {
        int& count;
        ~Guard() { ++count; }
    };
    Signal never(loop);
    {
        TaskGroup group(loop);
        for (int i = 0; i < 3; ++i)
            group.spawn([](Signal& on, int& count) -> Task<void> {
                const Guard guard{count};
                (void)co_await on.wait();
            }(never, ended));
        EXPECT_FALSE(group.empty());
    }
    EXPECT_EQ(ended, 3);
    EXPECT_FALSE(never.has_waiters());
}

TEST(RealLoops, MessagesOfManyThreadsArriveOnce) {
    RealRuntime runtime;
    Loop loop(runtime);
    constexpr int kThreads = 4, kMessages = 2000;
    int arrived = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
        threads.emplace_back([&] {
            for (int i = 0; i < kMessages; ++i) loop.post([&] { ++arrived; });
        });
    while (arrived < kThreads * kMessages) loop.poll_or_wait();
    for (std::thread& thread : threads) thread.join();
    EXPECT_FALSE(loop.poll());
    EXPECT_EQ(arrived, kThreads * kMessages);
    loop.post([&] { ADD_FAILURE() << "never delivered, and not leaked"; });
}

TEST(RealLoops, AMessageMayEndWhileItIsPosted) {
    RealRuntime runtime;
    Loop loop(runtime);
    const auto fail = [](Message&) { ADD_FAILURE() << "it ended before"; };
    {
        Message first(loop, fail), second(loop, fail);
        std::thread([&] {
            first.post();
            second.post();
            first.post();
        }).join();
    }
    loop.poll();
}

TEST(Addresses, AreReadAndWritten) {
    for (const char* good : {"10.0.0.1:7471", "10.0.0.1", "[::1]:7471", "[fe80::1]"})
        EXPECT_EQ(Address(good).text(), good);
    EXPECT_EQ(Address("::1").text(), "[::1]");
    EXPECT_EQ(Address("10.0.0.1:7471").port(), 7471);
    for (const char* bad : {"", "host:1", "10.0.0.1:", "10.0.0.1:65536", "10.0.0:1", "[::1",
                            "[::1]7", "10.0.0.1:7x", "[fe80::1%nosuch]:1"}) {
        Result<> checked = Address(bad).check();
        ASSERT_FALSE(checked) << bad;
        EXPECT_EQ(checked.error().code, EINVAL);
    }
}

}  // namespace
}  // namespace feroce::rdma
