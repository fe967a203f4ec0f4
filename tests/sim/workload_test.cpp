// What the workload of simrun does as a program does it through verbs, and what it takes for no
// fault of ours: else seeds would fail for reasons of its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "script/two_nodes.hpp"
#include "sim/workload/scenario.hpp"

namespace feroce::sim {
namespace {
namespace workload_test {

using transport::SendOp;

constexpr std::uint32_t kLength = 64;

void post_write(script::Party& from, transport::QueuePair& qp, std::uint64_t offset,
                std::uint64_t to, RKey rkey) {
    const mem::Sge sge = from.sge(offset, kLength);
    transport::SendWr wr;
    wr.op = SendOp::Write;
    wr.remote_address = to;
    wr.rkey = rkey;
    wr.sges = {&sge, 1};
    ASSERT_TRUE(from.node.engine(0).post_send(from.node.now(), qp, wr));
    from.node.wake();
}

// The second WRITE waits for the first to be in memory, and begins a copy of its own then. A queue
// pair that is reset must have begun it and waited for it, or never begin it.
TEST(Workload, EndingCopiesLeavesNoneToBegin) {
    script::TwoNodes nodes([](const FramePtr& frame) { return frame; });
    transport::QueuePair& from = nodes.a.create_qp();
    transport::QueuePair& to = nodes.b.create_qp();
    connect({nodes.a.node, from, Psn(100)}, {nodes.b.node, to, Psn(200)}, {});
    const RKey far = register_range(nodes.b.node, nodes.b.pd, nodes.b.region,
                                    mem::Access::LocalWrite | mem::Access::RemoteWrite, true)
                         .rkey;
    std::ranges::fill(nodes.a.bytes(0, kLength), std::byte{1});
    std::ranges::fill(nodes.a.bytes(kLength, kLength), std::byte{2});
    post_write(nodes.a, from, 0, nodes.b.iova(0), far);
    post_write(nodes.a, from, kLength, nodes.b.iova(0), far);
    const Instant end = nodes.b.node.now() + std::chrono::milliseconds(10);
    while (!to.delivers() && nodes.b.node.now() < end)
        nodes.scheduler.run_until(nodes.b.node.now() + std::chrono::microseconds(1));
    ASSERT_TRUE(to.delivers());

    nodes.b.node.end_copies(to);
    EXPECT_FALSE(to.delivers());
    move_to(nodes.b.node, to, transport::QpState::Reset);
    const ByteSpan memory = nodes.b.bytes(0, kLength);
    const std::vector<std::byte> before(memory.begin(), memory.end());
    EXPECT_EQ(before[0], std::byte{1});
    nodes.scheduler.run_until(nodes.b.node.now() + std::chrono::milliseconds(2));
    EXPECT_TRUE(std::equal(before.begin(), before.end(), memory.begin()));
}

// Else the queue has none left at last, and its other users wait for ever.
TEST(Workload, DestroyedQueuePairsLeaveSharedReceivesToOthers) {
    Swarm swarm;
    swarm.seed = 1;
    swarm.link.bits_per_second = 1'000'000'000;
    swarm.connections.resize(1);
    swarm.connections[0].shared_receives = true;
    swarm.connections[0].options.path_mtu = 4096;
    swarm.enable(SendOp::Send);
    swarm.message_max = 65'536;  // Long enough that one is nearly always half received.
    swarm.receives = 1;
    swarm.destructions = true;
    swarm.chaos = std::chrono::milliseconds(500);
    swarm.chaos_operations = 1000;
    Scenario scenario(swarm);
    const bool good = scenario.run();
    EXPECT_TRUE(good) << scenario.report().findings()[0].text;
}

TEST(Workload, KnowsALineThatIsSlowerThanAllTries) {
    Swarm swarm;
    swarm.connections.resize(1);
    swarm.connections[0].options.path_mtu = 1024;
    swarm.link.bits_per_second = 1'000'000'000;
    swarm.link.queue_packets = 4096;  // 37 ms, and four of them on the way there and back.
    const auto outlasts = [&](std::uint8_t timeout, std::uint8_t retry_count) {
        return swarm.queue_outlasts({.timeout = timeout, .retry_count = retry_count});
    };
    EXPECT_TRUE(outlasts(8, 7));    // 8 tries of 1 ms.
    EXPECT_TRUE(outlasts(14, 0));   // One of 67 ms.
    EXPECT_FALSE(outlasts(14, 3));  // The answer comes at the third.
    EXPECT_FALSE(outlasts(16, 0));  // 268 ms.
    swarm.link.queue_packets = 64;
    EXPECT_FALSE(outlasts(8, 2));
}

}  // namespace workload_test
}  // namespace
}  // namespace feroce::sim
