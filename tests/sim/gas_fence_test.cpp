// Nodes that did not answer for a while and go on: if the others have found them lost, nothing of
// what they do lands any more and their next operation says so; if not, nothing has happened.
#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "sim/gas_cluster.hpp"

namespace feroce::sim::gas_fence {
namespace {

using namespace std::chrono_literals;
using gas::nic;
using gas::NodeId;
using gas::plain;
using gas::ptr;
using Word = std::uint64_t;

constexpr std::size_t kNodes = 4;
constexpr std::size_t kAway = 2;  // The node that does not answer.

class Cluster {
public:
    Cluster(std::uint64_t seed, Duration silence, std::uint16_t threads = 1)
        : cluster_(seed, {.nodes = kNodes,
                          .threads = threads,
                          .trust_global_atomics = seed % 3 != 2,
                          .memory = 1 << 20,
                          .silence = silence}) {}

    template <class Program>
    void run(Program program) {
        for (std::size_t i = 0; i < kNodes; ++i)
            cluster_.world().node(i).start("node", [&, i] {
                auto node = gas::Node::join(cluster_.options_of(i));
                ASSERT_TRUE(node) << node.error().why;
                program(*node, i);
            });
        EXPECT_EQ(cluster_.world().run_all(2000s), "");
    }
    // Both directions of its wire. What was sent meanwhile arrives when it is held no longer.
    void hold(std::size_t node, bool held) {
        cluster_.world().world().uplink(node).set_held(held);
        cluster_.world().world().downlink(node).set_held(held);
    }

private:
    GasCluster cluster_;
};

// A word on every node, which all of them know.
ptr<plain<Word>> word_of(gas::Node& node, std::size_t i) {
    return node.find<plain<Word>>("word " + std::to_string(i)).value();
}

void publish_word(gas::Node& node, std::size_t i) {
    const auto word = node.allocate(plain<Word>(Word{0})).value();
    ASSERT_TRUE(node.publish("word " + std::to_string(i), word));
    ASSERT_TRUE(node.barrier());
}

void expect_outcast(const gas::Result<>& done) {
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, ESTALE) << done.error().why;
    EXPECT_NE(done.error().why.find("found this node lost"), std::string::npos) << done.error().why;
}

// How far the programs of a test have come.
struct Progress {
    std::size_t ready = 0;  // Nodes that have left the first barrier.
    std::size_t told = 0;   // Survivors that know of the loss.
    bool ended = false;     // The node that was away.
};

// The survivors: they need the node, so they find it lost, and see nothing of it afterwards.
void survive(gas::Node& node, std::size_t i, Progress& progress) {
    const auto own = word_of(node, i);
    ++progress.ready;
    const auto met = node.barrier();
    EXPECT_FALSE(met);
    ++progress.told;
    while (!progress.ended) sleep_for(10ms);
    EXPECT_EQ(node.read(own).value(), Word{0}) << "what a lost node wrote has landed on node " << i;
}

// A WRITE that the network delivers when the others have lost its sender.
void send_late(gas::Node& node, ptr<plain<Word>> word) {
    const auto write = [](gas::Lanes& lanes, ptr<plain<Word>> to) -> rdma::Task<gas::Result<>> {
        co_return co_await lanes.write(to, Word{7});
    };
    const auto sent = node.loop().run(write(node.lanes(), word).until(node.loop().after(1ms)));
    EXPECT_EQ(sent.error().code, ETIMEDOUT);
}

TEST(GasFence, NothingOfALostNodeLands) {
    for (const std::uint64_t seed : seeds(6)) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        Cluster cluster(seed, 500ms);
        Progress progress;
        cluster.run([&](gas::Node& node, std::size_t i) {
            publish_word(node, i);
            if (i != kAway) return survive(node, i, progress);
            ptr<plain<Word>> words[kNodes];
            for (std::size_t other = 0; other < kNodes; ++other)
                words[other] = word_of(node, other);
            while (progress.ready + 1 < kNodes) sleep_for(1ms);
            cluster.hold(kAway, true);
            // It finds that node lost by itself, unless another has told it more by then.
            const std::size_t late = seed % kAway;
            if (seed % 2 == 1) send_late(node, words[late]);
            while (progress.told + 1 < kNodes) sleep_for(10ms);
            cluster.hold(kAway, false);
            const Instant before = node.loop().now();
            for (std::size_t k = 1; k <= kNodes; ++k) {
                const std::size_t other = (late + k) % kNodes;
                if (other != kAway) expect_outcast(node.write(words[other], Word{7}));
            }
            EXPECT_LT(node.loop().now() - before, 100ms) << "it is told at once";
            expect_outcast(node.barrier());
            EXPECT_EQ(node.read(words[kAway]).value(), Word{0}) << "its own memory is still there";
            progress.ended = true;
        });
        EXPECT_TRUE(progress.ended);
        if (testing::Test::HasFailure()) return;
    }
}

// A READ and an atomic are refused and told of like a WRITE.
TEST(GasFence, EveryKindOfOperationIsRefused) {
    for (int kind = 0; kind < 3; ++kind) {
        Cluster cluster(20, 500ms);
        Progress progress;
        cluster.run([&](gas::Node& node, std::size_t i) {
            publish_word(node, i);
            if (i != kAway) return survive(node, i, progress);
            const auto word = word_of(node, 0);
            const auto counter = word.as<nic<Word>>();
            while (progress.ready + 1 < kNodes) sleep_for(1ms);
            cluster.hold(kAway, true);
            while (progress.told + 1 < kNodes) sleep_for(10ms);
            cluster.hold(kAway, false);
            const auto code = kind == 0   ? node.read(word).error().code
                              : kind == 1 ? node.fetch_add(counter, 1).error().code
                                          : node.compare_exchange(counter, 0, 1).error().code;
            EXPECT_EQ(code, ESTALE) << kind;
            progress.ended = true;
        });
        EXPECT_TRUE(progress.ended);
    }
}

// A node is out as soon as one operation of one thread has failed, without a barrier: the finder
// passes it on, and the others fence it when they next post anything.
TEST(GasFence, OneFailedOperationVotesOut) {
    Cluster cluster(3, 500ms, 2);
    Progress progress;
    cluster.run([&](gas::Node& node, std::size_t i) {
        publish_word(node, i);
        const auto own = word_of(node, i);
        const auto away = word_of(node, kAway);
        const auto next = word_of(node, i == 1 ? 3 : 1);
        ++progress.ready;
        if (i == kAway) {
            while (progress.ready < kNodes) sleep_for(1ms);
            cluster.hold(kAway, true);
            while (progress.told + 1 < kNodes) sleep_for(10ms);
            cluster.hold(kAway, false);
            expect_outcast(node.write(next, Word{7}));
            progress.ended = true;
            return;
        }
        while (progress.ready < kNodes) sleep_for(1ms);
        sleep_for(10ms);
        // Only node 0 asks it, by its second thread; the others ask somebody else.
        if (i == 0) {
            EXPECT_FALSE(node.lanes(1).write(away, Word{1}).wait());
        }
        while (!node.lanes().is_lost(NodeId{kAway})) {
            ASSERT_TRUE(node.read(next));
            sleep_for(1ms);
        }
        ASSERT_TRUE(node.read(next));
        const auto asked = node.write(away, Word{2});
        ASSERT_FALSE(asked);
        EXPECT_NE(asked.error().why.find("node 2 is lost"), std::string::npos) << asked.error().why;
        ++progress.told;
        while (!progress.ended) sleep_for(10ms);
        EXPECT_EQ(node.read(own).value(), Word{0});
    });
    EXPECT_TRUE(progress.ended);
}

// A network that fails for a shorter time than `silence` only delays: nothing is lost, and what was
// asked meanwhile happens once.
TEST(GasFence, AShortOutageOnlyDelays) {
    for (const std::uint64_t seed : seeds(6)) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        Cluster cluster(seed, 30s);
        std::size_t ready = 0, ended = 0;
        cluster.run([&](gas::Node& node, std::size_t i) {
            const auto counter = node.share<nic<Word>>("counter").value();
            ASSERT_TRUE(node.barrier());
            ++ready;
            while (ready < kNodes) sleep_for(1ms);
            if (i == kAway) cluster.hold(kAway, true);
            const Instant until = node.loop().now() + 5s;
            if (i == 3) {
                while (node.loop().now() < until) sleep_for(10ms);
                cluster.hold(kAway, false);
            }
            for (int k = 0; k < 10; ++k) {
                const auto added = node.fetch_add(counter, 1);
                ASSERT_TRUE(added) << added.error().why;
            }
            const auto met = node.barrier();
            EXPECT_TRUE(met) << met.error().why;
            EXPECT_EQ(node.read(counter).value(), 10 * kNodes);
            EXPECT_TRUE(node.leave());
            ++ended;
        });
        EXPECT_EQ(ended, kNodes);
        if (testing::Test::HasFailure()) return;
    }
}

}  // namespace
}  // namespace feroce::sim::gas_fence
