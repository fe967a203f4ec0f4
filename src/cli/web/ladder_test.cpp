#include "cli/web/ladder.hpp"

#include <gtest/gtest.h>

namespace feroce::cli::ladder_test {
namespace {

const Gid kA = Gid::from_v4(0x0a00'0001), kB = Gid::from_v4(0x0a00'0002);

LadderPacket request(const Gid& from, const Gid& to, std::uint32_t qpn, std::uint32_t psn) {
    LadderPacket out;
    out.source = from;
    out.destination = to;
    out.qpn = qpn;
    out.psn = psn;
    return out;
}

LadderPacket answer(const Gid& from, const Gid& to, std::uint32_t qpn, std::uint32_t psn) {
    LadderPacket out = request(from, to, qpn, psn);
    out.answers = true;
    return out;
}

TEST(Ladder, JoinsRequestsAndTheirAnswers) {
    const Json ladders = ladders_of({request(kA, kB, 20, 100), request(kA, kB, 21, 900'000),
                                     answer(kB, kA, 10, 100), answer(kB, kA, 11, 900'000)});
    ASSERT_EQ(ladders.size(), 2U);
    EXPECT_EQ(ladders[0]["left"]["qpn"], 10);
    EXPECT_EQ(ladders[0]["right"]["qpn"], 20);
    EXPECT_EQ(ladders[0]["left"]["address"], "10.0.0.1");
    EXPECT_EQ(ladders[0]["packets"][0]["to_right"], true);
    EXPECT_EQ(ladders[0]["packets"][1]["to_right"], false);
    EXPECT_EQ(ladders[1]["left"]["qpn"], 11);
    EXPECT_EQ(ladders[1]["right"]["qpn"], 21);
}

TEST(Ladder, IsOneWhereBothEndsAsk) {
    const Json ladders = ladders_of({request(kA, kB, 20, 100), request(kB, kA, 10, 5'000'000),
                                     answer(kB, kA, 10, 100), answer(kA, kB, 20, 5'000'000)});
    ASSERT_EQ(ladders.size(), 1U);
    EXPECT_EQ(ladders[0]["packets"].size(), 4U);
    EXPECT_EQ(ladders[0]["packets"][1]["to_right"], false);
}

TEST(Ladder, BelievesDatagrams) {
    LadderPacket there = request(kA, kB, 1, 5), back = request(kB, kA, 1, 900);
    there.from_qpn = back.from_qpn = 1;
    const Json ladders = ladders_of({there, back, request(kA, kB, 20, 5)});
    ASSERT_EQ(ladders.size(), 2U);
    EXPECT_EQ(ladders[0]["packets"].size(), 2U);
    EXPECT_EQ(ladders[0]["packets"][1]["to_right"], false);
}

TEST(Ladder, WorksBetweenQueuePairsOfOneAddress) {
    const Json ladders = ladders_of({request(kA, kA, 20, 100), answer(kA, kA, 10, 100)});
    ASSERT_EQ(ladders.size(), 1U);
    EXPECT_EQ(ladders[0]["packets"].size(), 2U);
    EXPECT_NE(ladders[0]["packets"][0]["to_right"], ladders[0]["packets"][1]["to_right"]);
}

TEST(Ladder, ShowsWhatNobodyAnswers) {
    const Json ladders = ladders_of({request(kA, kB, 20, 1), request(kA, kB, 20, 2)});
    ASSERT_EQ(ladders.size(), 1U);
    EXPECT_EQ(ladders[0]["left"]["qpn"], 0);
    EXPECT_EQ(ladders[0]["packets"].size(), 2U);
}

TEST(Ladder, IsCutWhereItIsLong) {
    std::vector<LadderPacket> packets(kLadderPacketsMax + 7, request(kA, kB, 20, 1));
    const Json ladders = ladders_of(packets);
    EXPECT_EQ(ladders[0]["packets"].size(), kLadderPacketsMax);
    EXPECT_EQ(ladders[0]["more"], 7);
}

TEST(Ladder, OfNoFileIsRefused) {
    EXPECT_THROW(ladders_in("/nowhere/at/all.pcapng"), UsageError);
    EXPECT_THROW(ladders_in("/etc/passwd"), UsageError);
}

}  // namespace
}  // namespace feroce::cli::ladder_test
