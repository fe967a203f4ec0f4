// Nothing is allocated per operation: once warm, thousands of transfers of each kind, pauses and
// raw posts make not one call of operator new, awaited or blocking. The soft device behind the C
// ABI has an operator new of its own, except under sanitizers, where it is counted too.
#include <gtest/gtest.h>

#include "counting_new.hpp"
#include "rdma/test_programs.hpp"

namespace feroce::rdma {
namespace {

constexpr int kWarm = 100;
constexpr int kRounds = 2000;

struct Ends {
    Connection near, far;
    Buffer here, memory;
};

Task<Ends> connect(Loop& loop) {
    Listener listener = Listener::listen(loop, "127.0.0.1:0").value();
    std::optional<Connection> far;
    TaskGroup servers(loop);
    servers.spawn([](Loop& on, Listener& at, std::optional<Connection>& out) -> Task<void> {
        out = (co_await (co_await at.next()).value().accept(on)).value();
    }(loop, listener, far));
    Connection near = (co_await Connection::connect(loop, listener.address())).value();
    (co_await servers.join()).value();
    Buffer here = near.allocate(4096).value();
    Buffer memory = far->allocate(4096, Access::Remote).value();
    co_return Ends{std::move(near), *std::move(far), std::move(here), std::move(memory)};
}

// One of everything, awaited.
Task<void> run(Loop& loop, Ends& ends, int rounds) {
    const RemoteRegion remote = ends.memory.remote();
    const RemoteRegion word = remote.subregion(0, 8);
    const LocalRegion local = ends.here.local();
    test::Counter arrival;
    for (int i = 0; i < rounds; ++i) {
        EXPECT_TRUE(co_await ends.near.write(remote, local));
        EXPECT_TRUE(co_await ends.near.read(local, remote).within(std::chrono::seconds(10)));
        EXPECT_TRUE(co_await ends.near.fetch_add(word, 1));
        EXPECT_TRUE(co_await ends.near.compare_swap(word, 0, 0));
        std::array list{Work::write(remote, local), Work::read(local, remote)};
        EXPECT_TRUE(co_await ends.near.batch(list));
        EXPECT_TRUE(ends.far.post_receive(ends.memory.local(), arrival));
        EXPECT_TRUE(co_await ends.near.send(local));
        EXPECT_TRUE(co_await loop.sleep(std::chrono::microseconds(1)));
    }
    while (arrival.completions < rounds) (void)co_await loop.sleep(std::chrono::microseconds(10));
    EXPECT_EQ(arrival.failures, 0);
}

class Allocations : public testing::Test {
public:
    RealRuntime runtime;
    Loop loop{runtime};
    Ends ends = loop.run(connect(loop));
};

TEST_F(Allocations, NoneWhileOperationsAreAwaited) {
    loop.run(run(loop, ends, kWarm));
    Task<void> task = run(loop, ends, kRounds);  // The coroutine itself is one.
    const std::uint64_t before = bench::allocations();
    loop.run(std::move(task));
    EXPECT_EQ(bench::allocations() - before, 0u);
}

TEST_F(Allocations, NoneWhileOperationsBlock) {
    const auto read = [&](int rounds) {
        for (int i = 0; i < rounds; ++i)
            EXPECT_TRUE(ends.near.read(ends.here.local(), ends.memory.remote()).wait());
    };
    read(kWarm);
    const std::uint64_t before = bench::allocations();
    read(kRounds);
    EXPECT_EQ(bench::allocations() - before, 0u);
}

TEST_F(Allocations, AreCounted) {
    const std::uint64_t before = bench::allocations();
    loop.run(run(loop, ends, 0));
    EXPECT_GT(bench::allocations(), before);
}

}  // namespace
}  // namespace feroce::rdma
