// Operations that run out of memory or of time, handles that many tasks use, and nodes that die in
// the middle: nothing is lost, left locked, or written later.
#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <set>
#include <vector>

#include "feroce/gas/ds/hash_map.hpp"
#include "feroce/gas/ds/list_set.hpp"
#include "feroce/gas/ds/ordered_map.hpp"
#include "feroce/gas/ds/queue.hpp"
#include "feroce/task_group.hpp"
#include "sim/gas_cluster.hpp"

namespace feroce::sim::gas_limits {
namespace {

using gas::NodeId;
using gas::plain;
using gas::ptr;
using gas::Result;
using rdma::Task;
using Map = gas::HashMap<std::uint64_t, std::uint64_t>;
using Tree = gas::OrderedMap<std::uint64_t, std::uint64_t>;
using Set = gas::ListSet<std::uint64_t>;
using Fifo = gas::Queue<std::uint64_t>;
using namespace std::chrono_literals;

constexpr std::size_t kHeap = 1 << 20;

Result<ptr<void>> allocate(gas::Node& node, NodeId at, std::size_t bytes) {
    return node.loop().run(node.allocator().allocate(at, bytes, 64));
}

TEST(GasMemory, AnAllocationThatFailsTakesNothing) {
    GasCluster cluster(1, {.memory = kHeap});
    cluster.run([](gas::Node& node, std::size_t) {
        if (node.id() == NodeId{1}) {
            ASSERT_TRUE(allocate(node, NodeId{0}, 8));
            for (int i = 0; i < 3; ++i)  // Of the heap, something is used.
                EXPECT_EQ(allocate(node, NodeId{0}, kHeap - 4096).error().code, ENOMEM);
            const auto half = allocate(node, NodeId{0}, kHeap / 2);
            ASSERT_TRUE(half) << half.error().why;
        }
        ASSERT_TRUE(node.barrier());
        // Both get the rest, down to the last chunk, which is smaller than others.
        std::size_t bytes = 0;
        while (allocate(node, NodeId{0}, 1024)) bytes += 1024;
        EXPECT_GE(bytes, node.id() == NodeId{0} ? 1024u : 0u);
        ASSERT_TRUE(node.barrier());
        EXPECT_EQ(allocate(node, NodeId{0}, 1024).error().code, ENOMEM);
        ASSERT_TRUE(node.barrier());
    });
}

TEST(GasMemory, NoneOfAHeapIsOutOfReach) {
    GasCluster cluster(2, {.memory = kHeap + 192});
    cluster.run([](gas::Node& node, std::size_t) {
        if (node.id() == NodeId{1}) {
            std::size_t blocks = 0;
            while (allocate(node, NodeId{0}, 64)) ++blocks;
            EXPECT_EQ(blocks, kHeap / 64 + 3);
        }
        ASSERT_TRUE(node.barrier());
    });
}

// Of a map that does not find memory on every node nothing is left on those that had some.
TEST(GasMemory, WhatIsNotMadeWholeIsGivenBack) {
    GasCluster cluster(3, {.memory = kHeap, .check_memory = true});
    cluster.run([](gas::Node& node, std::size_t) {
        if (node.id() == NodeId{1}) {
            while (allocate(node, NodeId{1}, 4096)) continue;
        }
        ASSERT_TRUE(node.barrier());
        if (node.id() == NodeId{0}) {
            EXPECT_EQ(Map::create(node, 8).error().code, ENOMEM);
            EXPECT_EQ(node.blocks_in_use(), 0u);
            const auto word = node.share<std::uint64_t>("word");
            ASSERT_TRUE(word);
            EXPECT_EQ(node.share<std::uint64_t>("word").value(), *word);
            EXPECT_EQ(node.publish("word", *word).error().code, EEXIST);
            EXPECT_EQ(node.blocks_in_use(), 1u);
        }
        ASSERT_TRUE(node.barrier());
    });
}

void read_and_write(gas::Node& node, std::size_t words) {
    std::vector<std::uint64_t> block(words), other(words);
    std::iota(block.begin(), block.end(), 7);
    const std::string name = std::to_string(words);
    if (node.id() == NodeId{0}) {
        const auto memory = allocate(node, NodeId{0}, words * 8);
        ASSERT_TRUE(memory && node.publish(name, memory->as<std::uint64_t>()));
    }
    const auto shared = node.find<std::uint64_t>(name).value();
    const gas::span<std::uint64_t> all(shared, words);
    if (node.id() == NodeId{1}) {
        auto step = node.lanes().chain(shared.node());
        step.write(all, block.data());
        const auto written = step.wait();
        ASSERT_TRUE(written) << written.error().why;
    }
    ASSERT_TRUE(node.barrier());
    // With a word behind it.
    std::uint64_t last = 0;
    auto both = node.lanes().chain(shared.node());
    both.read(all, other.data()).read(shared[words - 1], last);
    const auto done = both.wait();
    ASSERT_TRUE(done) << done.error().why;
    EXPECT_EQ(other, block);
    EXPECT_EQ(last, block.back());
    ASSERT_TRUE(node.barrier());
}

TEST(GasMemory, ReadsAndWritesOfAnySizeWorkOnAnyNode) {
    using Page = std::array<std::uint64_t, 512>;
    GasCluster cluster(3, {.yields = 0, .memory = 8 << 20});  // It copies much by the CPU.
    cluster.run([](gas::Node& node, std::size_t) {
        for (const std::size_t words : {129, 8192, 65536, 3, 1024}) read_and_write(node, words);
        const auto page = node.share<Page>("page");
        ASSERT_TRUE(page && node.barrier());
        if (node.id() == NodeId{1}) {
            const auto written = node.write(*page, Page{1, 2, 3});
            ASSERT_TRUE(written) << written.error().why;
        }
        ASSERT_TRUE(node.barrier());
        const auto read = node.read(*page);
        ASSERT_TRUE(read) << read.error().why;
        EXPECT_EQ(*read, (Page{1, 2, 3}));
        ASSERT_TRUE(node.barrier());
    });
}

// The answer to a READ that was given up comes later; its memory is the program's again.
TEST(GasLimits, NothingIsWrittenAfterADeadline) {
    using Block = std::array<std::uint64_t, 64>;
    GasCluster cluster(4, {});
    cluster.run([&](gas::Node& node, std::size_t) {
        const auto shared = node.share<Block>("block", Block{7, 7, 7});
        ASSERT_TRUE(shared && node.barrier());
        if (node.id() == NodeId{1}) {
            const auto mine = node.allocate(Block{});
            Block& here = *node.lanes().local(*mine);
            const auto fetch = [](gas::Node& at, ptr<Block> from, Block& into) -> Task<Result<>> {
                auto step = at.lanes().chain(from.node());
                step.read(from, into);
                co_return co_await step;
            };
            cluster.world().world().set_faults({.loss = 1.0});
            const auto read =
                node.loop().run(fetch(node, *shared, here).until(node.loop().after(1ms)));
            EXPECT_EQ(read.error().code, ETIMEDOUT);
            here[0] = 42;
            cluster.world().world().set_faults({});
            EXPECT_EQ(node.read(*shared).value()[0], 7u);  // By the same lane, behind the first.
            EXPECT_EQ(here[0], 42u);
        }
        ASSERT_TRUE(node.barrier());
    });
}

// Gives up after every time from nothing to more than what the operation takes.
constexpr Duration kLongest = 60us;
constexpr Duration kStep = 500ns;
constexpr gas::Lease kLease{.time = 2s, .grace = 2s};

template <class M>
void expect_no_lock_left(Result<ptr<typename M::Root>> (*create)(gas::Node&)) {
    GasCluster cluster(5, {.memory = kHeap, .lease = kLease});
    cluster.run([&](gas::Node& node, std::size_t) {
        if (node.id() == NodeId{0}) {
            ASSERT_TRUE(node.publish("map", create(node).value()));
        }
        auto map = M::open(node, node.find<typename M::Root>("map").value()).value();
        ASSERT_TRUE(node.barrier());
        rdma::Loop& loop = node.loop();
        int in_time = 0, late = 0;
        std::uint64_t i = 0;
        for (Duration limit{0}; node.id() == NodeId{1} && limit < kLongest; limit += kStep, ++i) {
            const std::uint64_t key = i % 97;
            const auto put = loop.run(map.put(key, i + 1).until(loop.after(limit)));
            if (!put) {
                EXPECT_EQ(put.error().code, ETIMEDOUT) << put.error().why;
            }
            ++(put ? in_time : late);
            const Instant start = loop.now();
            const auto found = loop.run(map.get(key));
            ASSERT_TRUE(found) << found.error().why;
            EXPECT_EQ(*found == i + 1, put.has_value()) << "limit " << limit.count();
            const auto gone = loop.run(map.erase(key).until(loop.after(limit)));
            ASSERT_TRUE(loop.run(map.put(key, 0))) << "limit " << limit.count();
            EXPECT_LT(loop.now() - start, kLease.time) << "limit " << limit.count();
            if (gone) {
                EXPECT_EQ(*gone, found->has_value());
            }
        }
        if (node.id() == NodeId{1}) {
            EXPECT_GT(in_time, 5);
            EXPECT_GT(late, 0);  // Free locks are taken at once, and then the change is made.
        }
        ASSERT_TRUE(node.barrier());
    });
}

TEST(GasLimits, AHashMapIsNotLeftLocked) {
    expect_no_lock_left<Map>([](gas::Node& node) { return Map::create(node, 4); });
}

TEST(GasLimits, AnOrderedMapIsNotLeftLocked) {
    expect_no_lock_left<Tree>([](gas::Node& node) { return Tree::create(node); });
}

TEST(GasLimits, AQueueLosesNothing) {
    GasCluster cluster(6, {.memory = kHeap});
    cluster.run([&](gas::Node& node, std::size_t) {
        if (node.id() == NodeId{0}) {
            ASSERT_TRUE(node.publish("queue", Fifo::create(node).value()));
        }
        Fifo queue(node, node.find<Fifo::Root>("queue").value());
        ASSERT_TRUE(node.barrier());
        rdma::Loop& loop = node.loop();
        std::uint64_t next = 0, expected = 0;
        int pushes = 0, pops = 0;
        for (Duration limit{0}; node.id() == NodeId{1} && limit < kLongest; limit += kStep) {
            for (int i = 0; i < 2; ++i)
                if (loop.run(queue.push(next).until(loop.after(limit)))) ++next, ++pushes;
            if (loop.run(queue.push(next))) ++next;
            const auto popped = loop.run(queue.pop().until(loop.after(limit)));
            if (!popped) continue;
            ++pops;
            ASSERT_TRUE(popped->has_value());
            EXPECT_EQ(**popped, expected++);
        }
        while (node.id() == NodeId{1}) {
            const auto popped = loop.run(queue.pop());
            ASSERT_TRUE(popped) << popped.error().why;
            if (!*popped) break;
            EXPECT_EQ(**popped, expected++);
        }
        EXPECT_EQ(expected, next);
        if (node.id() == NodeId{1}) {
            EXPECT_GT(pushes, 5);
            EXPECT_GT(pops, 5);
        }
        ASSERT_TRUE(node.barrier());
    });
}

TEST(GasLimits, AListSetHasWhatItSaid) {
    GasCluster cluster(7, {.memory = kHeap, .check_memory = true});
    cluster.run([&](gas::Node& node, std::size_t) {
        if (node.id() == NodeId{0}) {
            ASSERT_TRUE(node.publish("set", Set::create(node).value()));
        }
        Set set(node, node.find<Set::Item>("set").value());
        ASSERT_TRUE(node.barrier());
        rdma::Loop& loop = node.loop();
        std::set<std::uint64_t> model;
        std::uint64_t key = 0;
        for (Duration limit{0}; node.id() == NodeId{1} && limit < kLongest; limit += kStep, ++key) {
            const auto inserted = loop.run(set.insert(key % 5).until(loop.after(limit)));
            if (inserted) {
                EXPECT_EQ(*inserted, model.insert(key % 5).second);
            }
            const auto erased = loop.run(set.erase(key * 3 % 5).until(loop.after(limit)));
            if (erased) {
                EXPECT_EQ(*erased, model.erase(key * 3 % 5) == 1);
            }
            for (std::uint64_t i = 0; i < 5; ++i)
                EXPECT_EQ(loop.run(set.contains(i)).value(), model.count(i) == 1);
        }
        // What was given up was given back: of node 1 only items of the set are in use.
        while (node.id() == NodeId{1} && node.epochs().retired() != 0) {
            ASSERT_TRUE(loop.run(node.epochs().collect()));
        }
        if (node.id() == NodeId{1}) {
            EXPECT_EQ(node.blocks_in_use(), model.size());
        }
        ASSERT_TRUE(node.barrier());
    });
}

constexpr std::uint64_t kTasks = 16;

template <class M>
Task<void> use_key(M& map, std::uint64_t key, int& wrong) {
    for (std::uint64_t i = 0; i < 40; ++i) {
        const auto put = co_await map.put(key, key * 1000 + i);
        const auto got = co_await map.get(key);
        wrong += !put || !got || !*got || **got != key * 1000 + i ? 1 : 0;
        if (i % 4 == 3) {
            const auto erased = co_await map.erase(key);
            wrong += !erased || !*erased ? 1 : 0;
        }
    }
}

template <class M>
void expect_right_for_many_tasks(Result<ptr<typename M::Root>> (*create)(gas::Node&)) {
    GasCluster cluster(8, {.nodes = 3, .memory = kHeap});
    cluster.run([&](gas::Node& node, std::size_t) {
        if (node.id() == NodeId{0}) {
            ASSERT_TRUE(node.publish("map", create(node).value()));
        }
        auto map = M::open(node, node.find<typename M::Root>("map").value()).value();
        int wrong = 0;
        rdma::TaskGroup group(node.loop());
        const auto first = 1 + kTasks * static_cast<std::uint64_t>(node.id());
        for (std::uint64_t key = first; key < first + kTasks; ++key)
            group.spawn(use_key(map, key, wrong));
        ASSERT_TRUE(node.loop().run(group.join()));
        EXPECT_EQ(wrong, 0);
        ASSERT_TRUE(node.barrier());
    });
}

TEST(GasHandles, ManyTasksUseOneHashMap) {
    expect_right_for_many_tasks<Map>([](gas::Node& node) { return Map::create(node, 8); });
}

TEST(GasHandles, ManyTasksUseOneOrderedMap) {
    expect_right_for_many_tasks<Tree>([](gas::Node& node) { return Tree::create(node); });
}

Task<void> allocate_and_free(gas::Node& node, std::uint64_t task, int& wrong) {
    using Block = std::array<std::uint64_t, 4096>;  // Of which a thread keeps two.
    for (std::uint64_t i = 0; i < 20; ++i) {
        const auto memory = co_await node.allocator().allocate(NodeId{0}, sizeof(Block), 64);
        if (!memory) {
            ++wrong;
            continue;
        }
        const auto word = memory->as<std::uint64_t>();
        static_cast<void>(co_await node.lanes().write(word, task));
        const auto found = co_await node.lanes().read(word);
        wrong += !found || *found != task ? 1 : 0;
        const auto freed = co_await node.allocator().free(*memory, sizeof(Block));
        wrong += freed ? 0 : 1;
    }
}

// A block that two tasks of a thread give back at once is given back once.
TEST(GasHandles, ManyTasksAllocate) {
    GasCluster cluster(9, {.memory = 4 << 20});
    cluster.run([&](gas::Node& node, std::size_t) {
        int wrong = 0;
        rdma::TaskGroup group(node.loop());
        const auto first = 1 + kTasks * static_cast<std::uint64_t>(node.id());
        for (std::uint64_t i = first; i < first + kTasks; ++i)
            group.spawn(allocate_and_free(node, i, wrong));
        ASSERT_TRUE(node.loop().run(group.join()));
        EXPECT_EQ(wrong, 0);
        ASSERT_TRUE(node.barrier());
    });
}

// The first node dies; a queue and a set on another lose nothing, and their memory is used again.
TEST(GasCrash, ContainersDoNotNeedTheFirstNode) {
    GasCluster cluster(10, {.nodes = 3, .memory = kHeap, .lease = {.time = 20ms, .grace = 20ms}});
    int ended = 0;
    for (std::size_t i = 0; i < 3; ++i)
        cluster.world().node(i).start("node", [&, i] {
            auto node = gas::Node::join(cluster.options_of(i));
            ASSERT_TRUE(node) << node.error().why;
            if (i == 1) {
                ASSERT_TRUE(node->publish("queue", Fifo::create(*node).value()));
                ASSERT_TRUE(node->publish("set", Set::create(*node).value()));
            }
            Fifo queue(*node, node->find<Fifo::Root>("queue").value());
            Set set(*node, node->find<Set::Item>("set").value());
            ASSERT_TRUE(node->barrier());
            if (i == 0) {
                here().crash();
                pause();
                return;
            }
            rdma::Loop& loop = node->loop();
            std::uint64_t pushed = 0, popped = 0;
            for (std::uint64_t n = 0; n < 500; ++n) {
                pushed += loop.run(queue.push(n)) ? 1 : 0;
                EXPECT_TRUE(loop.run(set.insert(n % 2 * 2 + i)).value());
                EXPECT_TRUE(loop.run(set.erase(n % 2 * 2 + i)).value());
                const auto element = loop.run(queue.pop());
                popped += element && *element ? 1 : 0;
            }
            EXPECT_EQ(pushed, 500u);
            EXPECT_EQ(popped, 500u);
            while (node->epochs().retired() != 0) {
                ASSERT_TRUE(loop.run(node->epochs().collect()));
                sleep_for(1ms);
            }
            ++ended;
            while (ended < 2) pause();
        });
    EXPECT_EQ(cluster.world().run_all(600s), "");
    EXPECT_EQ(ended, 2);
}

// A publisher that dies at any moment takes no name with it.
TEST(GasCrash, ANameIsPublishedOrFree) {
    int whole = 0, runs = 0;
    for (Duration life{0}; life < 2ms; life += life / 3 + 2us, ++runs) {
        GasCluster cluster(11, {.nodes = 3, .lease = {.time = 20ms, .grace = 20ms}});
        int met = 0, ended = 0;
        bool asked = false;
        for (std::size_t i = 0; i < 3; ++i)
            cluster.world().node(i).start("node", [&, i] {
                auto node = gas::Node::join(cluster.options_of(i));
                ASSERT_TRUE(node) << node.error().why;
                const auto mine = node->allocate(std::uint64_t{i});
                ASSERT_TRUE(mine && node->barrier());
                ++met;
                if (i == 2) {
                    while (met < 3) pause();
                    asked = true;
                    static_cast<void>(node->publish("name", *mine));
                    sleep_for(600s);
                }
                if (i == 0) {
                    while (!asked) pause();
                    sleep_for(life);
                    cluster.world().node(2).crash();
                }
                while (!asked) pause();
                if (i == 1) {
                    sleep_for(life);
                    const auto own = node->publish("name", *mine);
                    const auto found = node->find<std::uint64_t>("name");
                    ASSERT_TRUE(found) << found.error().why << " after " << life.count();
                    EXPECT_EQ(found->node(), NodeId{own ? std::uint16_t{1} : std::uint16_t{2}});
                    whole += own ? 0 : 1;
                    EXPECT_TRUE(node->withdraw("name"));
                    EXPECT_EQ(node->withdraw("name").error().code, ENOENT);
                    EXPECT_TRUE(node->publish("name", *mine));
                }
                ++ended;
                while (ended < 2) pause();
            });
        EXPECT_EQ(cluster.world().run_all(500s), "");
        for (std::size_t i = 0; i < 3; ++i) cluster.world().node(i).end_programs();
        if (testing::Test::HasFailure()) return;
    }
    EXPECT_GT(whole, 0);
    EXPECT_LT(whole, runs);
}

TEST(GasNode, NamesAreManyAndWithdrawn) {
    auto node = gas::Node::join(gas::NodeOptions());
    ASSERT_TRUE(node);
    const auto word = node->allocate(std::uint64_t{1});
    for (int round = 0; round < 3; ++round) {
        int names = 0;
        while (node->publish("name " + std::to_string(names), *word)) ++names;
        EXPECT_EQ(names, 64);
        EXPECT_EQ(node->publish("one more", *word).error().code, ENOSPC);
        EXPECT_TRUE(node->find<std::uint64_t>("name 63"));
        for (int i = 0; i < names; ++i) EXPECT_TRUE(node->withdraw("name " + std::to_string(i)));
    }
    EXPECT_EQ(node->publish("nothing", ptr<std::uint64_t>()).error().code, EINVAL);
    EXPECT_TRUE(node->leave());
}

}  // namespace
}  // namespace feroce::sim::gas_limits
