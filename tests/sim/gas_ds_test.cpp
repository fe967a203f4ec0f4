// Containers other than maps, what they stand on (epochs, the allocator's checks), and collective
// calls, on simulated nodes.
#include <gtest/gtest.h>

#include <array>
#include <set>

#include "feroce/gas/ds/array.hpp"
#include "gas/histories.hpp"
#include "sim/gas_cluster.hpp"

namespace feroce::sim::gas_ds {
namespace {

using gas::nic;
using gas::NodeId;
using gas::ptr;
using gas::Result;
using rdma::Task;
using test::Fifo;
using Ordered = gas::OrderedMap<std::int64_t, std::uint64_t>;

ClusterOptions shape(std::uint64_t seed) {
    return {.nodes = 2 + seed % 3,
            .threads = static_cast<std::uint16_t>(1 + seed / 3 % 2),
            .trust_global_atomics = seed % 5 != 4,
            .memory = 1 << 20};
}

// Lets the first node make an object, and every thread of every node use it.
template <class Root, class Make, class Use>
void share(const ClusterOptions& options, std::uint64_t seed, Make make, Use use) {
    GasCluster cluster(seed, options);
    ptr<Root> root;
    cluster.run([&](gas::Node& node, std::size_t thread) {
        if (thread == 0) {
            if (node.id() == NodeId{0}) {
                const auto made = make(node);
                ASSERT_TRUE(made) << made.error().why;
                ASSERT_TRUE(node.publish("it", *made));
            }
            const auto found = node.find<Root>("it");
            ASSERT_TRUE(found) << found.error().why;
            root = *found;
        }
        cluster.meet();
        use(node, thread, root);
    });
}

template <class Q>
std::vector<QueueCall> queue_history(std::uint64_t seed) {
    std::uint64_t now = 0;
    test::Recorder<QueueCall> recorder;
    recorder.clock = [&] { return ++now; };
    recorder.random = Prng(seed);
    share<Fifo::Root>(
        shape(seed), seed, [](gas::Node& node) { return Fifo::create(node); },
        [&](gas::Node& node, std::size_t thread, auto root) {
            Q queue(node, root, thread);
            const auto who = static_cast<std::uint64_t>(node.id()) * 10 + thread + 1;
            const auto done = node.loop(thread).run(test::use_queue(queue, recorder, 7, who));
            ASSERT_TRUE(done) << done.error().why;
        });
    return recorder.calls;
}

TEST(GasQueue, IsLinearizable) {
    for (const std::uint64_t seed : seeds(10))
        ASSERT_TRUE(linearizable(queue_history<Fifo>(seed))) << "seed " << seed;
}

// Takes the first without making sure that nobody else does.
class Greedy {
public:
    Greedy(gas::Node& node, ptr<Fifo::Root> root, std::size_t thread)
        : lanes_(node.lanes(thread)), fifo_(node, root, thread), root_(root) {}
    auto push(std::uint64_t value) { return fifo_.push(value); }
    Task<Result<std::optional<std::uint64_t>>> pop() {
        const auto head = co_await lanes_.read(root_.field<&Fifo::Root::head>());
        if (!head) co_return head.error();
        const auto before = co_await lanes_.read(ptr<Fifo::Item>::from_bits(*head));
        if (!before) co_return before.error();
        const std::uint64_t next = before->next.load();
        if (next == 0) co_return std::optional<std::uint64_t>();
        const auto first = co_await lanes_.read(ptr<Fifo::Item>::from_bits(next));
        if (!first) co_return first.error();
        const auto moved = co_await lanes_.write(root_.field<&Fifo::Root::head>(), next);
        if (!moved) co_return moved.error();
        co_return std::optional<std::uint64_t>(first->value);
    }

private:
    gas::Lanes& lanes_;
    Fifo fifo_;
    ptr<Fifo::Root> root_;
};

TEST(GasQueue, AGreedyOneIsCaught) {
    expect_found([](std::uint64_t seed) { return !linearizable(queue_history<Greedy>(seed)); });
}

// Threads of the queue's node, which are ten times as fast and never pause, keep nobody from it:
// how often another node has to try is bounded. Over 100 seeds it is 10.0 round trips an operation
// on average and 10.7 at most.
TEST(GasQueue, OtherNodesGetTheirTurn) {
    constexpr int kRounds = 20;
    for (const std::uint64_t seed : seeds(5)) {
        bool done = false;
        std::uint64_t trips = 0;
        share<Fifo::Root>(
            {.threads = 2, .yields = 1.0, .memory = 1 << 20}, seed,
            [](gas::Node& node) { return Fifo::create(node); },
            [&](gas::Node& node, std::size_t thread, auto root) {
                Fifo queue(node, root, thread);
                if (node.id() == NodeId{1} && thread != 0) return;
                rdma::Loop& loop = node.loop(thread);
                for (int i = 0; node.id() == NodeId{0} ? !done : i < kRounds; ++i) {
                    const auto pushed = loop.run(queue.push(7));
                    ASSERT_TRUE(pushed) << pushed.error().why;
                    const auto popped = loop.run(queue.pop());
                    ASSERT_TRUE(popped) << popped.error().why;
                }
                if (node.id() == NodeId{0}) return;
                trips = node.lanes().traffic().round_trips;
                done = true;
            });
        EXPECT_LT(trips, 15u * 2 * kRounds) << "seed " << seed;
        if (testing::Test::HasFailure()) return;
    }
}

TEST(GasQueue, UsesItsMemoryAgain) {
    share<Fifo::Root>(
        {.memory = 160 << 10}, 1, [](gas::Node& node) { return Fifo::create(node); },
        [](gas::Node& node, std::size_t, auto root) {
            Fifo queue(node, root);
            for (std::uint64_t i = 0; i < 5000; ++i) {
                const auto pushed = node.loop().run(queue.push(i));
                ASSERT_TRUE(pushed) << pushed.error().why << " at " << i;
                ASSERT_TRUE(*node.loop().run(queue.pop()));
                sleep_for(std::chrono::microseconds(50));  // Or home would always be faster.
            }
            ASSERT_TRUE(node.barrier());
            const bool first = node.id() == NodeId{0};
            EXPECT_EQ(first && *node.loop().run(queue.pop()), false);
        });
}

// Both signs, in an order that splits on all sides.
TEST(GasOrderedMap, GrowsAndScans) {
    share<Ordered::Root>(
        {.memory = 1 << 20}, 2, [](gas::Node& node) { return Ordered::create(node); },
        [](gas::Node& node, std::size_t, auto root) {
            auto map = Ordered::open(node, root);
            ASSERT_TRUE(map) << map.error().why;
            rdma::Loop& loop = node.loop();
            const auto own = static_cast<std::int64_t>(node.id());
            const auto key = [&](std::int64_t i) { return (i * 617 % 1000 - 500) * 2 + own; };
            for (std::int64_t i = 0; i < 1000; ++i)
                ASSERT_TRUE(*loop.run(map->put(key(i), static_cast<std::uint64_t>(i)))) << i;
            for (std::int64_t i = 0; i < 1000; ++i)
                ASSERT_EQ(**loop.run(map->get(key(i))), static_cast<std::uint64_t>(i));
            EXPECT_FALSE(*loop.run(map->put(key(0), 7)));
            ASSERT_TRUE(node.barrier());
            std::vector<Ordered::Entry> entries(2001);
            ASSERT_EQ(*loop.run(map->scan(-100'000, entries)), 2000u);
            for (std::int64_t i = 0; i < 2000; ++i)
                ASSERT_EQ(entries[static_cast<std::size_t>(i)].key, i - 1000);
            EXPECT_EQ(*loop.run(map->scan(500, std::span(entries).first(10))), 10u);
            EXPECT_EQ(entries[0].key, 500);
            EXPECT_EQ(*loop.run(map->scan(995, entries)), 5u);
            ASSERT_TRUE(node.barrier());
            for (std::int64_t i = 0; i < 1000; i += 2) EXPECT_TRUE(*loop.run(map->erase(key(i))));
            EXPECT_FALSE(*loop.run(map->erase(key(0))));
            ASSERT_TRUE(node.barrier());
            EXPECT_EQ(*loop.run(map->scan(-100'000, entries)), 1000u);
            ASSERT_TRUE(node.barrier());
        });
}

TEST(GasOrderedMap, AGetIsOneRoundTripAndAPutTwo) {
    share<Ordered::Root>(
        {.memory = 1 << 20}, 3, [](gas::Node& node) { return Ordered::create(node); },
        [](gas::Node& node, std::size_t, auto root) {
            auto map = Ordered::open(node, root);
            ASSERT_TRUE(map);
            for (std::int64_t i = 0; node.id() == NodeId{0} && i < 1000; ++i)
                ASSERT_TRUE(node.loop().run(map->put(i, 1)));
            ASSERT_TRUE(node.barrier());
            const auto trips = [&] { return node.lanes().traffic().round_trips; };
            std::set<std::uint64_t> gets, puts;
            for (int pass = 0; node.id() == NodeId{1} && pass < 2; ++pass)
                for (std::int64_t i = 0; i < 1000; i += 10) {
                    const std::uint64_t start = trips();
                    ASSERT_TRUE(node.loop().run(map->get(i)));
                    const std::uint64_t got = trips();
                    ASSERT_FALSE(*node.loop().run(map->put(i, 2)));
                    if (pass == 0) continue;  // Gets to know the way.
                    gets.insert(got - start);
                    puts.insert(trips() - got);
                }
            if (node.id() == NodeId{1}) {  // None where the leaf is on the own node.
                EXPECT_EQ(gets, (std::set<std::uint64_t>{0, 1}));
                EXPECT_EQ(puts, (std::set<std::uint64_t>{0, 2}));
            }
            ASSERT_TRUE(node.barrier());
        });
}

// A reader that is pinned sees what it saw, however much is retired and allocated meanwhile; and
// once it has let go the memory is used again.
TEST(GasEpochs, WhatIsPinnedStays) {
    using Item = std::array<std::uint64_t, 8>;
    for (const std::uint64_t seed : seeds(10)) {
        GasCluster cluster(seed, {.trust_global_atomics = seed % 5 != 4});
        bool pinned = false, churned = false;
        cluster.run([&](gas::Node& node, std::size_t) {
            const auto cell = node.share<nic<ptr<Item>>>("cell");
            ASSERT_TRUE(cell);
            gas::Epochs& epochs = node.epochs();
            if (node.id() == NodeId{0}) {
                const auto first = node.allocate(Item{1, 2, 3});
                ASSERT_TRUE(node.exchange(*cell, *first));
                ASSERT_TRUE(node.barrier());
                while (!pinned) pause();
                const auto next = node.allocate(Item{4, 5, 6});
                ASSERT_TRUE(node.exchange(*cell, *next));
                epochs.retire(*first);
                for (int i = 0; i < 6; ++i) ASSERT_TRUE(node.loop().run(epochs.collect()));
                for (int i = 0; i < 100; ++i) ASSERT_NE(*node.allocate(Item{9, 9, 9}), *first);
                EXPECT_EQ(epochs.retired(), 1u);
                churned = true;
                ASSERT_TRUE(node.barrier());
                for (int i = 0; i < 6; ++i) ASSERT_TRUE(node.loop().run(epochs.collect()));
                EXPECT_EQ(epochs.retired(), 0u);
                EXPECT_EQ(*node.allocate(Item{}), *first);
            } else {
                ASSERT_TRUE(node.barrier());
                {
                    const gas::Epochs::Pin pin = epochs.pin();
                    const ptr<Item> item = *node.read(*cell);
                    pinned = true;
                    while (!churned) pause();
                    EXPECT_EQ(*node.read(item), (Item{1, 2, 3}));
                }
                ASSERT_TRUE(node.barrier());
            }
            ASSERT_TRUE(node.barrier());
        });
    }
}

// Tasks of one thread take turns, so that one of them is always pinned: what is retired is freed
// all the same, since each of them ends.
TEST(GasEpochs, TheCountGoesOnThoughPinsOverlap) {
    GasCluster cluster(3, {});
    cluster.run([](gas::Node& node, std::size_t) {
        gas::Epochs& epochs = node.epochs();
        std::optional<gas::Epochs::Pin> first, second;
        first.emplace(epochs.pin());
        if (node.id() == NodeId{0}) {
            epochs.retire(*node.allocate(std::uint64_t{1}));
        }
        for (int i = 0; i < 20; ++i) {
            second.emplace(epochs.pin());
            ASSERT_TRUE(node.loop().run(epochs.collect()));
            first.emplace(epochs.pin());  // Ends its last one: the second and the new one stay.
            ASSERT_TRUE(node.loop().run(epochs.collect()));
            second.reset();
        }
        EXPECT_EQ(epochs.retired(), 0u);
        first.reset();
        ASSERT_TRUE(node.barrier());
    });
}

TEST(GasAllocator, FindsWhatIsFreedTwiceAndCountsWhatIsLeft) {
    GasCluster cluster(4, {.check_memory = true});
    cluster.run([](gas::Node& node, std::size_t) {
        const NodeId other{static_cast<std::uint16_t>(1 - static_cast<unsigned>(node.id()))};
        const auto item = node.allocate_on(other, std::uint64_t{7});
        ASSERT_TRUE(item && node.barrier());
        EXPECT_EQ(node.blocks_in_use(), 1u);
        EXPECT_EQ(*node.read(*item), 7u);
        ASSERT_TRUE(node.barrier());
        EXPECT_EQ(node.free(item->as<std::uint32_t>()).error().code, EINVAL);
        EXPECT_TRUE(node.free(*item));
        EXPECT_EQ(node.free(*item).error().code, EINVAL);
        EXPECT_EQ(node.free(ptr<std::uint64_t>(other, 64)).error().code, EFAULT);
        ASSERT_TRUE(node.barrier());
        EXPECT_EQ(node.blocks_in_use(), 0u);
    });
}

TEST(GasAllocator, LargeBlocksAreUsedAgain) {
    GasCluster cluster(5, {.memory = 512 << 10});
    cluster.run([](gas::Node& node, std::size_t) {
        if (node.id() == NodeId{0}) {
            for (int i = 0; i < 20; ++i) {
                const auto block =
                    node.loop().run(node.allocator().allocate(NodeId{1}, 150'000, 8));
                ASSERT_TRUE(block) << block.error().why << " at " << i;
                ASSERT_TRUE(node.loop().run(node.allocator().free(*block, 150'000)));
            }
            const auto huge = node.loop().run(node.allocator().allocate(NodeId{1}, 1 << 30, 8));
            EXPECT_EQ(huge.error().code, ENOMEM);
        }
        ASSERT_TRUE(node.barrier());
    });
}

TEST(GasArray, ElementsAreSpreadAndReadInPieces) {
    using Words = gas::Array<std::uint64_t>;
    share<Words::Root>(
        {.nodes = 3}, 6, [](gas::Node& node) { return Words::create(node, 1000, 7); },
        [](gas::Node& node, std::size_t, auto root) {
            auto array = Words::open(node, root);
            ASSERT_TRUE(array) << array.error().why;
            const auto own = static_cast<std::uint64_t>(node.id());
            for (std::uint64_t i = own; i < 1000; i += 3) ASSERT_TRUE(array->set(i, i * i).wait());
            ASSERT_TRUE(node.barrier());
            std::vector<std::uint64_t> part(500);
            ASSERT_TRUE(node.loop().run(array->read(250, part)));
            for (std::uint64_t i = 0; i < 500; ++i) ASSERT_EQ(part[i], (i + 250) * (i + 250));
            ASSERT_TRUE(node.barrier());
            if (own == 0) {
                ASSERT_TRUE(node.loop().run(array->write(0, std::span<const std::uint64_t>(part))));
            }
            ASSERT_TRUE(node.barrier());
            EXPECT_EQ(*array->get(499).wait(), 749u * 749u);
            EXPECT_NE(array->at(0).node(), array->at(7).node());
            EXPECT_EQ(array->at(0).node(), array->at(6).node());
            EXPECT_EQ(array->get(1000).wait().error().code, EFAULT);
            ASSERT_TRUE(node.barrier());
        });
}

TEST(GasCounter, CountsAllAndAddsAtHome) {
    share<gas::Counter::Root>(
        {.nodes = 3, .threads = 2, .memory_nodes = 2}, 7,
        [](gas::Node& node) { return gas::Counter::create(node); },
        [done = 0](gas::Node& node, std::size_t thread, auto root) mutable {
            auto counter = gas::Counter::open(node, root, thread);
            ASSERT_TRUE(counter);
            const std::uint64_t before = node.lanes(thread).traffic().round_trips;
            for (int i = 0; i < 20; ++i) ASSERT_TRUE(counter->add(3).wait());
            const bool at_home = node.id() != NodeId{2};
            EXPECT_EQ(node.lanes(thread).traffic().round_trips - before, at_home ? 0u : 20u);
            ++done;
            if (thread != 0) return;
            while (done < 6) pause();
            EXPECT_EQ(*node.loop().run(counter->sum()), 6u * 20 * 3);
            ASSERT_TRUE(node.barrier());
        });
}

TEST(GasNode, BroadcastsFromAnyNode) {
    using Words = std::array<std::uint64_t, 20>;
    GasCluster cluster(8, {.nodes = 3, .memory_nodes = 2});
    cluster.run([](gas::Node& node, std::size_t) {
        for (std::uint16_t from = 0; from < 3; ++from) {
            const Words own{static_cast<std::uint64_t>(node.id()) + 5, 6};
            const auto heard = node.broadcast(own, NodeId{from});
            ASSERT_TRUE(heard) << heard.error().why;
            EXPECT_EQ(*heard, (Words{from + 5u, 6}));
        }
    });
}

}  // namespace
}  // namespace feroce::sim::gas_ds
