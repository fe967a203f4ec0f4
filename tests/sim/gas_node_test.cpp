// Clusters: nodes find each other, reach each other's memory by one line each, meet at barriers,
// and say who is lost.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "feroce/gas/sync/spin_lock.hpp"
#include "feroce/task_group.hpp"
#include "sim/gas_cluster.hpp"

namespace feroce::sim {
namespace {

using gas::nic;
using gas::NodeId;
using gas::ptr;
using namespace std::chrono_literals;

struct Item {
    std::uint64_t key = 0;
    std::array<char, 24> name{};
    ptr<Item> next{};
};

TEST(GasNode, TwoNodesUseEachOthersMemory) {
    GasCluster cluster(1, {});
    cluster.run([](gas::Node& node, std::size_t) {
        const auto counter = node.share<nic<std::uint64_t>>("counter");
        ASSERT_TRUE(counter) << counter.error().why;
        const auto item = node.share<Item>("item", {.key = 7, .name = {"seven"}});
        ASSERT_TRUE(item) << item.error().why;
        EXPECT_EQ(node.read(*item)->key, 7u);
        EXPECT_STREQ(node.read(*item)->name.data(), "seven");
        for (int i = 0; i < 5; ++i) EXPECT_TRUE(node.fetch_add(*counter, 1));
        ASSERT_TRUE(node.barrier());
        EXPECT_EQ(*node.read(*counter), 10u);
        ASSERT_TRUE(node.barrier());
        if (node.id() == NodeId{1}) {
            EXPECT_EQ(*node.compare_exchange(*counter, 9, 1), 10u);
            EXPECT_EQ(*node.compare_exchange(*counter, 10, 77), 10u);
            EXPECT_EQ(*node.exchange(*counter, 78), 77u);
            EXPECT_TRUE(node.write(item->field<&Item::key>(), 8));
        }
        ASSERT_TRUE(node.barrier());
        EXPECT_EQ(*node.read(*counter), 78u);
        EXPECT_EQ(node.read(*item)->key, 8u);
    });
}

TEST(GasNode, EverySeedRunsTwiceTheSame) {
    const auto once = [](std::uint64_t seed) {
        GasCluster cluster(seed, {.nodes = 2 + seed % 4,
                                  .threads = static_cast<std::uint16_t>(1 + seed % 2),
                                  .trust_global_atomics = seed % 3 != 0,
                                  .faults = {.loss = 0.01, .reorder = 0.02}});
        return cluster.run([](gas::Node& node, std::size_t thread) {
            if (thread != 0) return;
            const auto counter = node.share<nic<std::uint64_t>>("counter");
            ASSERT_TRUE(counter) << counter.error().why;
            ASSERT_TRUE(node.fetch_add(*counter, 1));
            ASSERT_TRUE(node.barrier());
            EXPECT_EQ(*node.read(*counter), node.size());
        });
    };
    // No more than usual: some clusters are large, and their runs long.
    auto few = seeds(12);
    few.resize(std::min<std::size_t>(few.size(), 12));
    for (const std::uint64_t seed : few) {
        SCOPED_TRACE(seed);
        EXPECT_EQ(once(seed), once(seed));
    }
}

TEST(GasNode, RoundTripsAreCounted) {
    GasCluster cluster(3, {});
    cluster.run([](gas::Node& node, std::size_t) {
        const auto word = node.share<nic<std::uint64_t>>("word");
        ASSERT_TRUE(word);
        const gas::Traffic before = node.lanes().traffic();
        std::uint64_t found = 0, value = 0;
        auto both = node.lanes().chain(word->node());
        both.fetch_add(*word, 1, found).read(*word, value);
        ASSERT_TRUE(both.wait());
        EXPECT_EQ(value, found + 1);
        const gas::Traffic& after = node.lanes().traffic();
        const bool local = node.id() == word->node();
        EXPECT_EQ(after.round_trips - before.round_trips, local ? 0u : 1u);
        EXPECT_EQ(after.doorbells - before.doorbells, local ? 0u : 1u);
        EXPECT_EQ(after.atomics - before.atomics, local ? 0u : 1u);
        EXPECT_EQ(after.local - before.local, local ? 2u : 0u);
    });
}

rdma::Task<void> add_one(gas::Lanes& lanes, ptr<nic<std::uint64_t>> word) {
    EXPECT_TRUE(co_await lanes.fetch_add(word, 1));
}

struct TwoWords {
    ptr<nic<std::uint64_t>> first, second;  // On different nodes.
};

// As many as there are slots, in one round.
rdma::Task<void> add_to_both(gas::Lanes& lanes, TwoWords words, bool and_give_up) {
    EXPECT_TRUE(co_await lanes.loop().sleep(1us));  // A round goes on from here.
    rdma::TaskGroup group(lanes.loop());
    for (std::size_t i = 0; i < gas::Lanes::kSlots / 2; ++i) {
        group.spawn(add_one(lanes, words.first));
        group.spawn(add_one(lanes, words.second));
    }
    if (and_give_up) co_return;
    EXPECT_TRUE(co_await group.join());
}

TEST(GasNode, WhatTasksAskInOneRoundLeavesByOneDoorbellForEachNode) {
    GasCluster cluster(7, {.nodes = 3});
    cluster.run([](gas::Node& node, std::size_t) {
        const auto own = node.allocate(nic<std::uint64_t>());
        const std::string name = "of " + std::to_string(static_cast<unsigned>(node.id()));
        ASSERT_TRUE(own && node.publish(name, *own) && node.barrier());
        if (node.id() == NodeId{2}) {
            const TwoWords words{node.find<nic<std::uint64_t>>("of 0").value(),
                                 node.find<nic<std::uint64_t>>("of 1").value()};
            gas::Lanes& lanes = node.lanes();
            // Those that are given up in their round never leave, nor take slots away.
            for (const bool given_up : {false, true, false}) {
                const gas::Traffic before = lanes.traffic();
                node.loop().run(add_to_both(lanes, words, given_up));
                EXPECT_EQ(lanes.traffic().doorbells - before.doorbells, given_up ? 0u : 2u);
                EXPECT_EQ(lanes.traffic().round_trips - before.round_trips,
                          given_up ? 0u : gas::Lanes::kSlots);
            }
            EXPECT_EQ(*node.read(words.first), gas::Lanes::kSlots);
            EXPECT_EQ(*node.read(words.second), gas::Lanes::kSlots);
        }
        ASSERT_TRUE(node.barrier());
    });
}

TEST(GasNode, AGuardThatEndsOutsideOfARoundFreesItsLockAtOnce) {
    GasCluster cluster(9, {});
    cluster.run([](gas::Node& node, std::size_t) {
        const auto lock = node.share<gas::SpinLock::Line>("lock");
        ASSERT_TRUE(lock && node.barrier());
        if (node.id() == NodeId{1}) {
            gas::SpinLock mutex(node.lanes(), *lock);
            std::uint64_t before = 0;
            {
                auto guard = node.loop().run(mutex.guard());
                ASSERT_TRUE(guard);
                before = node.lanes().traffic().doorbells;
            }
            // A thread that goes on without its loop leaves no lock behind.
            EXPECT_EQ(node.lanes().traffic().doorbells, before + 1);
        }
        ASSERT_TRUE(node.barrier());
    });
}

// A WRITE behind a READ, which it has to wait for.
rdma::Task<void> look_and_write(gas::Lanes& lanes, ptr<nic<std::uint64_t>> word) {
    std::uint64_t value = 0;
    auto both = lanes.chain(word.node());
    both.read(word, value).write(word, value);
    EXPECT_TRUE(co_await both);
}

rdma::Task<void> look_and_write_by(gas::Lanes& lanes, ptr<nic<std::uint64_t>> word,
                                   std::size_t tasks) {
    EXPECT_TRUE(co_await lanes.loop().sleep(1us));  // A round goes on from here.
    rdma::TaskGroup group(lanes.loop());
    for (std::size_t i = 0; i < tasks; ++i) group.spawn(look_and_write(lanes, word));
    EXPECT_TRUE(co_await group.join());
}

TEST(GasNode, ChainsOfOneRoundDoNotWaitForEachOthersFences) {
    GasCluster cluster(8, {});
    cluster.run([](gas::Node& node, std::size_t) {
        const auto word = node.share<nic<std::uint64_t>>("word");
        ASSERT_TRUE(word && node.barrier());
        if (node.id() == NodeId{1}) {
            const auto time_of = [&](std::size_t tasks) {
                const Instant start = node.loop().now();
                node.loop().run(look_and_write_by(node.lanes(), *word, tasks));
                return node.loop().now() - start;
            };
            time_of(1);  // Node 0 waits by now, and sleeps between its looks.
            const Duration alone = time_of(1);
            EXPECT_LT(time_of(8), 3 * alone / 2);
        }
        ASSERT_TRUE(node.barrier());
    });
}

TEST(GasNode, MistakesAreErrorsAndLeaveTheLaneAlone) {
    GasCluster cluster(4, {});
    cluster.run([](gas::Node& node, std::size_t) {
        const auto word = node.share<nic<std::uint64_t>>("word");
        ASSERT_TRUE(word);
        EXPECT_EQ(node.read(ptr<int>()).error().code, EFAULT);
        EXPECT_EQ(node.read(ptr<int>(NodeId{0}, 8)).error().code, EFAULT);
        EXPECT_EQ(node.read(ptr<int>(NodeId{9}, 8)).error().code, EHOSTUNREACH);
        const ptr<nic<std::uint64_t>> crooked(word->node(), word->address() + 4);
        EXPECT_EQ(node.fetch_add(crooked, 1).error().code, EINVAL);
        EXPECT_EQ(node.publish("word", *word).error().code, EEXIST);
        EXPECT_EQ(node.find<Item>("word").error().code, EINVAL);
        EXPECT_TRUE(node.fetch_add(*word, 1));
    });
}

TEST(GasNode, TimesOutAndGoesOn) {
    GasCluster cluster(5, {});
    cluster.run([&](gas::Node& node, std::size_t) {
        const auto word = node.share<nic<std::uint64_t>>("word");
        ASSERT_TRUE(word && node.barrier());
        if (node.id() == NodeId{1}) {
            const auto task = [](gas::Lanes& lanes, auto p) -> rdma::Task<gas::Result<>> {
                const auto value = co_await lanes.read(p);
                if (!value) co_return value.error();
                co_return gas::Result<>();
            };
            cluster.world().world().set_faults({.loss = 1.0});
            const auto late =
                node.loop().run(task(node.lanes(), *word).until(node.loop().after(1ms)));
            cluster.world().world().set_faults({});
            ASSERT_FALSE(late);
            EXPECT_EQ(late.error().code, ETIMEDOUT);
            EXPECT_TRUE(node.read(*word));
        }
        ASSERT_TRUE(node.barrier());
    });
}

TEST(GasNode, ALostNodeIsNamedAndNobodyHangs) {
    ClusterOptions options{.nodes = 3};
    GasCluster cluster(6, options);
    int told = 0;
    for (std::size_t i = 0; i < 3; ++i)
        cluster.world().node(i).start("node", [&, i] {
            auto node = gas::Node::join(cluster.options_of(i));
            ASSERT_TRUE(node) << node.error().why;
            ASSERT_TRUE(node->barrier());
            if (i == 2) {
                here().crash();
                pause();
                return;
            }
            const auto met = node->barrier();
            ASSERT_FALSE(met);
            EXPECT_NE(met.error().why.find("node 2 is lost"), std::string::npos) << met.error().why;
            ++told;
        });
    EXPECT_EQ(cluster.world().run_all(600s), "");
    EXPECT_EQ(told, 2);
}

// As a process that is stopped: what is sent to it arrives when it goes on. Its barrier ends too.
TEST(GasNode, ANodeThatDidNotAnswerIsToldThatItIsLost) {
    GasCluster cluster(11, {.nodes = 3});
    const auto hold = [&](bool held) {
        cluster.world().world().uplink(2).set_held(held);
        cluster.world().world().downlink(2).set_held(held);
    };
    int told = 0;
    for (std::size_t i = 0; i < 3; ++i)
        cluster.world().node(i).start("node", [&, i] {
            auto node = gas::Node::join(cluster.options_of(i));
            ASSERT_TRUE(node) << node.error().why;
            ASSERT_TRUE(node->barrier());
            sleep_for(1s);  // All have left it.
            if (i == 2) {
                hold(true);
                sleep_for(60s);
                EXPECT_EQ(told, 2) << "the others have not waited for it";
                hold(false);
            }
            const auto met = node->barrier();
            ASSERT_FALSE(met);
            const char* const words = i == 2 ? "found this node lost" : "node 2 is lost";
            EXPECT_NE(met.error().why.find(words), std::string::npos) << met.error().why;
            ++told;
            while (told < 3) sleep_for(1s);
        });
    EXPECT_EQ(cluster.world().run_all(600s), "");
    EXPECT_EQ(told, 3);
}

TEST(GasNode, MissingNodesAreNamed) {
    GasCluster cluster(7, {.nodes = 3, .patience = 2s});
    std::string why;
    cluster.world().node(0).start("node", [&] {
        auto node = gas::Node::join(cluster.options_of(0));
        ASSERT_FALSE(node);
        why = node.error().why;
    });
    EXPECT_EQ(cluster.world().run_all(600s), "");
    EXPECT_NE(why.find("have not come: 1, 2"), std::string::npos) << why;
}

// The second one comes later or at the same time.
TEST(GasNode, TwoOfOneRankAreRefused) {
    for (const Duration later : {Duration(0), Duration(20us), Duration(1s)}) {
        GasCluster cluster(8, {.nodes = 3, .patience = 5s});
        int refused = 0;
        std::string why;
        const auto join = [&](std::size_t at, std::size_t rank, Duration wait) {
            cluster.world().node(at).start("node", [&, rank, wait] {
                sleep_for(wait);
                auto node = gas::Node::join(cluster.options_of(rank));
                if (node || node.error().code != EPERM) return;
                why = node.error().why;
                ++refused;
            });
        };
        join(0, 0, 0ms);
        join(1, 1, 0ms);
        join(2, 1, later);
        EXPECT_EQ(cluster.world().run_all(600s), "");
        EXPECT_EQ(refused, 1) << later.count();
        EXPECT_NE(why.find("another node has this rank"), std::string::npos) << why;
    }
}

TEST(GasNode, NodesThatOnlyComputeUseTheMemoryOfOthers) {
    GasCluster cluster(10, {.nodes = 3, .memory_nodes = 1});
    cluster.run([](gas::Node& node, std::size_t) {
        const auto counter = node.share<nic<std::uint64_t>>("counter");
        ASSERT_TRUE(counter && node.fetch_add(*counter, 1) && node.barrier());
        EXPECT_EQ(*node.read(*counter), 3u);
        EXPECT_TRUE(node.allocate_on(NodeId{0}, Item()));
        const auto there = node.allocate_on(NodeId{1}, Item());
        ASSERT_FALSE(there);
        EXPECT_EQ(there.error().code, ENOMEM);
        ASSERT_TRUE(node.barrier());
    });
}

TEST(GasNode, AClusterOfOneNeedsNoDevice) {
    auto node = gas::Node::join(gas::NodeOptions());
    ASSERT_TRUE(node) << node.error().why;
    const auto counter = node->share<nic<std::uint64_t>>("counter");
    ASSERT_TRUE(counter);
    EXPECT_EQ(*node->fetch_add(*counter, 5), 0u);
    EXPECT_EQ(*node->read(*counter), 5u);
    EXPECT_TRUE(node->barrier());
    EXPECT_TRUE(node->leave());
}

TEST(GasNode, FreedMemoryIsUsedAgainByAll) {
    GasCluster cluster(9, {.memory = 192 << 10});
    cluster.run([](gas::Node& node, std::size_t) {
        // Far more than the heap holds, and most of it freed by the other node.
        for (int round = 0; round < 60; ++round) {
            std::vector<ptr<Item>> items;
            for (std::uint64_t i = 0; i < 100; ++i) {
                const auto item = node.allocate_on(NodeId{0}, Item{.key = i});
                ASSERT_TRUE(item) << item.error().why << " in round " << round;
                items.push_back(*item);
            }
            for (std::uint64_t i = 0; i < 100; ++i) EXPECT_EQ(node.read(items[i])->key, i);
            for (const auto item : items) ASSERT_TRUE(node.free(item));
        }
    });
}

}  // namespace
}  // namespace feroce::sim
