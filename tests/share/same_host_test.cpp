// Processes that share the port send to each other by rings in shared memory. What they rely on is
// as over UDP: right bytes, order, a neighbour that is stopped, killed or replaced.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "ring.hpp"

namespace feroce::share {
namespace {

using std::chrono::seconds;

class SameHost : public testing::Test {
protected:
    void SetUp() override {
        if (::geteuid() == 0) enter_private_network();
    }
    void TearDown() override {
        for (const pid_t pid : pids) ::kill(pid, SIGKILL);
        for (const pid_t pid : pids) ::waitpid(pid, nullptr, 0);
    }

    void start(Board& board, const std::function<bool(std::uint32_t)>& prepare) {
        for (std::uint32_t i = 0; i < board.size; ++i)
            pids.push_back(start_member(board, i, [&, i] { return prepare(i); }));
    }
    static bool advance(Board& board, std::uint32_t rounds) {
        std::vector<std::uint32_t> goals;
        each_link(board, [&](LinkReport& link) { goals.push_back(link.rounds + rounds); });
        return await(seconds(60), [&] {
            bool all = true;
            std::size_t i = 0;
            each_link(board, [&](LinkReport& link) {
                all &= link.rounds >= goals[i++] || link.status != 0 || link.wrong_bytes;
            });
            return all;
        });
    }
    static void expect_no_trouble(Board& board) {
        each_link(board, [](LinkReport& link) {
            EXPECT_EQ(link.status, 0);
            EXPECT_FALSE(link.wrong_bytes);
        });
    }
    static void each_link(Board& board, const std::function<void(LinkReport&)>& look) {
        for (std::uint32_t m = 0; m < board.size; ++m)
            for (LinkReport& link : board.members[m].links) look(link);
    }
    void stop(Board& board) {
        board.stop = true;
        for (const pid_t pid : pids) EXPECT_EQ(exit_status(pid), 0);
        pids.clear();
    }
    // What `feroce stat` says of a process.
    static std::uint64_t counter(pid_t pid, const std::string& name) {
        const std::string all = output_of(FEROCE_PROGRAM " stat");
        const std::size_t begin = all.find(" pid " + std::to_string(pid) + " ");
        EXPECT_NE(begin, std::string::npos) << pid << " in:\n" << all;
        if (begin == std::string::npos) return 0;
        const std::string line = all.substr(begin, all.find('\n', begin) - begin);
        const std::size_t at = line.find(" " + name + " ");  // Those at 0 are left out.
        return at == std::string::npos ? 0 : std::stoull(line.substr(at + name.size() + 2));
    }

    std::vector<pid_t> pids;
};

const auto kAsTheyAre = [](std::uint32_t) { return true; };

TEST_F(SameHost, PacketsGoByRings) {
    Board& board = Board::make(3);
    start(board, kAsTheyAre);
    ASSERT_TRUE(advance(board, 20));
    for (const pid_t pid : pids) {
        EXPECT_GT(counter(pid, "ring_sent_pkts"), 0U);
        EXPECT_GT(counter(pid, "ring_rcvd_pkts"), 0U);
        EXPECT_EQ(counter(pid, "ring_full_pkts"), 0U);
    }
    const std::string connections = output_of(FEROCE_PROGRAM " res qp");
    EXPECT_NE(connections.find(" by ring"), std::string::npos) << connections;
    expect_no_trouble(board);
    stop(board);
}

TEST_F(SameHost, FaultsOfCallsLeaveItOnRings) {
    Board& board = Board::make(2);
    start(board, [](std::uint32_t) {
        return ::setenv("FEROCE_FAULTS", "ibv_create_ah:EINVAL@1,seed=3", 1) == 0;
    });
    ASSERT_TRUE(advance(board, 20));
    for (const pid_t pid : pids) EXPECT_GT(counter(pid, "ring_sent_pkts"), 0U);
    expect_no_trouble(board);
    stop(board);
}

TEST_F(SameHost, ByUdpIfOneOfTheTwoSaysSo) {
    for (const char* setting : {"FEROCE_SAMEHOST=off", "FEROCE_FAULTS=drop=0.0,seed=1"}) {
        Board& board = Board::make(3);
        start(board, [setting](std::uint32_t i) {
            return i != 0 || ::putenv(const_cast<char*>(setting)) == 0;
        });
        ASSERT_TRUE(advance(board, 20));
        EXPECT_EQ(counter(pids[0], "ring_sent_pkts"), 0U) << setting;
        EXPECT_EQ(counter(pids[0], "ring_rcvd_pkts"), 0U) << setting;
        EXPECT_GT(counter(pids[1], "ring_sent_pkts"), 0U) << setting;
        expect_no_trouble(board);
        stop(board);
    }
}

// One may have no memory for rings, or so little that none of them grows: the others send to it by
// rings, and it goes on by UDP.
TEST_F(SameHost, BeyondTheMemoryThatRingsMayHaveItGoesByUdp) {
    for (const char* setting : {"FEROCE_RING_MEMORY=0", "FEROCE_RING_MEMORY=1"}) {
        const bool none = std::string(setting).ends_with("=0");
        Board& board = Board::make(3);
        start(board, [setting](std::uint32_t i) {
            return i != 0 || ::putenv(const_cast<char*>(setting)) == 0;
        });
        ASSERT_TRUE(advance(board, 20)) << setting;
        EXPECT_EQ(counter(pids[0], "ring_sent_pkts") == 0, none);
        EXPECT_EQ(counter(pids[0], "ring_refused") > 0, none);
        EXPECT_EQ(counter(pids[0], "ring_memory_bytes") == 0, none);
        EXPECT_LE(counter(pids[0], "ring_memory_bytes"), 1U << 20);
        EXPECT_GT(counter(pids[0], "ring_rcvd_pkts"), 0U) << setting;
        EXPECT_GT(counter(pids[1], "ring_memory_bytes"), 0U) << setting;
        expect_no_trouble(board);
        stop(board);
    }
}

TEST_F(SameHost, ASettingThatIsNotUnderstoodKeepsTheDeviceClosed) {
    Board& board = Board::make(1);
    static char setting[] = "FEROCE_SAMEHOST=maybe";
    start(board, [](std::uint32_t) { return ::putenv(setting) == 0; });
    EXPECT_EQ(exit_status(pids[0]), 2);
    pids.clear();
}

TEST_F(SameHost, AStoppedNeighbourGoesOnLater) {
    Board& board = Board::make(3);
    start(board, kAsTheyAre);
    ASSERT_TRUE(advance(board, 10));
    ASSERT_EQ(::kill(pids[1], SIGSTOP), 0);
    ::poll(nullptr, 0, 300);  // For longer than early probes wait, less than the retries.
    ASSERT_EQ(::kill(pids[1], SIGCONT), 0);
    ASSERT_TRUE(advance(board, 10));
    expect_no_trouble(board);
    stop(board);
}

// Slots are taken again and again by other processes, with rings to all that were there before.
TEST_F(SameHost, NeighboursThatAreKilledAndReplaced) {
    Board& lasting = Board::make(3);
    start(lasting, kAsTheyAre);
    ASSERT_TRUE(advance(lasting, 5));
    for (int round = 0; round < 12; ++round) {
        Board& board = Board::make(2);
        std::vector<pid_t> victims;
        for (std::uint32_t i = 0; i < board.size; ++i) victims.push_back(start_member(board, i));
        EXPECT_TRUE(advance(board, 3)) << round;
        expect_no_trouble(board);
        for (const pid_t pid : victims) ::kill(pid, SIGKILL);
        for (const pid_t pid : victims) ::waitpid(pid, nullptr, 0);
    }
    ASSERT_TRUE(advance(lasting, 5));
    expect_no_trouble(lasting);
    stop(lasting);
}

constexpr std::uint32_t kBurst = 8, kBursts = 300, kMessage = 64;

bool connect_unreliably(const Endpoint& own, const Endpoint& peer) {
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = IBV_MTU_1024;
    a.dest_qp_num = peer.qp->qp_num;
    a.ah_attr.is_global = 1;
    a.ah_attr.port_num = 1;
    a.ah_attr.grh.hop_limit = 64;
    const int to_rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if (own.to_init() != 0 || ibv_query_gid(own.context, 1, 0, &a.ah_attr.grh.dgid) != 0 ||
        ibv_modify_qp(own.qp, &a, to_rtr) != 0)
        return false;
    a = {};
    a.qp_state = IBV_QPS_RTS;
    return ibv_modify_qp(own.qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0;
}

// Sends numbered messages in bursts; true if they come in order, and none is missing.
bool come_in_order(Endpoint& from, Endpoint& to) {
    const auto slot_of = [](std::uint32_t i) { return std::size_t{i % kBurst} * kMessage; };
    for (std::uint32_t i = 0; i < kBurst; ++i) to.post_receive(slot_of(i), kMessage);
    for (std::uint32_t first = 0; first < kBurst * kBursts; first += kBurst) {
        for (std::uint32_t i = first; i < first + kBurst; ++i) {
            std::memcpy(from.memory.data() + slot_of(i), &i, sizeof i);
            if (from.post(IBV_WR_SEND, from.sge(slot_of(i), kMessage), 0, 0) != 0) return false;
        }
        for (std::uint32_t i = first; i < first + kBurst; ++i) {
            std::uint32_t got = 0;
            if (from.completion().status != IBV_WC_SUCCESS) return false;
            if (to.completion().status != IBV_WC_SUCCESS) return false;
            std::memcpy(&got, to.memory.data() + slot_of(i), sizeof got);
            if (got != i || to.post_receive(slot_of(i), kMessage) != 0) return false;
        }
    }
    return true;
}

// Unreliable, so that what is overtaken is lost: the first messages go by UDP, the rest by a ring.
TEST_F(SameHost, NothingIsOvertakenWhenTheRingBegins) {
    const pid_t child = ::fork();
    if (child == 0) {
        ibv_context* context = verbs::open_loopback();
        if (context == nullptr) ::_exit(2);
        Endpoint from(context, IBV_QPT_UC), to(context, IBV_QPT_UC);
        if (!connect_unreliably(from, to) || !connect_unreliably(to, from)) ::_exit(3);
        ::_exit(come_in_order(from, to) ? 0 : 1);
    }
    EXPECT_EQ(exit_status(child), 0);
}

}  // namespace
}  // namespace feroce::share
