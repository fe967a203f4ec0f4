// Fibers and the simulated machine that programs above the C ABI run on.
#include "sim/machine.hpp"

#include <gtest/gtest.h>
#include <unwind.h>

#include <array>
#include <cstdint>
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

// More values than there are registers, all of them needed before and after each switch.
template <class Number>
std::array<Number, 12> after_switches(Number first, void (*change)()) {
    volatile Number source = first;
    Number a = source, b = a * source, c = b + source, d = c * source, e = d + source,
           f = e * source, g = f + source, h = g * source, i = h + source, j = i * source,
           k = j + source, l = k * source;
    for (int round = 0; round < 3; ++round) {
        change();
        a += l, b += a, c += b, d += c, e += d, f += e, g += f, h += g, i += h, j += i, k += j,
            l += k;
    }
    return {a, b, c, d, e, f, g, h, i, j, k, l};
}

template <class Number>
void expect_both_sides_keep(Number inner_first, Number outer_first) {
    static Fiber* other;
    void (*const enter)() = [] { other->resume(); };
    void (*const stay)() = [] {};
    std::array<Number, 12> inside{};
    Fiber fiber([&] {
        Fiber::suspend();
        inside = after_switches(inner_first, &Fiber::suspend);
    });
    other = &fiber;
    fiber.resume();
    const std::array<Number, 12> outside = after_switches(outer_first, enter);
    fiber.resume();
    EXPECT_TRUE(fiber.ended());
    EXPECT_EQ(inside, after_switches(inner_first, stay));
    EXPECT_EQ(outside, after_switches(outer_first, stay));
}

TEST(FiberTest, BothSidesKeepTheirRegisters) {
    expect_both_sides_keep<std::uint64_t>(3, 5);
    expect_both_sides_keep<double>(0.75, 1.25);
}

_Unwind_Reason_Code count_frame(_Unwind_Context* /*context*/, void* frames) {
    const int seen = ++*static_cast<int*>(frames);
    return seen < 1000 ? _URC_NO_REASON : _URC_NORMAL_STOP;
}

TEST(FiberTest, ItsStackIsUnwoundToTheFirstFrame) {
    int frames = 0;
    Fiber fiber([&] { _Unwind_Backtrace(count_frame, &frames); });
    fiber.resume();
    EXPECT_GT(frames, 1);  // Calls at the end of a function may leave no frame.
    EXPECT_LT(frames, 100);
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
