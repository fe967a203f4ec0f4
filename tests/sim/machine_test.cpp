// Fibers and the simulated machine that programs above the C ABI run on.
#include "sim/machine.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "sim/world.hpp"

namespace feroce::sim {
namespace {

using namespace std::chrono_literals;
using Steps = std::vector<int>;

TEST(FiberTest, GoesOnWhereItSuspended) {
    Steps steps;
    Fiber fiber([&] {
        steps.push_back(1);
        Fiber::suspend();
        steps.push_back(3);
    });
    fiber.resume();
    steps.push_back(2);
    EXPECT_FALSE(fiber.ended());
    fiber.resume();
    EXPECT_TRUE(fiber.ended());
    EXPECT_EQ(steps, (Steps{1, 2, 3}));
    EXPECT_EQ(Fiber::current(), nullptr);
}

TEST(FiberTest, ResumesNest) {
    Steps steps;
    Fiber inner([&] {
        steps.push_back(2);
        Fiber::suspend();
        steps.push_back(5);
    });
    Fiber outer([&] {
        steps.push_back(1);
        inner.resume();
        steps.push_back(3);
        Fiber::suspend();
        inner.resume();
        steps.push_back(6);
    });
    outer.resume();
    steps.push_back(4);
    outer.resume();
    EXPECT_TRUE(inner.ended() && outer.ended());
    EXPECT_EQ(steps, (Steps{1, 2, 3, 4, 5, 6}));
}

TEST(FiberTest, ExceptionsStayInside) {
    int caught = 0;
    Fiber fiber([&] {
        try {
            Fiber::suspend();
            throw 7;
        } catch (int value) {
            caught = value;
        }
    });
    fiber.resume();
    fiber.resume();
    EXPECT_EQ(caught, 7);
}

class MachineTest : public testing::Test {
protected:
    void start(std::function<void()> body) {
        machine.spawn(Machine::Kind::Program, std::move(body));
    }
    Duration elapsed() const { return world.now() - begin; }

    World world{1};
    Machine& machine = world.add_machine({}, {}, {});
    Instant begin = world.now();
};

TEST_F(MachineTest, SleepsInVirtualTime) {
    Duration woke{};
    start([&] {
        machine.sleep_until(machine.now() + 3600s);
        woke = elapsed();
    });
    world.scheduler().run_until(begin + 7200s);
    EXPECT_EQ(woke, 3600s);
}

TEST_F(MachineTest, ABellIsHeardEvenIfItRangBefore) {
    Machine::Bell bell(machine);
    std::vector<bool> heard;
    std::vector<Duration> times;
    start([&] {
        for (int i = 0; i < 3; ++i) {
            heard.push_back(bell.wait(machine.now() + 1s));
            times.push_back(elapsed());
        }
    });
    bell.ring();
    world.scheduler().after(2ms, [&] { bell.ring(); });
    world.scheduler().run_until(begin + 10s);
    EXPECT_EQ(heard, (std::vector<bool>{true, true, false}));
    EXPECT_EQ(times, (std::vector<Duration>{0s, 2ms, 1s + 2ms}));
}

TEST_F(MachineTest, NewsSinceTheLastLookIsNotWaitedFor) {
    std::vector<Duration> times;
    start([&] {
        machine.make_news();
        for (int i = 0; i < 3; ++i) {
            machine.wait_for_news(machine.now() + 1s);
            times.push_back(elapsed());
        }
    });
    world.scheduler().after(5ms, [&] { machine.make_news(); });
    world.scheduler().run_until(begin + 10s);
    const Duration told = 5ms + machine.config().wake_delay;
    EXPECT_EQ(times, (std::vector<Duration>{0s, told, told + 1s}));
}

TEST_F(MachineTest, NothingRunsWhilePaused) {
    Duration woke{};
    start([&] {
        machine.sleep_until(machine.now() + 1ms);
        woke = elapsed();
    });
    machine.pause();
    world.scheduler().after(1s, [&] { machine.resume(); });
    world.scheduler().run_until(begin + 10s);
    EXPECT_EQ(woke, 1s + 1ms) << "its first run was put off too";
}

TEST_F(MachineTest, CancelledProgramsAreToldAndEnd) {
    bool told = false;
    start([&] {
        while (!machine.cancelled()) machine.wait_for_news(kNever);
        told = true;
    });
    world.scheduler().run_until(begin + 1s);
    EXPECT_FALSE(told);
    machine.cancel_programs();
    EXPECT_TRUE(told);
}

TEST(FixedMemoryTest, EveryWorldHasTheSameAddresses) {
    const auto addresses = [] {
        World world(7);
        std::vector<void*> out;
        for (int i = 0; i < 3; ++i) {
            Machine& machine = world.add_machine({}, {}, {});
            for (const std::size_t bytes : {24u, 5000u, 300'000u})
                out.push_back(machine.memory().allocate(bytes));
        }
        return out;
    };
    const std::vector<void*> first = addresses();
    const std::unique_ptr<char[]> elsewhere(new char[100'000]);  // The heap differs.
    EXPECT_EQ(first, addresses());
}

}  // namespace
}  // namespace feroce::sim
