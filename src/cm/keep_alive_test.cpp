// Two managers and a network that falls silent: who is asked, who is taken for dead, who is not.
#include <gtest/gtest.h>

#include <array>
#include <utility>

#include "cm/test_net.hpp"

namespace feroce::cm {
namespace {

constexpr Duration kKeepalive = 15s;
constexpr std::uint64_t kOurKind = std::uint64_t{kFeroceGuid} << 32 | 7;

class KeepAlive : public testing::Test {
protected:
    void connect(std::uint64_t guid_of_peer = kOurKind, Duration keepalive = kKeepalive) {
        us = &net.add(Gid::from_v4(0x0a00'0001), {.ca_guid = kOurKind, .keepalive = keepalive});
        peer = &net.add(Gid::from_v4(0x0a00'0002), {.ca_guid = guid_of_peer});
        ASSERT_TRUE(peer->manager.listen(net.now, {.service = kService}).has_value());
        const Result<CommId> made = us->manager.connect(net.now, us->connect_options(*peer, 0x101));
        ASSERT_TRUE(made.has_value());
        id = *made;
        net.run(net.now + 1s);
        ASSERT_EQ(us->manager.state(id), State::Established);
        began = net.now;
    }
    void go_silent() {
        net.fate = [](const Datagram&) { return Fate::Drop; };
    }

    Net net;
    Node* us = nullptr;
    Node* peer = nullptr;
    CommId id{};
    Instant began{};
};

TEST_F(KeepAlive, EachSideKeepsWhatADreqNeeds) {
    connect();
    const CommId theirs = peer->events.back().connection;
    ASSERT_EQ(us->bonds.size(), 1u);
    ASSERT_EQ(peer->bonds.size(), 1u);
    const Bond ours = us->bonds.begin()->second, other = peer->bonds.begin()->second;
    EXPECT_EQ(ours, (Bond{id, theirs, ours.remote_qpn, us->address(), peer->address()}));
    EXPECT_EQ(other, (Bond{theirs, id, Qpn{0x101}, peer->address(), us->address()}));
    // The peer's process dies, and another one that has read its bonds says so.
    Node& heir = net.add(Gid::from_v4(0x0a00'0003));
    heir.manager.bid_farewell(net.now, other);
    net.run(net.now + 3s);
    EXPECT_EQ(us->count(EventType::Disconnected, id), 1u);
    EXPECT_TRUE(us->bonds.empty());
    EXPECT_GE(net.count(wire::CmAttribute::Drep), 5u);
    EXPECT_EQ(heir.manager.next_wakeup(), kNever);
}

TEST_F(KeepAlive, AnEndThatWasSaidLeavesNoBond) {
    connect();
    ASSERT_TRUE(us->manager.disconnect(net.now, id).has_value());
    EXPECT_EQ(us->bonds.size(), 1u) << "the DREQ may be lost, and this process die";
    net.run(net.now + 1s);
    EXPECT_TRUE(us->bonds.empty());
    EXPECT_TRUE(peer->bonds.empty());
}

TEST_F(KeepAlive, ManyIdleConnectionsAreLookedAtTogether) {
    connect();
    for (std::uint32_t i = 1; i < 40; ++i) {
        ASSERT_TRUE(us->manager.connect(net.now, us->connect_options(*peer, 0x101 + i)));
        net.run(net.now + 77ms);
    }
    net.run(net.now + 10s);
    const Instant end = net.now + 30s;
    const std::size_t before = net.count(wire::CmAttribute::Alive);
    int wake_ups = 0;
    for (; us->manager.next_wakeup() < end; ++wake_ups) net.run(us->manager.next_wakeup());
    EXPECT_LE(wake_ups, 30);
    EXPECT_GE(net.count(wire::CmAttribute::Alive) - before, 40U * 2 * 4);  // Each with its answer.
    EXPECT_EQ(us->count(EventType::Disconnected, id), 0u);
}

// On one machine, whose clock they share.
TEST_F(KeepAlive, ManyProcessesHaveTheirTurnsAtDifferentMoments) {
    constexpr std::uint32_t kProcesses = 250, kParts = 25;
    connect();
    const Duration pace = kKeepalive / 15;
    std::vector<const Node*> nodes;
    for (std::uint32_t i = 0; i < kProcesses; ++i) {
        Node& node =
            net.add(Gid::from_v4(0x0a01'0000 + i), {.ca_guid = kOurKind, .keepalive = kKeepalive});
        ASSERT_TRUE(node.manager.connect(net.now, node.connect_options(*peer, 0x201 + i)));
        nodes.push_back(&node);
    }
    net.run(net.now + 1s);
    std::array<std::uint32_t, kParts> turns{};
    for (const Node* node : nodes) {
        const Instant turn = node->manager.next_wakeup();
        EXPECT_GT(turn, net.now + kKeepalive / 3 - 1s);
        EXPECT_LE(turn, net.now + kKeepalive / 3 + pace);
        ++turns[static_cast<std::size_t>(turn.time_since_epoch() % pace / (pace / kParts))];
    }
    // Ten in each, on average.
    EXPECT_LE(*std::max_element(turns.begin(), turns.end()), 30u);
    EXPECT_GE(*std::min_element(turns.begin(), turns.end()), 1u);
}

TEST_F(KeepAlive, ASilentPeerIsTakenForDead) {
    connect();
    go_silent();
    net.run(began + kKeepalive - 2s);
    EXPECT_EQ(us->count(EventType::Disconnected, id), 0u);
    net.run(began + kKeepalive + 3s);
    ASSERT_EQ(us->count(EventType::Disconnected, id), 1u);
    const auto ended = std::find_if(us->events.begin(), us->events.end(), [](const Seen& seen) {
        return seen.type == EventType::Disconnected;
    });
    EXPECT_TRUE(ended->timed_out);
    EXPECT_GE(net.count(wire::CmAttribute::Alive), 5u);
    EXPECT_EQ(us->silences, 1);
}

TEST_F(KeepAlive, AnIdlePeerAnswersAndIsKept) {
    connect();
    net.run(began + 10min);
    EXPECT_EQ(us->manager.state(id), State::Established);
    EXPECT_EQ(peer->events.back().type, EventType::Established);
    // A question every five seconds and its answer.
    EXPECT_GE(net.count(wire::CmAttribute::Alive), 200u);
    EXPECT_LE(net.count(wire::CmAttribute::Alive), 250u);
}

TEST_F(KeepAlive, LossIsNoDeath) {
    connect();
    net.fate = [](const Datagram& d) { return d.index % 4 < 2 ? Fate::Deliver : Fate::Drop; };
    net.run(began + 10min);
    EXPECT_EQ(us->manager.state(id), State::Established);
}

TEST_F(KeepAlive, WhileItsQueuePairHearsThePeerNobodyIsAsked) {
    connect();
    us->hears = true;
    go_silent();
    net.run(began + 10min);
    EXPECT_EQ(us->manager.state(id), State::Established);
    EXPECT_EQ(net.count(wire::CmAttribute::Alive), 0u);
}

TEST_F(KeepAlive, APeerThatHasForgottenSaysSo) {
    connect();
    go_silent();
    peer->lets_go = true;
    peer->manager.release(net.now, peer->events.back().connection);
    net.run(began + 4s);
    peer->manager.remove_address(peer->address());  // It has forgotten all.
    net.fate = [](const Datagram&) { return Fate::Deliver; };
    net.run(began + 7s);
    ASSERT_EQ(us->count(EventType::Disconnected, id), 1u);
    EXPECT_FALSE(us->events.back().timed_out);
}

// A peer of another maker: its queue pair is asked by ours, and its manager nothing.
constexpr std::uint64_t kForeign = 0x0002'c903'0000'0001;

TEST_F(KeepAlive, AForeignPeerThatAnswersIsKept) {
    connect(kForeign);
    us->question = Node::Question::Answered;
    net.run(began + 10min);
    EXPECT_EQ(us->manager.state(id), State::Established);
    EXPECT_EQ(net.count(wire::CmAttribute::Alive), 0u);
    // A question after five seconds; the answer is seen a while later.
    EXPECT_GE(us->questions, 80);
    EXPECT_LE(us->questions, 120);
    EXPECT_EQ(us->silences, 0);
}

TEST_F(KeepAlive, AForeignPeerThatIsSilentIsTakenForDead) {
    connect(kForeign);
    us->question = Node::Question::Unanswered;
    net.run(began + kKeepalive - 2s);
    EXPECT_EQ(us->count(EventType::Disconnected, id), 0u);
    net.run(began + kKeepalive + 3s);
    ASSERT_EQ(us->count(EventType::Disconnected, id), 1u);
    EXPECT_GE(us->questions, 5);
    EXPECT_EQ(us->silences, 1) << "its queue pair is told";
    EXPECT_EQ(net.count(wire::CmAttribute::Alive), 0u);
    const auto ended = std::find_if(us->events.begin(), us->events.end(), [](const Seen& seen) {
        return seen.type == EventType::Disconnected;
    });
    EXPECT_TRUE(ended->timed_out);
}

// Of a peer that is cut off one way only, both ends learn of the end.
TEST_F(KeepAlive, AForeignPeerThatStillHearsIsTold) {
    connect(kForeign);
    us->question = Node::Question::Unanswered;
    net.fate = [&](const Datagram& d) {
        return d.source == peer->address() ? Fate::Drop : Fate::Deliver;
    };
    const CommId theirs = peer->events.back().connection;
    net.run(began + kKeepalive + 3s);
    ASSERT_EQ(us->count(EventType::Disconnected, id), 1u);
    EXPECT_EQ(peer->count(EventType::Disconnected, theirs), 1u);
    EXPECT_EQ(net.count(wire::CmAttribute::Dreq), 1u);
    EXPECT_TRUE(peer->bonds.empty());
}

TEST_F(KeepAlive, OneAnswerToAForeignPeersManyQuestionsIsEnough) {
    connect(kForeign);
    for (int i = 0; i < 20; ++i) {
        us->question = Node::Question::Unanswered;
        net.run(net.now + kKeepalive - 4s);
        us->question = Node::Question::Answered;
        net.run(net.now + 4s);
    }
    EXPECT_EQ(us->manager.state(id), State::Established);
}

// It has work, whose retries tell, or is of a kind that cannot ask.
TEST_F(KeepAlive, WhileTheQueuePairCannotAskAForeignPeerIsNotBlamed) {
    connect(kForeign);
    net.run(began + 10min);
    EXPECT_EQ(us->manager.state(id), State::Established);
    us->question = Node::Question::Unanswered;  // The time before does not count.
    net.run(net.now + kKeepalive - 2s);
    EXPECT_EQ(us->manager.state(id), State::Established);
    net.run(net.now + kKeepalive);
    EXPECT_EQ(us->count(EventType::Disconnected, id), 1u);
}

TEST_F(KeepAlive, AForeignPeerIsNotAskedWhileItIsHeard) {
    connect(kForeign);
    us->hears = true;
    us->question = Node::Question::Unanswered;
    net.run(began + 10min);
    EXPECT_EQ(us->manager.state(id), State::Established);
    EXPECT_EQ(us->questions, 0);
}

TEST_F(KeepAlive, OffIsOff) {
    connect(kOurKind, Duration{});
    go_silent();
    net.run(began + 10min);
    EXPECT_EQ(us->manager.state(id), State::Established);
    EXPECT_EQ(us->manager.next_wakeup(), kNever);
}

TEST_F(KeepAlive, WhoSleptItselfAsksBeforeItJudges) {
    connect();
    // This process was stopped for a minute: nothing was asked meanwhile.
    net.now += 60s;
    net.run(net.now + 1min);
    EXPECT_EQ(us->manager.state(id), State::Established);
}

// Whoever knows ids and address could send a DREQ as well; nobody else changes anything.
TEST_F(KeepAlive, StrangersAreNotBelieved) {
    connect();
    const Gid stranger = Gid::from_v4(0x0a00'0003);
    const CommId theirs = peer->events.back().connection;
    const auto tell = [&](const Gid& source, const auto& message) {
        us->manager.receive(net.now, source, us->address(), wire::make_cm_mad(1, message));
    };
    // Unasked.
    tell(peer->address(), wire::CmDrep{.local_id = theirs, .remote_id = id});
    EXPECT_EQ(us->manager.state(id), State::Established);
    go_silent();
    net.run(began + 6s);  // Asked.
    tell(stranger, wire::CmDrep{.local_id = theirs, .remote_id = id});
    tell(peer->address(), wire::CmDrep{.local_id = {theirs.raw + 1}, .remote_id = id});
    EXPECT_EQ(us->manager.state(id), State::Established);
    for (int i = 0; i < 20; ++i) {
        tell(stranger, wire::CmAlive{.local_id = theirs, .remote_id = id, .answer = true});
        net.run(net.now + 1s);
    }
    EXPECT_EQ(us->count(EventType::Disconnected, id), 1u);
}

// What the network says of the peer's address: a hint that anybody can forge.
class Hints : public KeepAlive {
protected:
    static constexpr Duration kLong = 1h;

    void connect_for_long(std::uint64_t guid_of_peer = kOurKind) { connect(guid_of_peer, kLong); }
    void hint(bool refused = true) {
        Suspects peers;
        peers.add({peer->address(), refused});
        us->manager.suspect(net.now, peers);
    }
    // Nobody is left at the peer's: its machine refuses whatever is sent there.
    void refuse_all() {
        net.fate = [this](const Datagram& d) {
            refused_ |= d.destination == peer->address();
            return Fate::Drop;
        };
    }
    void run_refused(Instant until) {
        while (net.now < until) {
            net.run(net.now + 10ms);
            if (std::exchange(refused_, false)) hint();
        }
    }
    std::size_t asked() const { return net.count(wire::CmAttribute::Alive); }
    std::size_t ends() const { return us->count(EventType::Disconnected, id); }

private:
    bool refused_ = false;
};

TEST_F(Hints, ThePeerIsAskedAtOnce) {
    connect_for_long();
    net.run(began + 1s);
    ASSERT_EQ(asked(), 0u);
    hint(false);
    EXPECT_EQ(us->manager.next_wakeup(), net.now);
    net.run(net.now + 10ms);
    EXPECT_EQ(asked(), 2u) << "a question and its answer";
    net.run(net.now + 10min);
    EXPECT_EQ(asked(), 2u);
    EXPECT_EQ(us->manager.state(id), State::Established);
}

// However the network insists.
TEST_F(Hints, APeerThatAnswersIsKept) {
    connect_for_long();
    for (int i = 0; i < 60'000; ++i) {
        hint(i % 3 != 0);
        net.run(net.now + 1ms);
    }
    EXPECT_EQ(us->manager.state(id), State::Established);
    EXPECT_LE(asked(), 2u * 13) << "one question in 5 s";
    EXPECT_GE(asked(), 2u * 12);
}

TEST_F(Hints, APeerThatIsRefusedAndDoesNotAnswerIsTakenForDead) {
    connect_for_long();
    refuse_all();
    hint();
    run_refused(began + 4s);
    EXPECT_EQ(ends(), 0u) << "it may be late";
    run_refused(began + 6s);
    EXPECT_EQ(ends(), 1u);
    EXPECT_EQ(asked(), 8u);
    EXPECT_EQ(us->silences, 1);
    EXPECT_TRUE(us->bonds.empty());
}

TEST_F(Hints, OneAnswerAmongManyRefusalsIsEnough) {
    connect_for_long();
    refuse_all();
    hint();
    run_refused(began + 4s);
    ASSERT_EQ(ends(), 0u);
    net.fate = [](const Datagram&) { return Fate::Deliver; };
    net.run(began + 10min);
    EXPECT_EQ(us->manager.state(id), State::Established);
}

// The questions were lost, but nobody refused them.
TEST_F(Hints, OneRefusalAndSilenceAreNoDeathYet) {
    connect_for_long();
    go_silent();
    hint();
    net.run(began + 10min);
    EXPECT_EQ(us->manager.state(id), State::Established);
    EXPECT_EQ(ends(), 0u);
    EXPECT_LE(asked(), 11u) << "after eight, at the usual pace";
    net.run(began + kLong + kLong / 9);
    EXPECT_EQ(ends(), 1u);
}

// A router has no route for a moment: the peer is asked, and not in a hurry.
TEST_F(Hints, ARouterDoesNotSpeakForThePeer) {
    connect_for_long();
    go_silent();
    for (int i = 0; i < 600; ++i) {
        hint(false);
        net.run(net.now + 100ms);
    }
    EXPECT_EQ(us->manager.state(id), State::Established);
    EXPECT_LE(asked(), 13u);
    EXPECT_EQ(ends(), 0u);
}

// As where a machine is down and a program goes on trying to connect to it.
TEST_F(Hints, DoNotPutOffTheEndOfASilentPeer) {
    connect_for_long();
    go_silent();
    while (net.now < began + kLong + kLong / 8) {
        hint(false);
        net.run(net.now + 5s);
    }
    EXPECT_EQ(ends(), 1u);
}

TEST_F(Hints, OnlyConnectionsToThatPeerAreAsked) {
    connect_for_long();
    Suspects others;
    for (std::uint32_t i = 0; i < 2 * Suspects::kMax; ++i)
        others.add({Gid::from_v4(0x0a01'0000 + i), true});
    EXPECT_EQ(others.all().size(), Suspects::kMax);
    us->manager.suspect(net.now, others);
    net.run(net.now + 10s);
    EXPECT_EQ(asked(), 0u);
    EXPECT_GT(us->manager.next_wakeup(), net.now + 10min);
}

// The whole table is looked at for hints, so that must not happen for each.
TEST_F(Hints, AreGathered) {
    connect_for_long();
    hint(false);
    net.run(net.now + 1ms);
    hint(false);
    EXPECT_EQ(us->manager.next_wakeup(), net.now + 99ms);
}

TEST_F(Hints, AForeignPeersQueuePairIsAsked) {
    connect_for_long(kForeign);
    us->question = Node::Question::Answered;
    hint();
    net.run(net.now + 10min);
    EXPECT_EQ(us->questions, 1);
    EXPECT_EQ(us->manager.state(id), State::Established);
    us->question = Node::Question::Unanswered;
    const Instant doubted = net.now;
    while (net.now < doubted + 6s) {
        hint();
        net.run(net.now + 100ms);
    }
    EXPECT_EQ(ends(), 1u);
    EXPECT_EQ(us->questions, 9);
}

TEST_F(Hints, AQueuePairWithWorkIsLeftToItsRetries) {
    connect_for_long(kForeign);
    us->question = Node::Question::NotAsked;
    for (int i = 0; i < 600; ++i) {
        hint();
        net.run(net.now + 100ms);
    }
    EXPECT_EQ(us->manager.state(id), State::Established);
}

TEST_F(Hints, WithoutKeepAliveTheyAreNotListenedTo) {
    connect(kOurKind, Duration{});
    refuse_all();
    hint();
    run_refused(began + 10s);
    EXPECT_EQ(us->manager.state(id), State::Established);
    EXPECT_EQ(asked(), 0u);
    EXPECT_EQ(us->manager.next_wakeup(), kNever);
}

// With the usual time: the first question is refused, and the others follow in a hurry.
TEST_F(Hints, ARefusedQuestionHurriesTheNext) {
    connect();
    refuse_all();
    run_refused(began + kKeepalive - 3s);
    EXPECT_EQ(ends(), 1u);
}

}  // namespace
}  // namespace feroce::cm
