// Clusters that lose nodes, the first one among them: those that live meet at barriers, find names
// that were given before, give new ones, make containers and free memory.
#include <gtest/gtest.h>

#include <cerrno>
#include <set>
#include <string>
#include <vector>

#include "feroce/gas/ds/array.hpp"
#include "feroce/gas/ds/hash_map.hpp"
#include "feroce/gas/ds/list_set.hpp"
#include "feroce/gas/ds/ordered_map.hpp"
#include "feroce/gas/ds/queue.hpp"
#include "feroce/gas/share.hpp"
#include "sim/fiber.hpp"
#include "sim/gas_cluster.hpp"

namespace feroce::sim::gas_survivors {
namespace {

using namespace std::chrono_literals;
using gas::nic;
using gas::NodeId;
using gas::ptr;

constexpr gas::Lease kLease{.time = 20ms, .grace = 20ms};
using Word = std::uint64_t;

// Of which some die, when they say so.
class Mortal {
public:
    Mortal(std::uint64_t seed, std::size_t nodes, gas::Lease lease = kLease,
           Duration patience = 60s)
        : options_{.nodes = nodes,
                   .trust_global_atomics = seed % 3 != 2,
                   .memory = 1 << 20,
                   .patience = patience,
                   .lease = lease},
          cluster_(seed, options_) {}

    template <class Program>
    void run(Program program) {
        for (std::size_t i = 0; i < options_.nodes; ++i)
            cluster_.world().node(i).start("node", [&, i] {
                auto node = gas::Node::join(cluster_.options_of(i));
                ASSERT_TRUE(node) << node.error().why;
                ASSERT_TRUE(node->barrier());
                program(*node, i);
            });
        EXPECT_EQ(cluster_.world().run_all(2000s), "");
        // While all that the programs of the dead refer to is still there.
        for (std::size_t i = 0; i < options_.nodes; ++i) cluster_.world().node(i).end_programs();
    }
    void crash(std::size_t node) { cluster_.world().node(node).crash(); }
    // Both directions of its wire.
    void hold(std::size_t node, bool held) {
        cluster_.world().world().uplink(node).set_held(held);
        cluster_.world().world().downlink(node).set_held(held);
    }
    Prng& random() { return cluster_.random(); }

private:
    ClusterOptions options_;
    GasCluster cluster_;
};

void die() {
    here().crash();
    pause();
}

std::string name_of(const char* what, std::size_t i) {
    return std::string(what) + " " + std::to_string(i);
}

void expect_told(const gas::Result<>& met, std::size_t lost) {
    ASSERT_FALSE(met);
    const std::string words = name_of("node", lost) + " is lost";
    EXPECT_NE(met.error().why.find(words), std::string::npos) << met.error().why;
}

void expect_value(gas::Node& node, const std::string& name, Word value) {
    const auto word = node.find<Word>(name);
    ASSERT_TRUE(word) << name << ": " << word.error().why;
    const auto read = node.read(*word);
    ASSERT_TRUE(read) << name << ": " << read.error().why;
    EXPECT_EQ(*read, value) << name;
}

// What a cluster can do without the node that died.
void go_on(gas::Node& node, std::size_t i, std::size_t lost, std::size_t nodes) {
    const std::size_t first = lost == 0 ? 1 : 0;
    for (std::size_t other = 0; other < nodes; ++other)
        if (other != lost) expect_value(node, name_of("old", other), other);
    const auto gone = node.find<Word>(name_of("old", lost));
    ASSERT_TRUE(gone) << "the name stays, its object does not";
    EXPECT_FALSE(node.read(*gone));

    ASSERT_TRUE(node.publish(name_of("new", i), node.allocate(Word{10 + i}).value()));
    if (i == first) {
        ASSERT_TRUE(node.withdraw(name_of("old", lost)));
    }
    ASSERT_TRUE(node.barrier());
    for (std::size_t other = 0; other < nodes; ++other)
        if (other != lost) expect_value(node, name_of("new", other), 10 + other);

    const auto counter = node.share<nic<Word>>("counter");
    ASSERT_TRUE(counter) << counter.error().why;
    ASSERT_TRUE(node.fetch_add(*counter, 1) && node.barrier());
    EXPECT_EQ(node.read(*counter).value(), nodes - 1);
    for (std::size_t from = 0; from < nodes; ++from) {
        const auto told = node.broadcast(Word{i}, NodeId{static_cast<std::uint16_t>(from)});
        EXPECT_EQ(told.has_value(), from != lost) << from;
        EXPECT_TRUE(!told || *told == from) << from;
    }
}

// New ones, of all kinds, on the nodes that live.
void use_containers(gas::Node& node, std::size_t i, std::size_t nodes) {
    auto map = gas::share<gas::HashMap<Word, Word>>(node, "map", 4u).value();
    auto ordered = gas::share<gas::OrderedMap<Word, Word>>(node, "ordered").value();
    auto queue = gas::share<gas::Queue<Word>>(node, "queue").value();
    auto set = gas::share<gas::ListSet<Word>>(node, "set").value();
    auto array = gas::share<gas::Array<Word>>(node, "array", nodes).value();
    auto counter = gas::share<gas::Counter>(node, "sum").value();
    ASSERT_TRUE(queue.push(Word{i}).wait() && set.insert(Word{i}).wait());
    ASSERT_TRUE(array.set(i, Word{1}).wait() && counter.add(1).wait());
    for (Word key = 0; key < 40; ++key) {
        ASSERT_TRUE(map.put(key * nodes + i, key).wait());
        const auto put = ordered.put(key * nodes + i, key).wait();
        ASSERT_TRUE(put) << put.error().why;
    }
    ASSERT_TRUE(node.barrier());
    EXPECT_EQ(map.size().wait().value(), 40 * (nodes - 1));
    EXPECT_EQ(ordered.size().wait().value(), 40 * (nodes - 1));
    const auto taken = queue.pop().wait().value();  // Each pushed one, each takes one.
    ASSERT_TRUE(taken);
    EXPECT_TRUE(set.contains(*taken).wait().value());
    EXPECT_EQ(array.get(*taken).wait().value(), Word{1});
    EXPECT_EQ(counter.sum().wait().value(), nodes - 1);
}

void free_memory(gas::Node& node) {
    for (int i = 0; i < 100; ++i) node.epochs().retire(node.allocate(Word{1}).value());
    while (node.epochs().retired() != 0) {
        ASSERT_TRUE(node.loop().run(node.epochs().collect()));
        sleep_for(1ms);
    }
}

TEST(GasSurvivors, AnyNodeMayDie) {
    constexpr std::size_t kNodes = 4;
    for (const std::uint64_t seed : seeds(8)) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        const std::size_t victim = seed % kNodes;
        Mortal cluster(seed, kNodes);
        std::size_t met = 0, ended = 0;
        cluster.run([&](gas::Node& node, std::size_t i) {
            ASSERT_TRUE(node.publish(name_of("old", i), node.allocate(Word{i}).value()));
            ASSERT_TRUE(node.barrier());
            ++met;
            // A node that is still in that barrier would be told there.
            while (i == victim && met < kNodes) pause();
            if (i == victim) return die();
            expect_told(node.barrier(), victim);
            for (int round = 0; round < 3; ++round) ASSERT_TRUE(node.barrier());
            go_on(node, i, victim, kNodes);
            if (testing::Test::HasFailure()) return;
            use_containers(node, i, kNodes);
            free_memory(node);
            const auto left = node.leave();
            EXPECT_TRUE(left) << left.error().why;
            ++ended;
        });
        EXPECT_EQ(ended, kNodes - 1);
        if (testing::Test::HasFailure()) return;
    }
}

// One after the other, until one is left.
TEST(GasSurvivors, AllButOneMayDie) {
    constexpr std::size_t kNodes = 4;
    Mortal cluster(5, kNodes);
    bool alone = false;
    std::vector<std::size_t> met(kNodes);
    cluster.run([&](gas::Node& node, std::size_t i) {
        ASSERT_TRUE(node.publish(name_of("old", i), node.allocate(Word{i}).value()));
        ASSERT_TRUE(node.barrier());
        for (std::size_t lost = 0; lost + 1 < kNodes; ++lost) {
            ++met[lost];
            while (i == lost && met[lost] + lost < kNodes) pause();  // All have left the last one.
            if (i == lost) return die();
            expect_told(node.barrier(), lost);
            ASSERT_TRUE(node.barrier());
            expect_value(node, name_of("old", kNodes - 1), kNodes - 1);
            const auto shared = node.share<Word>(name_of("shared", lost), lost);
            ASSERT_TRUE(shared && node.barrier());
        }
        ASSERT_TRUE(node.leave());
        alone = true;
    });
    EXPECT_TRUE(alone);
}

// A node may end as soon as it has passed a barrier. Others may still be in that one, and all have
// come to it: it holds for them, and the next one tells of the loss.
TEST(GasSurvivors, AnArrivalOutlivesItsNode) {
    constexpr std::size_t kNodes = 5, kFirst = 4;
    for (const std::uint64_t seed : seeds(8)) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        Mortal cluster(seed, kNodes);
        bool alone = false;
        cluster.run([&](gas::Node& node, std::size_t i) {
            sleep_for(1s);  // All have left the first barrier.
            if (i == kFirst) return die();
            expect_told(node.barrier(), kFirst);
            for (const std::size_t victim : {1, 0, 2}) {
                sleep_for(Duration(cluster.random().below(2'000'000)));
                const auto met = node.barrier();
                ASSERT_TRUE(met) << "node " << i << ": " << met.error().why;
                if (i == victim) return die();
                expect_told(node.barrier(), victim);
            }
            ASSERT_TRUE(node.leave());
            alone = true;
        });
        EXPECT_TRUE(alone);
        if (testing::Test::HasFailure()) return;
    }
}

// Who names what while keepers die: a name that was given is there, and given to one alone.
struct Given {
    std::set<std::string> names;
    std::vector<int> winners = std::vector<int>(12);
};

void give_names(gas::Node& node, std::size_t i, Given& given) {
    for (std::size_t k = 0; k < given.winners.size(); ++k) {
        const auto word = node.allocate(Word{i}).value();
        const std::string own = name_of(i == 2 ? "two" : "three", k);
        const auto published = node.publish(own, word);
        ASSERT_TRUE(published) << published.error().why;
        given.names.insert(own);
        const auto wanted = node.publish(name_of("both", k), word);
        EXPECT_TRUE(wanted || wanted.error().code == EEXIST) << wanted.error().why;
        given.winners[k] += wanted ? 1 : 0;
        if (k % 3 != 2) continue;
        const auto withdrawn = node.withdraw(own);
        ASSERT_TRUE(withdrawn) << withdrawn.error().why;
        given.names.erase(own);
    }
}

TEST(GasSurvivors, NamesOutliveTheirKeepers) {
    for (const std::uint64_t seed : seeds(10)) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        Mortal cluster(seed, 4);
        Given given;
        bool dying = false;
        std::size_t ended = 0;
        cluster.run([&](gas::Node& node, std::size_t i) {
            if (i < 2) {  // They serve, by their device.
                while (!dying || i == 1) {
                    sleep_for(Duration(cluster.random().below(500'000)));
                    if (i == 0 || dying) break;
                }
                if (i == 1) sleep_for(Duration(cluster.random().below(6'000'000'000)));
                dying = true;
                return die();
            }
            give_names(node, i, given);
            if (testing::Test::HasFailure()) return;
            while (!dying) sleep_for(1ms);
            sleep_for(20s);  // Both are dead.
            static_cast<void>(node.barrier());
            ASSERT_TRUE(node.barrier());
            for (const std::string& name : given.names) EXPECT_TRUE(node.find<Word>(name)) << name;
            for (std::size_t k = 0; k < given.winners.size(); ++k)
                EXPECT_TRUE(node.find<Word>(name_of("both", k)));
            ++ended;
            while (ended < 2) pause();
        });
        EXPECT_EQ(ended, 2u);
        for (const int winners : given.winners) EXPECT_EQ(winners, 1);
        if (testing::Test::HasFailure()) return;
    }
}

// Where a thread is stopped, though its device is not: at its next access to shared memory.
struct Stop {
    AbiNode* node = nullptr;
    bool now = false;
};
Stop stop;

void stop_there() {
    while (stop.now && Fiber::current() != nullptr && &here() == stop.node) {
        Machine& machine = here().machine();
        machine.sleep_until(machine.now() + 100us);
    }
}

// A node that publishes is stopped for longer than its leases, and dies after it has gone on.
// Another one has published meanwhile: no table may have lost that name.
TEST(GasSurvivors, NoTableIsWrittenAfterTheLease) {
    Mortal cluster(1, 4);
    gas::detail::before_shared_access = stop_there;
    gas::Node* late = nullptr;
    bool asked = false, published = false, found = false;
    cluster.run([&](gas::Node& node, std::size_t i) {
        const auto word = node.allocate(Word{i}).value();
        if (i == 2) {
            late = &node;
            stop.node = &here();
            while (!asked) sleep_for(1us);
            static_cast<void>(node.publish("late", word));
        }
        if (i == 1) {
            while (!stop.now) sleep_for(1ms);
            ASSERT_TRUE(node.publish("in time", word));
            published = true;
        }
        while (i != 3) pause();
        while (late == nullptr) sleep_for(1us);
        const auto trips = [&] { return late->lanes().traffic().round_trips; };
        const std::uint64_t before = trips();
        asked = true;
        // Two locks, and a look at who lives.
        while (trips() < before + 3) sleep_for(Duration(100));
        stop.now = true;
        while (!published) sleep_for(1ms);
        stop.now = false;
        // It reads the table of this node and writes it, or it does not.
        while (trips() < before + 5) sleep_for(Duration(100));
        sleep_for(20us);
        for (const std::size_t dead : {2, 0, 1}) cluster.crash(dead);
        static_cast<void>(node.barrier());
        const auto kept = node.find<Word>("in time");
        EXPECT_TRUE(kept) << kept.error().why;
        found = true;
    });
    EXPECT_TRUE(found);
}

// With leases that are shorter than any change: it is given up in the end.
TEST(GasSurvivors, NamesAreNotTriedForEver) {
    Mortal cluster(7, 3, {.time = Duration(1), .grace = 1ms}, 3s);
    bool told = false;
    cluster.run([&](gas::Node& node, std::size_t i) {
        while (i != 0 && !told) sleep_for(100ms);
        if (i != 0) return;
        const auto published = node.publish("never", node.allocate(Word{1}).value());
        told = true;
        ASSERT_FALSE(published);
        EXPECT_EQ(published.error().code, ETIMEDOUT);
        EXPECT_NE(published.error().why.find("NodeOptions::lease"), std::string::npos)
            << published.error().why;
    });
    EXPECT_TRUE(told);
}

// A node that did not answer for long is told so, though the others have lost another one since.
TEST(GasSurvivors, AStoppedNodeIsToldAfterAnotherLoss) {
    Mortal cluster(11, 4);
    int told = 0, met = 0;
    bool goes_on = false;
    cluster.run([&](gas::Node& node, std::size_t i) {
        sleep_for(1s);  // All have left the first barrier.
        if (i == 2) {
            cluster.hold(2, true);
            while (!goes_on) sleep_for(1s);
            cluster.hold(2, false);
            EXPECT_EQ(node.barrier().error().code, ESTALE);
            EXPECT_EQ(node.publish("late", node.allocate(Word{1}).value()).error().code, ESTALE);
            ++told;
            return;
        }
        expect_told(node.barrier(), 2);
        ASSERT_TRUE(node.barrier());
        ++met;
        while (met < 3) pause();
        if (i == 3) return die();
        expect_told(node.barrier(), 3);
        ASSERT_TRUE(node.barrier());
        goes_on = true;
        ++told;
        while (told < 3) sleep_for(1s);
    });
    EXPECT_EQ(told, 3);
}

}  // namespace
}  // namespace feroce::sim::gas_survivors
