// Many processes on one address, in pairs that move verified bytes (crowd_member.hpp): more than
// the slots that a group begins with, so that it grows while they come. Some are killed at any
// moment, and others come in their place; some are stopped. As the user of the test and, started by
// root, as an ordinary user with the descriptors that one has. FEROCE_TEST_CROWD: how many, 60
// unless told; with a sanitizer, which makes each of them many times slower, 16. FEROCE_TEST_MIB:
// what each moves by WRITE, READ and SEND each, 2 unless told. FEROCE_TEST_SECONDS: how long some
// are killed, 1 unless told, and stopped (8 at most).
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <random>

#include "base/sanitizers.hpp"
#include "crowd_member.hpp"

namespace feroce::share::crowd {
namespace {

constexpr std::size_t kDescriptorsMax = 100;
constexpr std::uint32_t kKilledMax = 200;  // The size of a crowd some of which are killed.
constexpr std::chrono::milliseconds kBetweenKills(50);

#if defined(FEROCE_ASAN) || defined(FEROCE_TSAN)
constexpr long kUsual = 16;
#else
constexpr long kUsual = 60;
#endif

std::uint32_t told(const char* name, long otherwise, long least, long most) {
    const char* wanted = std::getenv(name);
    const long count = wanted != nullptr ? std::strtol(wanted, nullptr, 10) : otherwise;
    return static_cast<std::uint32_t>(std::clamp(count, least, most));
}

enum class User { Own, Ordinary };

// What a login gives an ordinary user, and no privilege to exceed it.
bool become(User user) {
    if (user == User::Own) return true;
    const rlimit descriptors{1024, 1024};
    return ::setrlimit(RLIMIT_NOFILE, &descriptors) == 0 && become_ordinary_user();
}

class Crowd : public testing::TestWithParam<User> {
protected:
    void SetUp() override {
        if (::geteuid() == 0)
            enter_private_network();
        else if (GetParam() == User::Ordinary)
            GTEST_SKIP() << "the user of the test is one already";
        void* memory = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        board = new (memory) Board;  // Lives as long as the test.
        board->rounds = told("FEROCE_TEST_MIB", 2, 1, 1024) * ((1 << 20) / kMessage);
    }
    void TearDown() override {
        for (const pid_t pid : pids)
            if (pid > 0) ::kill(pid, SIGKILL);
        for (const pid_t pid : pids)
            if (pid > 0) ::waitpid(pid, nullptr, 0);
        if (board != nullptr) ::munmap(board, sizeof(Board));
    }

    pid_t fork_member(std::uint32_t index, User user, int (Member::*what)()) {
        board->members[index].open = false;
        board->members[index].connections = 0;
        ++board->members[index].life;
        const pid_t child = ::fork();
        if (child != 0) return child;
        if (!become(user)) ::_exit(1);
        const int status = (Member(*board, index).*what)();
        if (status == kWell && what == &Member::open)
            for (;;) ::pause();
        ::_exit(status);
    }
    void start(std::uint32_t index) {
        if (pids.size() <= index) pids.resize(index + 1);
        pids[index] = fork_member(index, GetParam(), &Member::run);
    }
    // The first one has founded the group when the others come.
    void start_all(std::uint32_t count) {
        start(0);
        ASSERT_TRUE(await(kPatience, [this] { return board->members[0].open.load(); }));
        for (std::uint32_t i = 1; i < count; ++i) start(i);
    }
    void replace(std::uint32_t index) {
        ASSERT_EQ(::kill(pids[index], SIGKILL), 0);
        ASSERT_EQ(exit_status(pids[index]), 128 + SIGKILL) << "member " << index << " had ended";
        start(index);
    }
    // Whether each of these verifies some rounds more.
    bool all_go_on(std::uint32_t first, std::uint32_t last, std::uint32_t step = 1) {
        std::array<std::uint32_t, kCrowdMax> marks{};
        for (std::uint32_t i = first; i < last; i += step) marks[i] = board->members[i].rounds;
        return await(kPatience, [&] {
            for (std::uint32_t i = first; i < last; i += step)
                if (board->members[i].rounds < marks[i] + kMoreRounds) return false;
            return true;
        });
    }
    // None is stuck: each ends by itself.
    void expect_all_end_well(std::uint32_t count) {
        board->stop = true;
        for (std::uint32_t i = 0; i < count; ++i) {
            EXPECT_EQ(status_at_end(pids[i]), kWell) << "member " << i;
            EXPECT_GE(board->members[i].rounds, board->rounds) << "member " << i;
            EXPECT_LE(board->members[i].descriptors, kDescriptorsMax) << "member " << i;
        }
    }
    // -1 if it does not end.
    int status_at_end(pid_t& pid) {
        int status = 0;
        if (await(2 * kPatience, [&] { return ::waitpid(pid, &status, WNOHANG) == pid; })) {
            pid = 0;
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        }
        return -1;
    }
    void expect_one_connection_each(std::uint32_t first, std::uint32_t last) {
        for (std::uint32_t i = first; i < last; ++i)
            EXPECT_EQ(board->members[i].connections, 1u) << "member " << i;
    }

    static constexpr std::uint32_t kMoreRounds = 8;
    const std::uint32_t size = told("FEROCE_TEST_CROWD", kUsual, 4, kCrowdMax) / 4 * 4;
    const std::chrono::seconds seconds{told("FEROCE_TEST_SECONDS", 1, 1, 600)};
    Board* board = nullptr;
    std::vector<pid_t> pids;  // By index; 0: none.
};

TEST_P(Crowd, AllHaveAQueuePairAndTheirBytesAreRight) {
    start_all(size);
    expect_all_end_well(size);
    expect_one_connection_each(0, size);
}

// The first half is killed, the founder among them, at any step: coming, connecting, under traffic.
// Their peers connect to those that come instead. The second half notices nothing.
TEST_P(Crowd, SurvivorsGoOnWhileOthersAreKilledAndReplaced) {
    const std::uint32_t count = std::min(size, kKilledMax);
    start_all(count);
    std::mt19937 random(1);
    const Clock::time_point end = Clock::now() + seconds;
    std::uint32_t kills = 0;
    for (Clock::time_point next = Clock::now(); next < end; next += kBetweenKills, ++kills) {
        await(kPatience, [&] { return Clock::now() >= next; });
        replace(random() % (count / 2));
        if (HasFatalFailure()) return;
    }
    EXPECT_TRUE(all_go_on(0, count));
    std::printf("%u processes, %u kills\n", count, kills);
    expect_all_end_well(count);
    expect_one_connection_each(count / 2, count);
}

// By Ctrl-Z or a debugger: one of every second pair, the founder among them. Others do not notice,
// newcomers come in, and those that are stopped go on afterwards with the connections they had.
TEST_P(Crowd, AStoppedMemberEndsNoConnection) {
    start_all(size);
    ASSERT_TRUE(all_go_on(0, size));
    const Clock::time_point stopped = Clock::now();
    for (std::uint32_t i = 0; i < size; i += 4) ASSERT_EQ(::kill(pids[i], SIGSTOP), 0);
    EXPECT_TRUE(all_go_on(2, size, 4));
    replace(size - 1);  // Its peer is not stopped.
    if (HasFatalFailure()) return;
    EXPECT_TRUE(all_go_on(size - 2, size));
    const std::chrono::seconds how_long = std::min(seconds, std::chrono::seconds(8));
    await(kPatience, [&] { return Clock::now() >= stopped + how_long; });
    EXPECT_TRUE(all_go_on(2, size, 4));
    for (std::uint32_t i = 0; i < size; i += 4) ASSERT_EQ(::kill(pids[i], SIGCONT), 0);
    EXPECT_TRUE(all_go_on(0, size));
    expect_all_end_well(size);
    expect_one_connection_each(0, size - 2);
}

INSTANTIATE_TEST_SUITE_P(As, Crowd, testing::Values(User::Own, User::Ordinary),
                         [](const testing::TestParamInfo<User>& user) {
                             return user.param == User::Own ? "ThisUser" : "OrdinaryUser";
                         });

// More guests of another user than the first chunk has seats for, relayed to by one process.
using Guests = Crowd;
TEST_P(Guests, AreManyToo) {
    if (::geteuid() != 0) GTEST_SKIP() << "takes root";
    const std::uint32_t guests = std::min(size / 2, 30u);
    // One process carries all their bytes.
    board->rounds = std::min(board->rounds, 16u);
    board->message = 64 * 1024;
    pids.assign(guests + 1, 0);
    pids[guests] = fork_member(guests, User::Own, &Member::open);
    ASSERT_TRUE(await(kPatience, [&] { return board->members[guests].open.load(); }));
    for (std::uint32_t i = 0; i < guests; ++i) start(i);
    expect_all_end_well(guests);
}
INSTANTIATE_TEST_SUITE_P(As, Guests, testing::Values(User::Ordinary));

}  // namespace
}  // namespace feroce::share::crowd
