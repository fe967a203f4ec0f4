// Cancellation: scopes that compose, shields, sheltered tasks, yields, exceptions of user code, and
// calls that block inside a coroutine.
#include <gtest/gtest.h>

#include <csignal>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "feroce/rdma.hpp"
#include "rdma/fake_runtime.hpp"

namespace feroce::rdma {
namespace {

using namespace std::chrono_literals;

class Cancel : public testing::Test {
public:
    Task<int> sleeps(Duration time) {
        const Result<> slept = co_await loop.sleep(time);
        co_return slept ? 0 : slept.error().code;
    }
    Task<int> sleeps_with(Duration time, std::stop_token stop) {
        const Result<> slept = co_await loop.sleep(time).with(stop);
        co_return slept ? 0 : slept.error().code;
    }
    Task<int> awaits(Task<int> inner) { co_return co_await std::move(inner); }

    FakeRuntime runtime;
    Loop loop{runtime};
    std::stop_source program, button, third;
};

TEST_F(Cancel, AnInnerTokenLeavesTheOuterOneInForce) {
    program.request_stop();
    EXPECT_EQ(loop.run(sleeps_with(2s, button.get_token()).with(program.get_token())), ECANCELED);
    auto inner = sleeps(2s).with(button.get_token());
    EXPECT_EQ(loop.run(awaits(std::move(inner)).with(program.get_token())), ECANCELED);
}

TEST_F(Cancel, AnyOfSeveralTokensStopsWhileItWaits) {
    for (std::stop_source* pressed : {&program, &button, &third}) {
        program = button = third = std::stop_source();
        auto task = sleeps_with(1h, third.get_token());
        auto outer = awaits(std::move(task).with(button.get_token())).with(program.get_token());
        loop.post([pressed] { pressed->request_stop(); });
        EXPECT_EQ(loop.run(std::move(outer)), ECANCELED);
        EXPECT_LT(loop.now(), Instant{} + 1h);
    }
}

TEST_F(Cancel, TwoTokensOfOneTaskAddUp) {
    button.request_stop();
    auto task = sleeps(2s).with(button.get_token()).with(program.get_token());
    EXPECT_EQ(loop.run(std::move(task)), ECANCELED);
}

TEST_F(Cancel, AShieldKeepsLimitsOfOutsideOutAndItsOwnIn) {
    program.request_stop();
    const Instant gone = loop.now();
    EXPECT_EQ(loop.run(awaits(sleeps(2s).shielded()).until(gone).with(program.get_token())), 0);
    auto own = sleeps(2s).shielded().until(loop.after(1ms));
    EXPECT_EQ(loop.run(awaits(std::move(own)).with(program.get_token())), ETIMEDOUT);
    const auto pause = [](Loop& on) -> Task<int> {
        const Result<> slept = co_await on.sleep(1ms).shielded();
        co_return slept ? 0 : slept.error().code;
    };
    EXPECT_EQ(loop.run(pause(loop).until(gone)), 0);
}

TEST_F(Cancel, AYieldLetsTheOthersRun) {
    std::string order;
    const auto turns = [](Loop& on, std::string& log, char name, bool sleeps) -> Task<void> {
        for (int i = 0; i < 3; ++i) {
            log += name;
            if (sleeps)
                EXPECT_TRUE(co_await on.sleep(0ms));
            else
                EXPECT_TRUE(co_await on.yield());
        }
    };
    TaskGroup group(loop);
    group.spawn(turns(loop, order, 'a', false));
    group.spawn(turns(loop, order, 'b', true));
    EXPECT_TRUE(loop.run(group.join()));
    EXPECT_EQ(order, "ababab");
    EXPECT_EQ(loop.now(), Instant{}) << "nobody waited";
}

TEST_F(Cancel, AYieldEndsWithItsLimits) {
    const auto spin = [](Loop& on) -> Task<int> {
        for (;;) {
            const Result<> yielded = co_await on.yield();
            if (!yielded) co_return yielded.error().code;
            on.runtime().relax();
        }
    };
    EXPECT_EQ(loop.run(spin(loop).until(loop.after(1ms))), ETIMEDOUT);
    program.request_stop();
    EXPECT_EQ(loop.run(spin(loop).with(program.get_token())), ECANCELED);
}

TEST_F(Cancel, AnEmptyValueIsReturned) {
    const auto done = []() -> Task<Result<>> { co_return {}; };
    EXPECT_TRUE(loop.run(done()));
}

// A place in a line that somebody else gives away.
struct Line {
    explicit Line(Loop& loop) : granted(loop) {}
    Signal granted;
    int taken = 0, undone = 0;
};

Task<Result<int>> queued(Line& line) {
    ++line.taken;
    (void)co_await line.granted.wait();
    co_return 7;
}

Task<Result<int>> stands_in(TaskGroup& group, Line& line) {
    Shelter place(group, queued(line), [&line](int value) -> Task<void> {
        line.undone += value;
        co_return;
    });
    co_return co_await place;
}

TEST_F(Cancel, ShelterGivesTheValue) {
    TaskGroup group(loop);
    Line line(loop);
    loop.post([&] { line.granted.notify_all(); });
    EXPECT_EQ(loop.run(stands_in(group, line).until(loop.after(1s))).value(), 7);
    EXPECT_EQ(line.undone, 0);
    EXPECT_TRUE(group.empty());
}

TEST_F(Cancel, ShelterDoesNotBeginWhenTheTimeIsOver) {
    TaskGroup group(loop);
    Line line(loop);
    EXPECT_EQ(loop.run(stands_in(group, line).until(loop.now())).error().code, ETIMEDOUT);
    EXPECT_EQ(line.taken, 0);
}

TEST_F(Cancel, AShieldedShelterBeginsAndEndsWhateverTheLimits) {
    TaskGroup group(loop);
    Line line(loop);
    const auto gives_back = [](TaskGroup& in, Line& to) -> Task<Result<>> {
        const auto write = [](Line& there) -> Task<Result<>> {
            (void)co_await there.granted.wait();
            ++there.taken;
            co_return {};
        };
        Shelter written(in, write(to), NoUndo{});
        written.shield();
        co_return co_await written;
    };
    loop.post([&] { line.granted.notify_all(); });
    EXPECT_TRUE(loop.run(gives_back(group, line).until(loop.now())));
    EXPECT_EQ(line.taken, 1);
    {
        TaskGroup callers(loop);
        callers.spawn([](Task<Result<>> task) -> Task<void> {
            (void)co_await std::move(task);
        }(gives_back(group, line)));
    }
    line.granted.notify_all();
    EXPECT_TRUE(loop.run(group.join()));
    EXPECT_EQ(line.taken, 2);
}

TEST_F(Cancel, WhatComesAfterTheDeadlineIsUndone) {
    TaskGroup group(loop);
    Line line(loop);
    EXPECT_EQ(loop.run(stands_in(group, line).until(loop.after(1ms))).error().code, ETIMEDOUT);
    EXPECT_EQ(line.undone, 0);
    EXPECT_FALSE(group.empty());
    line.granted.notify_all();
    EXPECT_TRUE(loop.run(group.join()));
    EXPECT_EQ(line.undone, 7);
}

TEST_F(Cancel, WhatComesAfterTheCallerWasDestroyedIsUndone) {
    TaskGroup group(loop);
    Line line(loop);
    {
        auto caller = std::make_unique<TaskGroup>(loop);
        caller->spawn([](TaskGroup& shelter, Line& in) -> Task<void> {
            (void)co_await stands_in(shelter, in);
            ADD_FAILURE() << "it was destroyed";
        }(group, line));
    }
    line.granted.notify_all();
    EXPECT_TRUE(loop.run(group.join()));
    EXPECT_EQ(line.undone, 7);
}

TEST_F(Cancel, APostedFunctionThatThrowsLosesNoOther) {
    int ran = 0;
    loop.post([&] { ++ran; });
    loop.post([] { throw std::runtime_error("first"); });
    loop.post([&] { ++ran; });
    loop.post([] { throw std::runtime_error("second"); });
    loop.post([&] { ++ran; });
    EXPECT_THROW(loop.poll(), std::runtime_error);
    EXPECT_EQ(ran, 3);
    EXPECT_FALSE(loop.in_round());
    EXPECT_THROW(loop.poll(), std::runtime_error) << "each exception is told";
    EXPECT_FALSE(loop.poll());
}

TEST_F(Cancel, AHandlerTakesWhatIsThrown) {
    std::vector<std::string> told;
    loop.on_exception([&](std::exception_ptr thrown) {
        try {
            std::rethrow_exception(std::move(thrown));
        } catch (const std::exception& error) {
            told.emplace_back(error.what());
        }
    });
    loop.spawn([](Loop& on) -> Task<void> {
        (void)co_await on.sleep(1ms);
        throw std::runtime_error("spawned");
    }(loop));
    EXPECT_EQ(loop.run(sleeps(1s)), 0) << "the other task goes on";
    EXPECT_EQ(told, std::vector<std::string>{"spawned"});
}

TEST_F(Cancel, ATimerThatThrowsLosesNoOther) {
    struct Throws : Timer {
        explicit Throws(Loop& loop)
            : Timer(loop, [](Timer&) { throw std::runtime_error("timer"); }) {}
    } throws(loop);
    struct Counts : Timer {
        explicit Counts(Loop& loop)
            : Timer(loop, [](Timer& self) { ++static_cast<Counts&>(self).count; }) {}
        int count = 0;
    } counts(loop);
    throws.arm(loop.now());
    counts.arm(loop.now());
    EXPECT_THROW(loop.poll(), std::runtime_error);
    EXPECT_EQ(counts.count, 1);
}

// The one that would end the wait is ready in the round in which another coroutine blocks.
TEST_F(Cancel, ACallThatBlocksInACoroutineLetsTheRestOfItsRoundRun) {
    Signal go(loop), done(loop);
    TaskGroup group(loop);
    std::string told;
    group.spawn([](Signal& on, Signal& what, std::string& log) -> Task<void> {
        (void)co_await on.wait();
        const Result<> waited = what.wait().within(3s).wait();
        log += waited ? "told " : "late ";
    }(go, done, told));
    group.spawn([](Signal& on, Signal& what) -> Task<void> {
        (void)co_await on.wait();
        what.notify_all();
    }(go, done));
    go.notify_all();
    EXPECT_TRUE(loop.run(group.join()));
    EXPECT_EQ(told, "told ");
}

TEST_F(Cancel, ACallThatBlocksInAPostedFunctionLetsTheOtherMailArrive) {
    Signal done(loop);
    bool told = false;
    loop.post([&] { told = bool(done.wait().within(3s).wait()); });
    loop.post([&] { done.notify_all(); });
    loop.poll();
    EXPECT_TRUE(told);
}

// What others throw meanwhile is no business of the call that blocks.
TEST_F(Cancel, ACallThatBlocksInACoroutineDoesNotThrowForOthers) {
    Signal done(loop);
    bool told = false;
    loop.post([&] { told = bool(done.wait().within(3s).wait()); });
    loop.post([&] {
        done.notify_all();
        throw std::runtime_error("mail");
    });
    EXPECT_THROW(loop.poll(), std::runtime_error);
    EXPECT_TRUE(told);
}

TEST(StopLoops, RunEndsWithStop) {
    Loop loop;
    int rounds = 0;
    loop.post([&] {
        ++rounds;
        loop.stop();
    });
    loop.run();
    EXPECT_EQ(rounds, 1);
    loop.stop();
    loop.run();
    std::thread other([&] { loop.stop(); });
    loop.run();
    other.join();
}

TEST(StopLoops, RunEndsWithASignal) {
    Loop loop;
    const StopSignals stops(loop, {SIGUSR1});
    loop.post([] { std::raise(SIGUSR1); });
    loop.run();
}

TEST(WorkersThatThrow, TellAndGoOn) {
    const Workers workers = Workers::start(1).value();
    testing::internal::CaptureStderr();
    workers.post(0, [] { throw std::runtime_error("posted"); });
    EXPECT_EQ(workers.call(0, [] { return 7; }), 7);
    EXPECT_EQ(workers.call(0, [] { return 8; }), 8) << "in another round: what was thrown is told";
    EXPECT_NE(testing::internal::GetCapturedStderr().find("posted"), std::string::npos);
}

TEST(Elsewhere, WhatTheFunctionThrowsReachesWhoAwaitsIt) {
    Loop loop;
    const auto calls = [](Loop& on) -> Task<std::string> {
        try {
            (void)co_await call_on(on, on, []() -> int { throw std::runtime_error("there"); });
        } catch (const std::runtime_error& error) {
            co_return error.what();
        }
        co_return "nothing";
    };
    EXPECT_EQ(loop.run(calls(loop)), "there");
}

}  // namespace
}  // namespace feroce::rdma
