// The parts of a session that need no network: permits, policies, heartbeats, back-off, histogram,
// the work requests of an answer.
#include <gtest/gtest.h>

#include <array>
#include <set>

#include "feroce/rtrs/histogram.hpp"
#include "rtrs/answer_chain.hpp"
#include "rtrs/backoff.hpp"
#include "rtrs/heartbeat.hpp"
#include "rtrs/path_chooser.hpp"
#include "rtrs/permits.hpp"
#include "rtrs/send_credits.hpp"

namespace feroce::rtrs {
namespace {

using namespace std::chrono_literals;

TEST(Permits, AreDistinctAndAllThere) {
    for (const std::uint16_t count : {1, 63, 64, 65, 512, 65535}) {
        Permits permits(count);
        std::set<std::uint16_t> seen;
        Permits::Waiter waiter;
        for (int i = 0; i < count; ++i) {
            ASSERT_TRUE(permits.take(waiter));
            seen.insert(waiter.permit);
        }
        EXPECT_EQ(seen.size(), count);
        EXPECT_EQ(*seen.rbegin(), count - 1);
        EXPECT_FALSE(permits.take(waiter));
        permits.cancel(waiter);
    }
}

TEST(Permits, GoToWaitersInTheirOrder) {
    Permits permits(2);
    Permits::Waiter a, b, c, d, e;
    EXPECT_TRUE(permits.take(a));
    EXPECT_TRUE(permits.take(b));
    EXPECT_FALSE(permits.take(c));
    EXPECT_FALSE(permits.take(d));
    EXPECT_FALSE(permits.take(e));
    permits.cancel(d);
    EXPECT_EQ(permits.give(b.permit), &c);
    EXPECT_EQ(c.permit, b.permit);
    EXPECT_EQ(permits.give(a.permit), &e);
    EXPECT_EQ(permits.give(c.permit), nullptr);
    EXPECT_EQ(permits.taken(), 1);
    EXPECT_TRUE(permits.take(d));
}

std::vector<std::size_t> choices(PathChooser& chooser, const std::vector<PathLoad>& paths, int n) {
    std::vector<std::size_t> out(static_cast<std::size_t>(n));
    for (std::size_t& choice : out) choice = chooser.choose(paths).value_or(99);
    return out;
}

TEST(SendCredits, ComeBackWithTheCompletionsThatWereAskedFor) {
    SendCredits credits(64);
    EXPECT_FALSE(credits.take_and_ask(2));
    EXPECT_TRUE(credits.take_and_ask(1, true)) << "if it is wanted";
    EXPECT_EQ(credits.taken(), 3u);
    EXPECT_EQ(credits.given(), 0u);
    credits.give();
    EXPECT_EQ(credits.given(), 3u);
    EXPECT_TRUE(credits.has(64));
    EXPECT_FALSE(credits.has(65));
}

// However it is posted: all room is free again when all completions that were asked for have come.
TEST(SendCredits, AreAskedForBeforeTheyRunOut) {
    SendCredits credits(8);
    unsigned asked = 0;
    for (int i = 0; i < 100; ++i) {
        credits.take(1);
        while (credits.has(2)) asked += credits.take_and_ask(2) ? 1 : 0;
        ASSERT_GT(asked, 0u) << "nothing would ever come back";
        for (; asked > 0; --asked) credits.give();
        ASSERT_LE(credits.taken() - credits.given(), 4u) << "what was posted last may not ask";
    }
}

constexpr Immediate kSaid{ImmediateType::Response, 5};

TEST(AnswerChain, DataComesFirstAndTheResponseLast) {
    const RemoteSegment there{.address = 0x1000, .key = 7, .length = 512};
    AnswerChain chain;
    chain.add_data(0x2000, 3, there);
    chain.add_data(0x2200, 3, there);
    chain.add_invalidate(9);
    chain.finish_with(kSaid, false);
    const std::span<ibv_send_wr> all = chain.all();
    ASSERT_EQ(all.size(), 4u);
    for (const ibv_send_wr& data : all.first(2)) {
        EXPECT_EQ(data.opcode, IBV_WR_RDMA_WRITE);
        EXPECT_EQ(data.wr.rdma.remote_addr, 0x1000u);
        EXPECT_EQ(data.wr.rdma.rkey, 7u);
        ASSERT_EQ(data.num_sge, 1);
        EXPECT_EQ(data.sg_list->length, 512u);
        EXPECT_EQ(data.sg_list->lkey, 3u);
    }
    EXPECT_EQ(all[0].sg_list->addr, 0x2000u);
    EXPECT_EQ(all[1].sg_list->addr, 0x2200u);
    EXPECT_EQ(all[2].opcode, IBV_WR_SEND_WITH_INV);
    EXPECT_EQ(all[2].invalidate_rkey, 9u);
    EXPECT_EQ(all[2].num_sge, 0);
    EXPECT_EQ(all[3].opcode, IBV_WR_RDMA_WRITE_WITH_IMM);
    EXPECT_EQ(be32toh(all[3].imm_data), kSaid.raw());
    EXPECT_EQ(all[3].num_sge, 0);
}

TEST(AnswerChain, TheLastOfTheDataMayBeTheResponse) {
    AnswerChain chain;
    for (std::uint64_t i = 0; i < kMaxReadSegments; ++i)
        chain.add_data(i, 3, {.address = i, .key = 7, .length = 1});
    chain.finish_with(kSaid, true);
    const std::span<ibv_send_wr> all = chain.all();
    ASSERT_EQ(all.size(), kMaxReadSegments);
    EXPECT_EQ(all.back().opcode, IBV_WR_RDMA_WRITE_WITH_IMM);
    EXPECT_EQ(be32toh(all.back().imm_data), kSaid.raw());
    EXPECT_EQ(all.back().wr.rdma.remote_addr, kMaxReadSegments - 1);
    for (const ibv_send_wr& data : all.first(all.size() - 1))
        EXPECT_EQ(data.opcode, IBV_WR_RDMA_WRITE);
}

TEST(AnswerChain, WhatHasNoKeyIsCopied) {
    const std::array<std::byte, 12> note{};
    for (const std::uint32_t key : {0u, 4u}) {
        AnswerChain chain;
        chain.finish_with(kSaid, note, key);
        ASSERT_EQ(chain.all().size(), 1u);
        const ibv_send_wr& response = chain.all().front();
        EXPECT_EQ(response.opcode, IBV_WR_SEND_WITH_IMM);
        EXPECT_EQ(response.sg_list->addr, address_of(note));
        EXPECT_EQ(response.sg_list->length, note.size());
        EXPECT_EQ((response.send_flags & IBV_SEND_INLINE) != 0, key == 0);
    }
}

TEST(PathChooser, RoundRobinSkipsWhatIsDown) {
    PathChooser chooser(PathPolicy::RoundRobin);
    std::vector<PathLoad> paths(3, {true, 0, 0ns});
    EXPECT_EQ(choices(chooser, paths, 4), (std::vector<std::size_t>{0, 1, 2, 0}));
    paths[1].usable = false;
    EXPECT_EQ(choices(chooser, paths, 3), (std::vector<std::size_t>{2, 0, 2}));
    paths[0].usable = paths[2].usable = false;
    EXPECT_EQ(chooser.choose(paths), std::nullopt);
    EXPECT_EQ(chooser.choose({}), std::nullopt);
}

TEST(PathChooser, MinimumOfLoadOrLatency) {
    std::vector<PathLoad> paths{{true, 5, 10us}, {true, 3, 30us}, {true, 3, 20us}};
    PathChooser chooser(PathPolicy::MinInflight);
    EXPECT_EQ(chooser.choose(paths), 1u);  // A tie goes to the first.
    paths[1].usable = false;
    EXPECT_EQ(chooser.choose(paths), 2u);
    chooser.set_policy(PathPolicy::MinLatency);
    EXPECT_EQ(chooser.choose(paths), 0u);
    paths[2].latency = 0us;
    EXPECT_EQ(chooser.choose(paths), 2u);
}

TEST(PathChooser, FillFirstTurnsWhenABatchIsUnderWay) {
    PathChooser chooser(PathPolicy::FillFirst);
    std::vector<PathLoad> paths(2, {true, 0, 0ns});
    std::vector<std::size_t> taken;
    for (int i = 0; i < 100; ++i) {
        taken.push_back(chooser.choose(paths).value());
        ++paths[taken.back()].inflight;
    }
    std::vector<std::size_t> expected(32, 0);
    expected.insert(expected.end(), 64, 1);  // Until it is as far ahead as the first was.
    expected.insert(expected.end(), 4, 0);
    EXPECT_EQ(taken, expected);
    paths[0].usable = false;
    EXPECT_EQ(chooser.choose(paths), 1u);
    paths.pop_back();
    EXPECT_EQ(chooser.choose(paths), std::nullopt);
}

TEST(Heartbeat, NoticesACutWithinThreeIntervals) {
    const Instant start{};
    Heartbeat heart({200ms, 1}, start, Heartbeat::Peer::Ours);
    EXPECT_EQ(heart.on_timer(start + 199ms), Heartbeat::Action::Nothing);
    EXPECT_EQ(heart.on_timer(start + 200ms), Heartbeat::Action::Send);
    heart.on_ack(start + 201ms);  // The last sign of life.
    EXPECT_EQ(heart.latency(), 1ms);
    EXPECT_EQ(heart.on_timer(start + 400ms), Heartbeat::Action::Send);
    EXPECT_EQ(heart.on_timer(start + 600ms), Heartbeat::Action::Nothing);
    EXPECT_EQ(heart.on_timer(start + 800ms), Heartbeat::Action::Dead);
}

TEST(Heartbeat, AnyTrafficCounts) {
    Instant now{};
    Heartbeat heart(kKernelHeartbeat, now, Heartbeat::Peer::Kernel);
    for (int i = 0; i < 100; ++i) {
        now += 5s;
        EXPECT_EQ(heart.on_timer(now), Heartbeat::Action::Send);
        heart.on_traffic();
    }
}

TEST(Heartbeat, AProgramThatBlocksIsAliveWhileItsDeviceAcknowledges) {
    Instant now{};
    Heartbeat heart({200ms, 1}, now, Heartbeat::Peer::Ours);
    EXPECT_EQ(heart.on_timer(now += 200ms), Heartbeat::Action::Send);
    for (int i = 0; i < 100; ++i) {
        heart.on_acknowledged();
        EXPECT_EQ(heart.on_timer(now += 200ms), Heartbeat::Action::Probe);
    }
    heart.on_ack(now);
    EXPECT_EQ(heart.latency(), 20s);
    EXPECT_EQ(heart.on_timer(now += 200ms), Heartbeat::Action::Send);
    heart.on_acknowledged();
    EXPECT_EQ(heart.on_timer(now += 200ms), Heartbeat::Action::Probe);
    EXPECT_EQ(heart.on_timer(now += 200ms), Heartbeat::Action::Nothing);
    EXPECT_EQ(heart.on_timer(now += 200ms), Heartbeat::Action::Dead);
}

TEST(Heartbeat, TheKernelMustAnswer) {
    Instant now{};
    Heartbeat heart({200ms, 1}, now, Heartbeat::Peer::Kernel);
    EXPECT_EQ(heart.on_timer(now += 200ms), Heartbeat::Action::Send);
    heart.on_acknowledged();
    EXPECT_EQ(heart.on_timer(now += 200ms), Heartbeat::Action::Nothing);
    heart.on_acknowledged();
    EXPECT_EQ(heart.on_timer(now += 200ms), Heartbeat::Action::Dead);
}

TEST(Heartbeat, OurOwnPauseIsNotThePeersSilence) {
    const Instant start{};
    Heartbeat heart({200ms, 1}, start, Heartbeat::Peer::Ours);
    EXPECT_EQ(heart.on_timer(start + 200ms), Heartbeat::Action::Send);
    EXPECT_EQ(heart.on_timer(start + 5s), Heartbeat::Action::Nothing);
    EXPECT_EQ(heart.on_timer(start + 10s), Heartbeat::Action::Nothing);
    EXPECT_EQ(heart.on_timer(start + 10200ms), Heartbeat::Action::Nothing);
    EXPECT_EQ(heart.on_timer(start + 10400ms), Heartbeat::Action::Dead);
}

TEST(Heartbeat, TheKernelsSettingsTakeThirtySeconds) {
    Instant now{};
    Heartbeat heart(kKernelHeartbeat, now, Heartbeat::Peer::Kernel);
    EXPECT_EQ(heart.on_timer(now += 5s), Heartbeat::Action::Send);
    for (int i = 0; i < 5; ++i) EXPECT_EQ(heart.on_timer(now += 5s), Heartbeat::Action::Nothing);
    EXPECT_EQ(heart.on_timer(now += 5s), Heartbeat::Action::Dead);
}

TEST(Backoff, GrowsToItsLimitWithJitter) {
    Prng random(1);
    Backoff backoff({100ms, 1s, -1}, random);
    Duration limit = 100ms;
    std::set<Duration::rep> drawn;
    for (int i = 0; i < 50; ++i) {
        const auto wait = backoff.next();
        ASSERT_TRUE(wait);
        EXPECT_GE(*wait, limit / 2);
        EXPECT_LE(*wait, limit);
        drawn.insert(wait->count());
        limit = std::min<Duration>(limit * 2, 1s);
    }
    EXPECT_GT(drawn.size(), 45u);
    backoff.reset();
    EXPECT_LE(*backoff.next(), 100ms);
}

TEST(Backoff, APathThatComesUpAndDiesAtOnceIsNoSuccess) {
    Prng random(1);
    Backoff backoff({10ms, 1s, -1}, random);
    for (int i = 0; i < 20; ++i) {
        ASSERT_TRUE(backoff.next());
        backoff.failed_after(1ms);
    }
    EXPECT_GE(*backoff.next(), 500ms);
    backoff.failed_after(1s);
    EXPECT_LE(*backoff.next(), 10ms);
    Backoff limited({1ms, 1s, 3}, random);
    for (int i = 0; i < 3; ++i) {
        ASSERT_TRUE(limited.next());
        limited.failed_after(1ms);
    }
    EXPECT_FALSE(limited.next());
}

TEST(Backoff, GivesUpAfterItsAttempts) {
    Prng random(1);
    Backoff backoff({1ms, 1s, 2}, random);
    EXPECT_TRUE(backoff.next());
    EXPECT_TRUE(backoff.next());
    EXPECT_FALSE(backoff.next());
    backoff.reset();
    EXPECT_TRUE(backoff.next());
    EXPECT_FALSE(Backoff({1ms, 1s, 0}, random).next());
}

TEST(Histogram, PercentilesAreRightToAnEighth) {
    Histogram histogram;
    EXPECT_EQ(histogram.percentile(0.5), 0ns);
    for (int i = 1; i <= 100000; ++i) histogram.record(std::chrono::nanoseconds(i));
    for (const double share : {0.01, 0.5, 0.9, 0.99, 0.999}) {
        const double exact = share * 100000;
        const auto found = static_cast<double>(histogram.percentile(share).count());
        EXPECT_GE(found, exact) << share;
        EXPECT_LE(found, exact * 1.13 + 1) << share;
    }
    EXPECT_EQ(histogram.count(), 100000u);
}

TEST(Histogram, TakesAnythingAndMerges) {
    Histogram a, b;
    a.record(-5ns);
    a.record(24h);
    b.record(1us);
    a.merge(b);
    EXPECT_EQ(a.count(), 3u);
    EXPECT_EQ(a.percentile(0), 0ns);
    EXPECT_GT(a.percentile(1), 500s);
}

}  // namespace
}  // namespace feroce::rtrs
