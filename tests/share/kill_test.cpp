// One of eight processes on an address is killed under traffic: it was the one that founded the
// port group. The others lose nothing, and its peers hear of it.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "ring.hpp"

namespace feroce::share {
namespace {

constexpr std::uint32_t kVictim = 0, kAfterVictim = 1, kBeforeVictim = kRingMax - 1;

class Kill : public testing::Test {
protected:
    void SetUp() override {
        if (::geteuid() == 0) enter_private_network();  // An ordinary user shares with others.
        for (std::uint32_t i = 0; i < kRingMax; ++i) {
            pids.push_back(start_member(board, i));
            // One after the other, so that it is known who founds.
            ASSERT_TRUE(
                await(std::chrono::seconds(30), [&] { return board.members[i].open.load(); }));
        }
    }
    void TearDown() override {
        for (const pid_t pid : pids) ::kill(pid, SIGKILL);
        for (const pid_t pid : pids) ::waitpid(pid, nullptr, 0);
    }

    static bool hit(std::uint32_t member, std::size_t link) {
        return member == kVictim || (member == kAfterVictim && link == kBefore) ||
               (member == kBeforeVictim && link == kNext);
    }
    void each_link(const std::function<void(std::uint32_t, std::size_t, LinkReport&)>& look) {
        for (std::uint32_t m = 0; m < kRingMax; ++m)
            for (std::size_t l = 0; l < 2; ++l) look(m, l, board.members[m].links[l]);
    }
    // Whether all links that still can have got `rounds` further than `marks`.
    bool advanced(const std::array<std::uint32_t, 2 * kRingMax>& marks, std::uint32_t rounds) {
        bool all = true;
        each_link([&](std::uint32_t m, std::size_t l, LinkReport& report) {
            if (!hit(m, l)) all &= report.rounds >= marks[2 * m + l] + rounds || report.status != 0;
        });
        return all;
    }

    Board& board = Board::make(kRingMax);
    std::vector<pid_t> pids;
};

TEST_F(Kill, TheOthersLoseNothingAndThePeersAreTold) {
    std::array<std::uint32_t, 2 * kRingMax> marks{};
    ASSERT_TRUE(await(std::chrono::seconds(60), [&] { return advanced(marks, 20); }));
    each_link([&](std::uint32_t m, std::size_t l, LinkReport& r) { marks[2 * m + l] = r.rounds; });
    const Clock::time_point killed = Clock::now();
    ASSERT_EQ(::kill(pids[kVictim], SIGKILL), 0);

    LinkReport& before = board.members[kBeforeVictim].links[kNext];
    LinkReport& after = board.members[kAfterVictim].links[kBefore];
    // A timeout of 15 and 7 retries: at most 4 * 134 ms, eight times. The rest is for the machine.
    ASSERT_TRUE(
        await(std::chrono::seconds(30), [&] { return before.status != 0 && after.status != 0; }));
    EXPECT_EQ(before.status, IBV_WC_RETRY_EXC_ERR);
    EXPECT_EQ(after.status, IBV_WC_RETRY_EXC_ERR);
    for (const LinkReport* report : {&before, &after})
        EXPECT_LT(Clock::duration(report->failed_at) - killed.time_since_epoch(),
                  std::chrono::milliseconds(8 * 4 * 135) + std::chrono::seconds(2));

    ASSERT_TRUE(await(std::chrono::seconds(60), [&] { return advanced(marks, 50); }));
    each_link([&](std::uint32_t m, std::size_t l, LinkReport& report) {
        EXPECT_FALSE(report.wrong_bytes) << "member " << m << ", link " << l;
        if (hit(m, l)) return;
        EXPECT_EQ(report.status, 0) << "member " << m << ", link " << l;
    });
    const std::string why =
        output_of(FEROCE_PROGRAM " explain " + std::to_string(pids[kBeforeVictim]));
    EXPECT_NE(why.find("did not acknowledge"), std::string::npos) << why;
    EXPECT_NE(why.find("IBV_WC_RETRY_EXC_ERR"), std::string::npos) << why;
    EXPECT_NE(why.find("(pid " + std::to_string(pids[kVictim]) +
                       ", ended): the process ended without closing QP"),
              std::string::npos)
        << why;
    board.stop = true;
    for (std::uint32_t i = 1; i < kRingMax; ++i) {
        EXPECT_EQ(exit_status(pids[i]), 0) << "member " << i;
    }
    ASSERT_EQ(exit_status(pids[kVictim]), 128 + SIGKILL);
    pids.clear();
}

}  // namespace
}  // namespace feroce::share
