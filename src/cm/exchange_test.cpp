// Two managers and a network that loses, repeats and reorders: whole connections, with every
// combination of fates for the first datagrams, and with one kind of message that never arrives.
#include <gtest/gtest.h>

#include <set>

#include "cm/test_net.hpp"

namespace feroce::cm {
namespace {

using wire::CmAttribute;

const Gid kA = Gid::from_v4(0x0a000001), kB = Gid::from_v4(0x0a000002);

// A pair of nodes of which B listens.
struct Pair {
    Net net;
    Node& a = net.add(kA);
    Node& b = net.add(kB);

    Pair() { ASSERT(b.manager.listen(net.now, {.service = kService})); }

    CommId connect() {
        const auto id = a.manager.connect(net.now, a.connect_options(b, 0x11));
        ASSERT(id);
        return *id;
    }
    void lose_always(CmAttribute attribute) {
        net.fate = [=](const Datagram& d) {
            return d.attribute() == attribute ? Fate::Drop : Fate::Deliver;
        };
    }
    static std::vector<EventType> types(const Node& node) {
        std::vector<EventType> types;
        for (const Seen& seen : node.events) types.push_back(seen.type);
        return types;
    }
    // After everything was released and all timers have run out nothing may be left.
    void expect_no_leak() {
        for (Node* node : {&a, &b}) {
            for (const Seen& seen : node->events) node->manager.release(net.now, seen.connection);
        }
        net.fate = [](const Datagram&) { return Fate::Deliver; };
        net.run();
        for (Node* node : {&a, &b}) {
            EXPECT_EQ(node->manager.connections(), 0u);
            EXPECT_EQ(node->manager.next_wakeup(), kNever);
        }
    }
};

using Events = std::vector<EventType>;
const Events kActiveLife{EventType::ConnectResponse, EventType::Disconnected,
                         EventType::TimewaitExit};
const Events kPassiveLife{EventType::ConnectRequest, EventType::Established,
                          EventType::Disconnected, EventType::TimewaitExit};

TEST(Exchange, WithoutLossEveryMessageGoesOnce) {
    Pair pair;
    pair.a.hangs_up = true;
    pair.connect();
    pair.net.run();
    EXPECT_EQ(Pair::types(pair.a), kActiveLife);
    EXPECT_EQ(Pair::types(pair.b), kPassiveLife);
    const std::vector<CmAttribute> expected{CmAttribute::Req, CmAttribute::Rep, CmAttribute::Rtu,
                                            CmAttribute::Dreq, CmAttribute::Drep};
    ASSERT_EQ(pair.net.sent.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i)
        EXPECT_EQ(pair.net.sent[i].attribute(), expected[i]);
    pair.expect_no_leak();
}

// Who ends the connection: A right after its RTU, B as soon as it is established, or both.
struct Enders {
    bool a, b;
};

void check_fates(std::size_t code, std::size_t datagrams, Enders enders) {
    std::vector<Fate> fates;
    for (std::size_t i = 0; i < datagrams; ++i, code /= 5)
        fates.push_back(static_cast<Fate>(code % 5));
    Pair pair;
    pair.net.fate = [&](const Datagram& d) {
        return d.index < fates.size() ? fates[d.index] : Fate::Deliver;
    };
    pair.a.hangs_up = enders.a;
    pair.b.hangs_up = enders.b;
    pair.connect();
    pair.net.run();
    EXPECT_EQ(Pair::types(pair.a), kActiveLife);
    EXPECT_EQ(Pair::types(pair.b), kPassiveLife);
    for (const Node* node : {&pair.a, &pair.b})
        for (const Seen& seen : node->events) EXPECT_FALSE(seen.timed_out);
    pair.expect_no_leak();
}

class EveryFate : public testing::TestWithParam<Enders> {};

TEST_P(EveryFate, OfTheFirstSixDatagramsIsSurvived) {
    constexpr std::size_t kDatagrams = 6, kCodes = 5 * 5 * 5 * 5 * 5 * 5;
    for (std::size_t code = 0; code < kCodes; ++code) {
        SCOPED_TRACE(code);
        check_fates(code, kDatagrams, GetParam());
        if (HasFailure()) return;
    }
}

INSTANTIATE_TEST_SUITE_P(Exchange, EveryFate,
                         testing::Values(Enders{true, false}, Enders{false, true},
                                         Enders{true, true}),
                         [](const auto& test) {
                             return std::string(test.param.a ? "ActiveEnds" : "") +
                                    (test.param.b ? "PassiveEnds" : "");
                         });

// A refusal under every combination of fates reaches the active side.
TEST(Exchange, ARefusalSurvivesEveryFateOfTheFirstFiveDatagrams) {
    for (std::size_t code = 0; code < 5 * 5 * 5 * 5 * 5; ++code) {
        SCOPED_TRACE(code);
        Pair pair;
        pair.b.rejects = true;
        pair.net.fate = [&](const Datagram& d) {
            std::size_t rest = code;
            for (std::size_t i = 0; i < d.index && rest != 0; ++i) rest /= 5;
            return static_cast<Fate>(rest % 5);
        };
        pair.connect();
        pair.net.run();
        ASSERT_EQ(Pair::types(pair.a), Events{EventType::Rejected});
        EXPECT_EQ(pair.a.events[0].reason, RejectReason::ConsumerReject);
        ASSERT_EQ(Pair::types(pair.b), Events{EventType::ConnectRequest});
        pair.expect_no_leak();
    }
}

TEST(Exchange, AServiceResolutionSurvivesEveryFateOfTheFirstFiveDatagrams) {
    for (std::size_t code = 0; code < 5 * 5 * 5 * 5 * 5; ++code) {
        SCOPED_TRACE(code);
        Pair pair;
        pair.net.fate = [&](const Datagram& d) {
            std::size_t rest = code;
            for (std::size_t i = 0; i < d.index && rest != 0; ++i) rest /= 5;
            return static_cast<Fate>(rest % 5);
        };
        const auto id = pair.a.manager.sidr_request(
            pair.net.now, {.path = pair.a.connect_options(pair.b, 0).path, .service = kService});
        ASSERT_TRUE(id);
        pair.net.run();
        ASSERT_EQ(Pair::types(pair.a), Events{EventType::SidrResponse});
        EXPECT_EQ(pair.a.events[0].sidr_status, SidrStatus::Success);
        EXPECT_EQ(pair.a.events[0].peer.qpn.raw, 0x800u);
        ASSERT_EQ(Pair::types(pair.b), Events{EventType::SidrRequest});
        pair.expect_no_leak();
    }
}

TEST(Exchange, ReqNeverArrives) {
    Pair pair;
    pair.lose_always(CmAttribute::Req);
    pair.connect();
    pair.net.run();
    EXPECT_EQ(Pair::types(pair.a), Events{EventType::Unreachable});
    EXPECT_TRUE(pair.b.events.empty());
    EXPECT_EQ(pair.net.count(CmAttribute::Req), 16u);  // Once, and 15 retries.
    pair.expect_no_leak();
}

TEST(Exchange, RepNeverArrives) {
    Pair pair;
    pair.lose_always(CmAttribute::Rep);
    pair.connect();
    pair.net.run();
    EXPECT_EQ(Pair::types(pair.a), Events{EventType::Unreachable});
    // Which comes first, the active side's REJ or the own timeout, is a matter of microseconds.
    ASSERT_EQ(pair.b.events.size(), 2u);
    EXPECT_EQ(pair.b.events[0].type, EventType::ConnectRequest);
    EXPECT_TRUE(pair.b.events[1].type == EventType::Unreachable ||
                pair.b.events[1].reason == RejectReason::Timeout);
    pair.expect_no_leak();
}

TEST(Exchange, RtuNeverArrives) {
    Pair pair;
    pair.lose_always(CmAttribute::Rtu);
    pair.connect();
    pair.net.run();
    // The passive side never hears that it was established, gives up and says so.
    EXPECT_EQ(Pair::types(pair.a), kActiveLife);
    EXPECT_EQ(Pair::types(pair.b), (Events{EventType::ConnectRequest, EventType::Unreachable}));
    EXPECT_EQ(pair.net.count(CmAttribute::Rep), 16u);
    EXPECT_EQ(pair.net.count(CmAttribute::Rtu), 16u);  // Every repeated REP is answered.
    pair.expect_no_leak();
}

TEST(Exchange, DreqNeverArrives) {
    Pair pair;
    pair.lose_always(CmAttribute::Dreq);
    pair.a.hangs_up = true;
    const CommId id = pair.connect();
    pair.net.run();
    EXPECT_EQ(Pair::types(pair.a), kActiveLife);
    EXPECT_TRUE(pair.a.events[1].timed_out);
    EXPECT_EQ(pair.net.count(CmAttribute::Dreq), 8u);
    EXPECT_EQ(pair.a.manager.state(id), State::Closed);
    EXPECT_EQ(Pair::types(pair.b), (Events{EventType::ConnectRequest, EventType::Established}));
    // B ends it later: A has forgotten the connection and agrees.
    pair.net.fate = [](const Datagram&) { return Fate::Deliver; };
    pair.a.manager.release(pair.net.now, id);
    ASSERT_TRUE(pair.b.manager.disconnect(pair.net.now, pair.b.events[0].connection));
    pair.net.run();
    EXPECT_EQ(Pair::types(pair.b), kPassiveLife);
    EXPECT_FALSE(pair.b.events[2].timed_out);
    pair.expect_no_leak();
}

TEST(Exchange, DrepNeverArrives) {
    Pair pair;
    pair.lose_always(CmAttribute::Drep);
    pair.a.hangs_up = true;
    pair.connect();
    pair.net.run();
    EXPECT_EQ(Pair::types(pair.a), kActiveLife);
    EXPECT_TRUE(pair.a.events[1].timed_out);
    EXPECT_EQ(Pair::types(pair.b), kPassiveLife);
    EXPECT_FALSE(pair.b.events[2].timed_out);
    EXPECT_EQ(pair.net.count(CmAttribute::Drep), 8u);
    pair.expect_no_leak();
}

TEST(Exchange, RejNeverArrives) {
    Pair pair;
    pair.lose_always(CmAttribute::Rej);
    pair.b.rejects = true;
    pair.b.lets_go = true;
    pair.connect();
    pair.net.run();
    EXPECT_EQ(Pair::types(pair.a), Events{EventType::Unreachable});
    // While B remembers the request it repeats its REJ instead of asking its user again.
    const std::size_t asked = pair.b.events.size();
    EXPECT_LT(asked, pair.net.count(CmAttribute::Req));
    pair.expect_no_leak();
}

TEST(Exchange, SidrAnswersNeverArrive) {
    Pair pair;
    pair.lose_always(CmAttribute::SidrRep);
    ASSERT_TRUE(pair.a.manager.sidr_request(
        pair.net.now, {.path = pair.a.connect_options(pair.b, 0).path, .service = kService}));
    pair.net.run();
    EXPECT_EQ(Pair::types(pair.a), Events{EventType::Unreachable});
    EXPECT_EQ(pair.net.count(CmAttribute::SidrReq), 16u);
    pair.expect_no_leak();
}

TEST(Exchange, BothEndAtTheSameMoment) {
    Pair pair;
    const CommId id = pair.connect();
    pair.net.run();
    ASSERT_EQ(pair.b.events.size(), 2u);
    ASSERT_TRUE(pair.a.manager.disconnect(pair.net.now, id));
    ASSERT_TRUE(pair.b.manager.disconnect(pair.net.now, pair.b.events[0].connection));
    pair.net.run();
    EXPECT_EQ(Pair::types(pair.a), kActiveLife);
    EXPECT_EQ(Pair::types(pair.b), kPassiveLife);
    EXPECT_EQ(pair.net.count(CmAttribute::Dreq), 2u);
    EXPECT_EQ(pair.net.count(CmAttribute::Drep), 2u);
    pair.expect_no_leak();
}

TEST(Exchange, SimultaneousConnectsAreTwoConnections) {
    Pair pair;
    ASSERT_TRUE(pair.a.manager.listen(pair.net.now, {.service = kService}));
    const auto from_a = pair.a.manager.connect(pair.net.now, pair.a.connect_options(pair.b, 0x21));
    const auto from_b = pair.b.manager.connect(pair.net.now, pair.b.connect_options(pair.a, 0x22));
    ASSERT_TRUE(from_a && from_b);
    pair.net.run();
    for (const Node* node : {&pair.a, &pair.b}) {
        const std::vector<EventType> types = Pair::types(*node);
        EXPECT_EQ(std::count(types.begin(), types.end(), EventType::ConnectRequest), 1);
        EXPECT_EQ(std::count(types.begin(), types.end(), EventType::ConnectResponse), 1);
        EXPECT_EQ(std::count(types.begin(), types.end(), EventType::Established), 1);
        EXPECT_EQ(types.size(), 3u);
    }
    pair.expect_no_leak();
}

TEST(Exchange, ANodeConnectsToItself) {
    Net net;
    Node& node = net.add(kA);
    ASSERT_TRUE(node.manager.listen(net.now, {.service = kService}));
    const auto id = node.manager.connect(net.now, node.connect_options(node, 0x31));
    ASSERT_TRUE(id);
    net.run();
    EXPECT_EQ(node.manager.connections(), 2u);
    EXPECT_EQ(node.events.size(), 3u);
    ASSERT_TRUE(node.manager.disconnect(net.now, *id));
    net.run();
    for (const Seen& seen : std::vector(node.events))
        node.manager.release(net.now, seen.connection);
    net.run();
    EXPECT_EQ(node.manager.connections(), 0u);
}

TEST(Exchange, AReleasedConnectionIsEndedWithoutFurtherEvents) {
    // Release at every millisecond of the exchange, by either side: the other one hears of it.
    for (int after = 0; after < 8; ++after) {
        for (const bool by_a : {true, false}) {
            SCOPED_TRACE(after);
            Pair pair;
            const CommId id = pair.connect();
            pair.net.run(pair.net.now + after * 1ms);
            Node& leaver = by_a ? pair.a : pair.b;
            Node& other = by_a ? pair.b : pair.a;
            if (leaver.events.empty() && !by_a) continue;
            const std::size_t told = leaver.events.size();
            leaver.manager.release(pair.net.now, by_a ? id : pair.b.events[0].connection);
            pair.net.run();
            EXPECT_EQ(leaver.events.size(), told);
            ASSERT_FALSE(other.events.empty());
            const EventType last = other.events.back().type;
            EXPECT_TRUE(last == EventType::Rejected || last == EventType::TimewaitExit)
                << to_string(last);
            pair.expect_no_leak();
        }
    }
}

// What a life may be, as far as it got.
void expect_orderly(const Node& node, CommId id) {
    const std::size_t ends = node.count(EventType::Rejected, id) +
                             node.count(EventType::Unreachable, id) +
                             node.count(EventType::Disconnected, id);
    EXPECT_EQ(ends, 1u);
    EXPECT_LE(node.count(EventType::Established, id), 1u);
    EXPECT_LE(node.count(EventType::ConnectResponse, id), 1u);
    EXPECT_EQ(node.count(EventType::TimewaitExit, id), node.count(EventType::Disconnected, id));
}

TEST(Exchange, StormsWithLossEndWithAReasonAndWithoutALeak) {
    std::size_t established = 0;
    for (std::uint64_t seed = 1; seed <= 100; ++seed) {
        SCOPED_TRACE(seed);
        Pair pair;
        ASSERT_TRUE(pair.a.manager.listen(pair.net.now, {.service = kService}));
        Prng prng(seed);
        pair.net.fate = [&](const Datagram&) {
            if (prng.chance(0.2)) return Fate::Drop;
            return static_cast<Fate>(prng.chance(0.2) ? 2 + prng.below(3) : 0);
        };
        for (Node* node : {&pair.a, &pair.b}) node->hangs_up = node->lets_go = true;
        std::vector<std::pair<Node*, CommId>> made;
        for (std::uint32_t i = 0; i < 20; ++i) {
            Node& from = i % 2 == 0 ? pair.a : pair.b;
            Node& to = i % 2 == 0 ? pair.b : pair.a;
            // Several in a row share their queue pair's number, so stale ones occur.
            const auto id =
                from.manager.connect(pair.net.now, from.connect_options(to, 0x40 + i / 3));
            ASSERT_TRUE(id);
            made.emplace_back(&from, *id);
            pair.net.run(pair.net.now + prng.below(3000) * 1ms);
        }
        pair.net.run();
        for (const auto& [node, id] : made) {
            const std::size_t ends = node->count(EventType::Rejected, id) +
                                     node->count(EventType::Unreachable, id) +
                                     node->count(EventType::Disconnected, id);
            EXPECT_EQ(ends, 1u);
            established += node->count(EventType::ConnectResponse, id);
        }
        EXPECT_EQ(pair.a.manager.connections(), 0u);
        EXPECT_EQ(pair.b.manager.connections(), 0u);
    }
    EXPECT_GT(established, 1000u);  // Of 2000: the others were stale and were told so.
}

TEST(Exchange, LivesThatNobodyReleasesEarlyAreOrderly) {
    for (std::uint64_t seed = 1; seed <= 100; ++seed) {
        SCOPED_TRACE(seed);
        Pair pair;
        Prng prng(seed);
        pair.net.fate = [&](const Datagram&) {
            return prng.chance(0.3) ? static_cast<Fate>(1 + prng.below(4)) : Fate::Deliver;
        };
        pair.a.hangs_up = true;
        for (std::uint32_t i = 0; i < 10; ++i)
            ASSERT_TRUE(
                pair.a.manager.connect(pair.net.now, pair.a.connect_options(pair.b, i + 2)));
        pair.net.run();
        for (const Node* node : {&pair.a, &pair.b}) {
            std::set<std::uint32_t> ids;
            for (const Seen& seen : node->events) ids.insert(seen.connection.raw);
            for (const std::uint32_t id : ids) expect_orderly(*node, CommId{id});
        }
        pair.expect_no_leak();
    }
}

}  // namespace
}  // namespace feroce::cm
