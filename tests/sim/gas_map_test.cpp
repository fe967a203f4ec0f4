// Maps and sets on simulated nodes: histories of all threads are recorded and checked for
// linearizability.
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <map>
#include <stdexcept>

#include "feroce/gas/share.hpp"
#include "gas/histories.hpp"
#include "sim/gas_cluster.hpp"

namespace feroce::sim {
namespace {

using gas::nic;
using gas::NodeId;
using gas::ptr;
using gas::Result;
using rdma::Task;
using Kind = MapCall::Kind;
using test::Map;

MapCall get(std::optional<std::uint64_t> got, std::uint64_t start, std::uint64_t end) {
    MapCall call;
    call.got = got, call.start = start, call.end = end;
    return call;
}

MapCall put(std::uint64_t value, bool is_new, std::uint64_t start, std::uint64_t end) {
    MapCall call;
    call.kind = Kind::Put, call.value = value, call.changed = is_new;
    call.start = start, call.end = end;
    return call;
}

TEST(Linearizability, KnowsGoodFromBad) {
    EXPECT_FALSE(not_linearizable({put(1, true, 0, 1), get(1, 2, 3)}));
    EXPECT_FALSE(not_linearizable({put(1, true, 0, 9), get({}, 1, 2), get(1, 3, 4)}));
    EXPECT_TRUE(not_linearizable({put(1, true, 0, 9), get(1, 1, 2), get({}, 3, 4)}));
    EXPECT_TRUE(not_linearizable({put(1, true, 0, 1), get({}, 2, 3)}));
    EXPECT_TRUE(not_linearizable({put(1, true, 0, 1), put(2, true, 2, 3)}));
    EXPECT_FALSE(not_linearizable({put(1, true, 0, 3), put(2, false, 1, 4), get(1, 5, 6)}) ==
                 std::nullopt);
    EXPECT_FALSE(not_linearizable({put(1, true, 0, 3), put(2, false, 1, 4), get(2, 5, 6)}));
}

// Changes the value without a lock, by reading and writing its own copy: updates get lost.
class Careless {
public:
    explicit Careless(Map map) : map_(std::move(map)) {}
    auto get(std::uint64_t key) { return map_.get(key); }
    auto erase(std::uint64_t key) { return map_.erase(key); }
    Task<Result<bool>> put(std::uint64_t key, std::uint64_t value) {
        const auto there = co_await map_.get(key);
        if (!there) co_return there.error();
        const auto done = co_await map_.put(key, value);
        if (!done) co_return done;
        co_return !*there;  // As if it had been one step.
    }

private:
    Map map_;
};

// What all threads of a cluster asked a container and got.
template <class M, class Container = M>
std::vector<MapCall> history(std::uint64_t seed, int rounds) {
    std::uint64_t now = 0;
    test::Recorder<MapCall> recorder;
    recorder.clock = [&] { return ++now; };
    recorder.random = Prng(seed);
    recorder.keys = seed % 3 == 2 ? 40 : 6;
    GasCluster cluster(seed, {.nodes = 2 + seed % 3,
                              .threads = static_cast<std::uint16_t>(1 + seed / 3 % 2),
                              .trust_global_atomics = seed % 5 != 4,
                              .memory = 1 << 20});
    using Root = typename Container::Root;
    constexpr Container* kOf = nullptr;
    ptr<Root> root;
    cluster.run([&](gas::Node& node, std::size_t thread) {
        if (thread == 0) {
            if (node.id() == NodeId{0}) {
                const auto made = test::create(node, kOf);
                ASSERT_TRUE(made) << made.error().why;
                ASSERT_TRUE(node.publish("map", *made));
            }
            const auto found = node.find<Root>("map");
            ASSERT_TRUE(found) << found.error().why;
            root = *found;
        }
        cluster.meet();
        auto opened = test::open(node, root, thread, kOf);
        ASSERT_TRUE(opened) << opened.error().why;
        M map(*std::move(opened));
        const auto done = node.loop(thread).run(test::use(map, recorder, rounds));
        ASSERT_TRUE(done) << done.error().why;
    });
    return recorder.calls;
}

template <class M>
void expect_linearizable(std::uint64_t usual) {
    for (const std::uint64_t seed : seeds(usual)) {
        const auto bad = not_linearizable(history<M>(seed, 20));
        ASSERT_FALSE(bad) << "seed " << seed << ", key " << *bad;
    }
}

TEST(GasMap, HashMapIsLinearizable) {
    expect_linearizable<Map>(20);
}
TEST(GasMap, OrderedMapIsLinearizable) {
    expect_linearizable<test::Tree>(10);
}
TEST(GasMap, ListSetIsLinearizable) {
    expect_linearizable<test::SetAsMap>(10);
}

TEST(GasMap, ACarelessOneIsCaught) {
    expect_found([](std::uint64_t seed) {
        return bool(not_linearizable(history<Careless, Map>(seed, 20)));
    });
}

// Reads and writes in two steps what has to be one: two of these lose an update.
class TwoSteps {
public:
    explicit TwoSteps(Map map) : map_(std::move(map)) {}
    auto get(std::uint64_t key) { return map_.get(key); }
    auto put(std::uint64_t key, std::uint64_t value) { return map_.put(key, value); }
    auto erase(std::uint64_t key) { return map_.erase(key); }
    auto insert(std::uint64_t key, std::uint64_t value) { return map_.insert(key, value); }
    template <class Edit>
    Task<Result<std::optional<std::uint64_t>>> update(std::uint64_t key, Edit edit) {
        auto value = co_await map_.get(key);
        if (!value) co_return value.error();
        edit(*value);
        const auto done = co_await map_.put(key, **value);
        if (!done) co_return done.error();
        co_return *value;
    }

private:
    Map map_;
};

TEST(GasMap, AnUpdateInTwoStepsIsCaught) {
    expect_found([](std::uint64_t seed) {
        return bool(not_linearizable(history<TwoSteps, Map>(seed, 20)));
    });
}

constexpr std::uint64_t kStaying = 40;
constexpr std::uint64_t kPassing = 20;  // Keys behind them, which come and go.

std::uint64_t value_of_key(std::uint64_t key) {
    return key * 7 + 1;
}

// What is shown while others change the map.
template <class M>
void expect_all_that_stays(M& map) {
    std::map<std::uint64_t, int> seen;
    int wrong = 0;
    const auto shown = map.for_each([&](std::uint64_t key, std::uint64_t value) {
                              ++seen[key];
                              wrong += key >= kStaying + kPassing || value != value_of_key(key);
                          })
                           .wait();
    ASSERT_TRUE(shown) << shown.error().why;
    EXPECT_EQ(wrong, 0);
    for (const auto& [key, times] : seen) EXPECT_EQ(times, 1) << "key " << key;
    for (std::uint64_t key = 0; key < kStaying; ++key) EXPECT_EQ(seen.count(key), 1u) << key;
    const auto size = map.size().wait();
    ASSERT_TRUE(size) << size.error().why;
    EXPECT_GE(*size, kStaying);
    EXPECT_LE(*size, kStaying + kPassing);
}

template <class M>
void expect_honest_iteration(std::uint64_t usual) {
    constexpr M* kOf = nullptr;
    for (const std::uint64_t seed : seeds(usual)) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        GasCluster cluster(seed, {.nodes = 3, .memory = 1 << 20});
        bool done = false;
        cluster.run([&](gas::Node& node, std::size_t) {
            if (node.id() == NodeId{0}) {
                ASSERT_TRUE(node.publish("map", test::create(node, kOf).value()));
            }
            auto map = test::open(node, node.find<typename M::Root>("map").value(), 0, kOf).value();
            for (std::uint64_t key = 0; node.id() == NodeId{0} && key < kStaying; ++key)
                ASSERT_TRUE(map.put(key, value_of_key(key)).wait().value());
            ASSERT_TRUE(node.barrier());
            if (node.id() == NodeId{1}) {
                for (int i = 0; i < 3; ++i) expect_all_that_stays(map);
                done = true;
            }
            for (std::uint64_t i = 0; node.id() != NodeId{1} && !done; ++i) {
                const std::uint64_t key = kStaying + i * 7 % kPassing;
                ASSERT_TRUE(map.put(key, value_of_key(key)).wait());
                ASSERT_TRUE(map.erase(kStaying + i * 11 % kPassing).wait());
            }
            ASSERT_TRUE(node.barrier());
            for (std::uint64_t i = 0; node.id() == NodeId{2} && i < kPassing; ++i)
                ASSERT_TRUE(map.put(kStaying + i, value_of_key(kStaying + i)).wait());
            ASSERT_TRUE(node.barrier());
            EXPECT_EQ(map.size().wait().value(), kStaying + kPassing);
            ASSERT_TRUE(node.barrier());
        });
        if (testing::Test::HasFailure()) return;
    }
}

TEST(GasMap, AHashMapShowsAllThatStays) {
    expect_honest_iteration<Map>(5);
}
TEST(GasMap, AnOrderedMapShowsAllThatStays) {
    expect_honest_iteration<test::Tree>(5);
}

// What the caller's function throws comes out of the call; the key is as it was, and not locked.
template <class M>
void expect_no_harm_of_an_exception() {
    constexpr M* kOf = nullptr;
    GasCluster cluster(5, {.memory = 1 << 20});
    cluster.run([&](gas::Node& node, std::size_t) {
        if (node.id() == NodeId{0}) {
            ASSERT_TRUE(node.publish("map", test::create(node, kOf).value()));
        }
        auto map = test::open(node, node.find<typename M::Root>("map").value(), 0, kOf).value();
        for (std::uint64_t key = 0; node.id() == NodeId{1} && key < 10; ++key) {
            ASSERT_TRUE(map.insert(key, 5).wait().value());
            EXPECT_FALSE(map.insert(key, 6).wait().value());
            const auto refuse = [](auto& value) {
                value = 7;
                throw std::runtime_error("no");
            };
            const Instant start = node.loop().now();
            EXPECT_THROW(static_cast<void>(map.update(key, refuse).wait()), std::runtime_error);
            EXPECT_EQ(map.get(key).wait().value(), 5u);
            const auto erase = [](auto& value) { value.reset(); };
            EXPECT_EQ(map.update(key, erase).wait().value(), std::nullopt);
            EXPECT_EQ(map.get(key).wait().value(), std::nullopt);
            EXPECT_LT(node.loop().now() - start, node.lanes().lease().time);
            const auto late = map.put(key, 8).within(Duration(0)).wait();
            EXPECT_EQ(late.error().code, ETIMEDOUT);
            EXPECT_EQ(map.get(key).wait().value(), std::nullopt);
        }
        ASSERT_TRUE(node.barrier());
    });
}

TEST(GasMap, AnExceptionLeavesAHashMapAsItWas) {
    expect_no_harm_of_an_exception<Map>();
}
TEST(GasMap, AnExceptionLeavesAnOrderedMapAsItWas) {
    expect_no_harm_of_an_exception<test::Tree>();
}

TEST(GasMap, GrowsAndCountsItsRoundTrips) {
    GasCluster cluster(2, {.memory = 1 << 20});
    cluster.run([](gas::Node& node, std::size_t) {
        if (node.id() == NodeId{0}) {
            const auto made = Map::create(node, 4);
            ASSERT_TRUE(made && node.publish("map", *made));
        }
        auto map = Map::open(node, *node.find<Map::Root>("map"));
        ASSERT_TRUE(map);
        rdma::Loop& loop = node.loop();
        const auto own = static_cast<std::uint64_t>(node.id()) * 1000;
        for (std::uint64_t i = 0; i < 300; ++i)
            EXPECT_TRUE(*loop.run(map->put(own + i, i * i))) << i;
        for (std::uint64_t i = 0; i < 300; ++i) EXPECT_EQ(**loop.run(map->get(own + i)), i * i);
        for (std::uint64_t i = 0; i < 300; i += 2) EXPECT_TRUE(*loop.run(map->erase(own + i)));
        for (std::uint64_t i = 0; i < 300; ++i)
            EXPECT_EQ(loop.run(map->get(own + i))->has_value(), i % 2 == 1);
        ASSERT_TRUE(node.barrier());
    });
}

// One bucket, in a cluster of one: a new key that finds no place is refused, and the rest stays.
TEST(GasMap, AFullBucketRefusesNewKeysAndKeepsTheOthers) {
    using Full = gas::HashMap<std::uint64_t, std::uint64_t>;
    auto node = gas::Node::join(gas::NodeOptions());
    ASSERT_TRUE(node) << node.error().why;
    auto map = gas::share<Full>(*node, "map", 1u).value();
    constexpr std::uint64_t kFull = Full::kBucketEntries;
    for (std::uint64_t key = 0; key < kFull; ++key) {
        const auto put = map.put(key, key).wait();
        ASSERT_TRUE(put) << key << ": " << put.error().why;
    }
    const auto refused = map.put(kFull, 1).wait();
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ENOSPC) << refused.error().why;
    EXPECT_NE(refused.error().why.find("more buckets"), std::string::npos) << refused.error().why;
    EXPECT_EQ(map.size().wait().value(), kFull);
    EXPECT_EQ(map.get(kFull - 1).wait().value(), kFull - 1);
    EXPECT_FALSE(map.get(kFull).wait().value());
    // One that is there is changed, and one that is erased makes room.
    ASSERT_TRUE(map.put(kFull - 1, 7).wait() && map.erase(5).wait());
    ASSERT_TRUE(map.put(kFull, 8).wait());
    EXPECT_EQ(map.get(kFull - 1).wait().value(), 7u);
    EXPECT_EQ(map.get(kFull).wait().value(), 8u);
    EXPECT_TRUE(node->leave());
}

TEST(GasMap, AGetIsOneRoundTripAndAPutTwo) {
    GasCluster cluster(3, {});
    cluster.run([](gas::Node& node, std::size_t) {
        if (node.id() == NodeId{0}) {
            const auto made = Map::create(node, 64);
            ASSERT_TRUE(made && node.publish("map", *made));
        }
        auto map = Map::open(node, *node.find<Map::Root>("map"));
        ASSERT_TRUE(map && node.barrier());
        if (node.id() == NodeId{1}) {
            std::uint64_t far = 0;
            for (std::uint64_t key = 0; key < 20; ++key) {
                const auto trips = [&] { return node.lanes().traffic().round_trips; };
                const std::uint64_t start = trips();
                ASSERT_TRUE(node.loop().run(map->put(key, key)));
                const std::uint64_t written = trips();
                ASSERT_TRUE(node.loop().run(map->get(key)));
                if (written == start) continue;  // On this node.
                ++far;
                EXPECT_EQ(written - start, 2u) << key;
                EXPECT_EQ(trips() - written, 1u) << key;
            }
            EXPECT_GT(far, 3u);
        }
        ASSERT_TRUE(node.barrier());
    });
}

}  // namespace
}  // namespace feroce::sim
