// Several loops that one thread drives.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <thread>
#include <vector>

#include "feroce/rdma.hpp"
#include "rdma/fake_runtime.hpp"

namespace feroce::rdma {
namespace {

using namespace std::chrono_literals;

class CountedRuntime final : public Runtime {
public:
    Instant now() override { return fake_.now(); }
    void wait(Instant until, std::span<const int> fds) override {
        ++waits;
        fake_.wait(until, fds);
    }
    void wake() override {}
    void relax() override { fake_.relax(); }
    std::pmr::memory_resource& memory() override { return fake_.memory(); }
    std::uint64_t random() override { return fake_.random(); }

    int waits = 0;

private:
    FakeRuntime fake_;
};

class WhenAll : public testing::Test {
public:
    CountedRuntime runtime;
    Loop one{runtime};
    Loop two{runtime};
};

Task<Result<>> take_turns(Signal& own, Signal& other, int& turn, int first, std::vector<int>& log) {
    for (int i = first; i < 10; i += 2) {
        while (turn != i)
            if (const auto waited = co_await own.wait(); !waited) co_return waited;
        log.push_back(i);
        ++turn;
        other.notify_all();
    }
    co_return Result<>();
}

TEST_F(WhenAll, TasksOfTwoLoopsWaitForEachOther) {
    Signal at_one(one), at_two(two);
    std::vector<int> log;
    int turn = 0;
    std::vector<LoopTask> tasks;
    tasks.push_back({one, take_turns(at_one, at_two, turn, 0, log)});
    tasks.push_back({two, take_turns(at_two, at_one, turn, 1, log)});
    EXPECT_TRUE(when_all(std::move(tasks)));
    EXPECT_EQ(log, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

Task<Result<>> end_after(Loop& loop, Duration time, int code, int& ended) {
    if (const auto slept = co_await loop.sleep(time); !slept) co_return slept;
    ++ended;
    if (code != 0) co_return Error(code, "as the test wants it");
    co_return Result<>();
}

TEST_F(WhenAll, TheFirstErrorInTheirOrderIsGivenWhenAllHaveEnded) {
    int ended = 0;
    std::vector<LoopTask> tasks;
    tasks.push_back({one, end_after(one, 1s, 0, ended)});
    tasks.push_back({two, end_after(two, 3s, EIO, ended)});
    tasks.push_back({one, end_after(one, 2s, ENOENT, ended)});
    const Result<> all = when_all(std::move(tasks));
    ASSERT_FALSE(all);
    EXPECT_EQ(all.error().code, EIO);
    EXPECT_EQ(ended, 3);
}

// Neither loop is looked at again and again: the thread sleeps until the earliest timer of both.
TEST_F(WhenAll, TheThreadSleepsUntilThereIsSomethingToDo) {
    int ended = 0;
    std::vector<LoopTask> tasks;
    tasks.push_back({one, end_after(one, 2h, 0, ended)});
    tasks.push_back({two, end_after(two, 1h, 0, ended)});
    EXPECT_TRUE(when_all(std::move(tasks)));
    EXPECT_EQ(ended, 2);
    EXPECT_EQ(runtime.waits, 2);
}

Task<Result<>> await_rounds(Signal& news, std::atomic<int>& asked, int& answered, int rounds) {
    while (answered < rounds) {
        asked.store(answered + 1);
        asked.notify_one();
        while (answered < asked.load())
            if (const auto waited = co_await news.wait(); !waited) co_return waited;
    }
    co_return Result<>();
}

Task<Result<>> await_news(Signal& news, bool& has_come) {
    while (!has_come)
        if (const auto waited = co_await news.wait(); !waited) co_return waited;
    co_return Result<>();
}

// The second loop sleeps in the wait of the first one's runtime.
TEST(RealLoopsTogether, APostToEitherEndsTheSleepOfBoth) {
    constexpr int kRounds = 200;
    Loop one, two;
    Signal end(one), news(two);
    std::atomic<int> asked = 0;
    int answered = 0;
    bool ended = false;
    std::thread poster([&] {
        for (int round = 1; round <= kRounds; ++round) {
            for (int seen = asked.load(); seen < round; seen = asked.load()) asked.wait(seen);
            two.post([&] {
                ++answered;
                news.notify_all();
            });
        }
        one.post([&] {
            ended = true;
            end.notify_all();
        });
    });
    std::vector<LoopTask> tasks;
    tasks.push_back({one, await_news(end, ended).until(one.after(60s))});
    tasks.push_back({two, await_rounds(news, asked, answered, kRounds).until(two.after(60s))});
    const Result<> all = when_all(std::move(tasks));
    EXPECT_TRUE(all) << all.error().why;
    asked.store(kRounds);  // For the poster, if it failed.
    asked.notify_one();
    poster.join();
    EXPECT_EQ(answered, kRounds);
}

Task<Result<>> let_others_run(Loop& loop) {
    co_return co_await loop.yield();
}

// A thread that has posted may still be about to wake the loops when those have seen its message.
TEST(RealLoopsTogether, TheFirstOneMayBeDestroyedBeforeTheOthers) {
    Loop stays;
    Signal news(stays);
    for (int round = 0; round < 50; ++round) {
        bool has_come = false;
        std::thread poster;
        {
            Loop goes;
            std::vector<LoopTask> tasks;
            tasks.push_back({goes, let_others_run(goes)});
            tasks.push_back({stays, await_news(news, has_come).until(stays.after(60s))});
            poster = std::thread([&] {
                stays.post([&] {
                    has_come = true;
                    news.notify_all();
                });
            });
            const Result<> all = when_all(std::move(tasks));
            EXPECT_TRUE(all) << all.error().why;
        }
        poster.join();
    }
}

}  // namespace
}  // namespace feroce::rdma
