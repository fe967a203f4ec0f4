#include "cli/web/graph.hpp"

#include <gtest/gtest.h>

namespace feroce::cli::graph_test {
namespace {

constexpr std::uint8_t kRts = 3, kErr = 6;
const Gid kHere = Gid::from_v4(0x7f00'0001);
const Gid kThere = Gid::from_v4(0x0a00'0007);

struct QpFacts {
    std::uint32_t pid, qpn, peer_qpn;
    Gid destination = kHere;
    std::uint8_t state = kRts;
    double sent = 0, received = 0;
};

void add(TopSample& sample, const QpFacts& facts) {
    TopQp& qp = sample.qps.emplace_back();
    qp.pid = facts.pid;
    qp.state.qpn = facts.qpn;
    qp.state.peer_qpn = facts.peer_qpn;
    qp.state.source = kHere;
    qp.state.destination = facts.destination;
    qp.state.state = facts.state;
    qp.sent_packets = facts.sent;
    qp.received_packets = facts.received;
}

void add_process(TopSample& sample, std::uint32_t pid) {
    sample.processes.emplace_back().pid = pid;
}

TEST(Graph, JoinsTheTwoEndsOfAConnection) {
    TopSample sample;
    add_process(sample, 1);
    add_process(sample, 2);
    add(sample, {.pid = 2, .qpn = 20, .peer_qpn = 10, .sent = 5, .received = 7});
    add(sample, {.pid = 1, .qpn = 10, .peer_qpn = 20, .sent = 7, .received = 5});
    const Json graph = graph_of(sample);
    EXPECT_EQ(graph["nodes"].size(), 2U);
    ASSERT_EQ(graph["edges"].size(), 1U);
    const Json& edge = graph["edges"][0];
    EXPECT_EQ(edge["from"], "pid 1");
    EXPECT_EQ(edge["to"], "pid 2");
    EXPECT_EQ(edge["queue_pairs"], 1);
    EXPECT_EQ(edge["failed"], 0);
    EXPECT_EQ(edge["there"], 7);
    EXPECT_EQ(edge["back"], 5);
}

TEST(Graph, CountsAConnectionOnceThatFailedAtBothEnds) {
    TopSample sample;
    add_process(sample, 1);
    add(sample, {.pid = 1, .qpn = 10, .peer_qpn = 11, .state = kErr});
    add(sample, {.pid = 1, .qpn = 11, .peer_qpn = 10, .state = kErr});
    add(sample, {.pid = 1, .qpn = 12, .peer_qpn = 13, .state = kErr});
    add(sample, {.pid = 1, .qpn = 13, .peer_qpn = 12});
    const Json graph = graph_of(sample);
    ASSERT_EQ(graph["edges"].size(), 1U);
    EXPECT_EQ(graph["edges"][0]["from"], graph["edges"][0]["to"]);
    EXPECT_EQ(graph["edges"][0]["queue_pairs"], 2);
    EXPECT_EQ(graph["edges"][0]["failed"], 2);
}

TEST(Graph, ShowsAnAddressWhereNoProcessIsSeen) {
    TopSample sample;
    add_process(sample, 1);
    add(sample, {.pid = 1, .qpn = 10, .peer_qpn = 20, .destination = kThere, .sent = 3});
    // The same numbers at another address are another queue pair's.
    add(sample, {.pid = 1, .qpn = 20, .peer_qpn = 10});
    const Json graph = graph_of(sample);
    EXPECT_EQ(graph["edges"].size(), 2U);
    EXPECT_EQ(graph["nodes"][0]["id"], "pid 1");
    EXPECT_EQ(graph["nodes"][1]["address"], "10.0.0.7");
}

TEST(Graph, LeavesOutQueuePairsThatAreNotConnected) {
    TopSample sample;
    add_process(sample, 1);
    add(sample, {.pid = 1, .qpn = 10, .peer_qpn = 0});
    EXPECT_EQ(graph_of(sample)["edges"].size(), 0U);
    EXPECT_EQ(graph_of(sample)["nodes"].size(), 1U);
}

TEST(Graph, KeepsWhatFailedAndWhatIsBusy) {
    TopSample sample;
    for (std::uint32_t i = 1; i <= 500; ++i) {
        add_process(sample, i);
        add(sample, {.pid = i, .qpn = i, .peer_qpn = i, .sent = static_cast<double>(i)});
    }
    sample.qps[0].state.state = kErr;
    const Json graph = graph_of(sample);
    EXPECT_EQ(graph["nodes"].size(), kGraphNodesMax);
    EXPECT_EQ(graph["nodes_more"], 500 - kGraphNodesMax);
    EXPECT_EQ(graph["edges_more"], 500 - kGraphNodesMax);
    EXPECT_EQ(graph["edges"][0]["from"], "pid 1") << "it failed";
    EXPECT_EQ(graph["edges"][1]["from"], "pid 500") << "the busiest";
}

}  // namespace
}  // namespace feroce::cli::graph_test
