// Many processes on one address, each with a queue pair, in pairs that move verified bytes: more
// than the slots that a group begins with, so that it grows while they come. Some are killed at any
// moment, and others come in their place. FEROCE_TEST_CROWD: how many, 60 unless told; with a
// sanitizer, which makes each of them many times slower, 16.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <vector>

#include "base/sanitizers.hpp"
#include "ring.hpp"

namespace feroce::share {
namespace crowd_test {

constexpr std::uint32_t kCrowdMax = 250;
constexpr std::uint32_t kRounds = 16;
constexpr std::size_t kDescriptorsMax = 100;
constexpr std::size_t kCounter = 8;  // Where in a member's memory the far end counts.

enum class Stage : int { Starts, Open, Connected, Done };

struct Report {
    LinkReport link;
    std::atomic<Stage> stage{Stage::Starts};
    std::atomic<std::size_t> descriptors{0};
};

// In memory that all processes share.
struct CrowdBoard {
    std::atomic<bool> stop{false};
    std::array<Report, kCrowdMax> members;
};

#if defined(FEROCE_ASAN) || defined(FEROCE_TSAN)
constexpr long kUsual = 16;
#else
constexpr long kUsual = 60;
#endif

std::uint32_t crowd_size() {
    const char* wanted = std::getenv("FEROCE_TEST_CROWD");
    const long count = wanted != nullptr ? std::strtol(wanted, nullptr, 10) : kUsual;
    return static_cast<std::uint32_t>(std::clamp(count, 4L, long{kCrowdMax})) / 4 * 4;
}

// A busy machine with hundreds of processes: everything takes long, and nothing for ever.
constexpr std::chrono::seconds kPatience(100);

// One process. Its exit status is 0 if all went well.
class Member {
public:
    Member(CrowdBoard& board, std::uint32_t index)
        : board_(board), self_(board.members[index]), far_(board.members[index ^ 1]) {}

    int open() {
        context_ = verbs::open_loopback();
        if (context_ == nullptr) return 2;
        end_ = std::make_unique<Endpoint>(context_);
        if (end_->qp == nullptr) return 3;
        self_.link.qpn = end_->qp->qp_num;
        self_.link.rkey = end_->mr->rkey;
        self_.link.address = end_->address(0);
        const auto all = std::filesystem::directory_iterator("/proc/self/fd");
        self_.descriptors = static_cast<std::size_t>(std::distance(begin(all), end(all)));
        self_.stage = Stage::Open;
        return 0;
    }

    int run() {
        if (const int failed = open(); failed != 0) return failed;
        if (!await_far(Stage::Open) || !connect()) return 4;
        self_.stage = Stage::Connected;
        if (!await_far(Stage::Connected)) return 5;
        // To the last, so that pairs live as long as others are killed.
        for (std::uint32_t round = 0; round < kRounds || !board_.stop; ++round)
            if (const int failed = exchange(round); failed != 0) return failed;
        self_.stage = Stage::Done;
        return await_far(Stage::Done) ? 0 : 6;
    }

private:
    bool await_far(Stage stage) {
        return await(kPatience, [&] { return far_.stage.load() >= stage; });
    }

    bool connect() {
        ibv_qp_attr a{};
        a.qp_state = IBV_QPS_RTS;
        a.timeout = 18;  // 1.07 s: a process may have to wait for a core behind all others.
        a.retry_cnt = 7;
        a.rnr_retry = 7;
        a.max_rd_atomic = 4;
        return end_->to_init() == 0 && end_->to_rtr(far_.link.qpn, IBV_MTU_4096) == 0 &&
               ibv_modify_qp(end_->qp, &a,
                             IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                 IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0;
    }

    bool does(ibv_wr_opcode opcode, std::size_t offset, std::uint32_t length, std::uint64_t to) {
        if (end_->post(opcode, end_->sge(offset, length), far_.link.address + to, far_.link.rkey) !=
            0)
            return false;
        ibv_wc wc{};
        return await(kPatience, [&] { return ibv_poll_cq(end_->cq, 1, &wc) == 1; }) &&
               wc.status == IBV_WC_SUCCESS;
    }

    // Bytes go to the far end's second quarter and come back into our last.
    int exchange(std::uint32_t round) {
        const std::size_t quarter = end_->memory.size() / 4;
        char* mine = end_->memory.data() + 2 * quarter;
        for (std::uint32_t i = 0; i < kBytes; i += 4) {
            const std::uint32_t word = round * 2654435761u + i * 40503u + self_.link.qpn;
            std::memcpy(mine + i, &word, sizeof word);
        }
        if (!does(IBV_WR_RDMA_WRITE, 2 * quarter, kBytes, quarter)) return 7;
        if (!does(IBV_WR_RDMA_READ, 3 * quarter, kBytes, quarter)) return 8;
        if (std::memcmp(mine, mine + quarter, kBytes) != 0) return 9;
        if (!does(IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8, kCounter)) return 10;
        std::uint64_t counted = 0;
        std::memcpy(&counted, end_->memory.data(), sizeof counted);
        if (counted != round) return 11;
        ++self_.link.rounds;
        return 0;
    }

    static_assert(kBytes <= (1 << 16) / 4);
    CrowdBoard& board_;
    Report& self_;
    Report& far_;
    ibv_context* context_ = nullptr;
    std::unique_ptr<Endpoint> end_;
};

class Crowd : public testing::Test {
protected:
    void SetUp() override {
        if (::geteuid() == 0) enter_private_network();
        void* memory = ::mmap(nullptr, sizeof(CrowdBoard), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        board = new (memory) CrowdBoard;  // Lives as long as the test.
    }
    void TearDown() override {
        for (const pid_t pid : pids) ::kill(pid, SIGKILL);
        for (const pid_t pid : pids) ::waitpid(pid, nullptr, 0);
    }
    pid_t start(std::uint32_t index, bool as_guest = false) {
        const pid_t child = ::fork();
        if (child != 0) return child;
        if (as_guest && !become_ordinary_user()) ::_exit(1);
        ::_exit(Member(*board, index).run());
    }
    // Comes, and waits to be killed.
    pid_t start_victim(std::uint32_t index) {
        board->members[index].stage = Stage::Starts;
        const pid_t child = ::fork();
        if (child != 0) return child;
        if (const int failed = Member(*board, index).open(); failed != 0) ::_exit(failed);
        for (;;) ::pause();
    }
    bool all_have(std::uint32_t count, const std::function<bool(const Report&)>& condition) {
        return await(kPatience, [&] {
            for (std::uint32_t i = 0; i < count; ++i)
                if (!condition(board->members[i])) return false;
            return true;
        });
    }

    const std::uint32_t size = crowd_size();
    CrowdBoard* board = nullptr;
    std::vector<pid_t> pids;
};

TEST_F(Crowd, AllHaveAQueuePairAndTheirBytesAreRight) {
    for (std::uint32_t i = 0; i < size; ++i) pids.push_back(start(i));
    board->stop = true;  // After their rounds.
    for (std::uint32_t i = 0; i < size; ++i) {
        EXPECT_EQ(exit_status(pids[i]), 0) << "member " << i;
        EXPECT_GE(board->members[i].link.rounds, kRounds) << "member " << i;
        EXPECT_LE(board->members[i].descriptors, kDescriptorsMax) << "member " << i;
    }
    pids.clear();
}

TEST_F(Crowd, SurvivorsGoOnWhileOthersAreKilledAndReplaced) {
    const std::uint32_t survivors = size / 2;
    for (std::uint32_t i = 0; i < size; ++i)
        pids.push_back(i < survivors ? start(i) : start_victim(i));
    ASSERT_TRUE(all_have(survivors, [](const Report& r) { return r.link.rounds > 0; }));
    // The first half of the kills hits newcomers at any step, the second those that are in.
    const std::uint32_t kills = 2 * size;
    for (std::uint32_t i = 0; i < kills; ++i) {
        const std::uint32_t victim = survivors + i % (size - survivors);
        const bool is_in = i < kills / 2 || await(kPatience, [&] {
                               return board->members[victim].stage.load() == Stage::Open;
                           });
        ASSERT_TRUE(is_in) << "newcomer " << i;
        ASSERT_EQ(::kill(pids[victim], SIGKILL), 0);
        ASSERT_EQ(exit_status(pids[victim]), 128 + SIGKILL) << "it could not come in";
        pids[victim] = start_victim(victim);
    }
    board->stop = true;
    for (std::uint32_t i = 0; i < survivors; ++i) {
        EXPECT_EQ(exit_status(pids[i]), 0) << "member " << i;
        EXPECT_GE(board->members[i].link.rounds, kRounds) << "member " << i;
    }
    pids.erase(pids.begin(), pids.begin() + survivors);
}

// By Ctrl-Z or a debugger. Others do not notice, and newcomers come in.
TEST_F(Crowd, AStoppedMemberHarmsNobody) {
    const std::uint32_t survivors = size / 2;
    for (std::uint32_t i = 0; i < survivors; ++i) pids.push_back(start(i));
    for (std::uint32_t i = survivors; i < size; ++i) pids.push_back(start_victim(i));
    ASSERT_TRUE(all_have(size, [](const Report& r) { return r.stage.load() >= Stage::Open; }));
    for (std::uint32_t i = survivors; i < size; ++i) ASSERT_EQ(::kill(pids[i], SIGSTOP), 0);
    ASSERT_TRUE(all_have(survivors, [](const Report& r) { return r.link.rounds >= kRounds; }));
    // In place of one that is stopped for ever.
    ASSERT_EQ(::kill(pids[survivors], SIGKILL), 0);
    exit_status(pids[survivors]);
    pids[survivors] = start_victim(survivors);
    EXPECT_TRUE(
        await(kPatience, [&] { return board->members[survivors].stage.load() == Stage::Open; }));
    board->stop = true;
    for (std::uint32_t i = 0; i < survivors; ++i)
        EXPECT_EQ(exit_status(pids[i]), 0) << "member " << i;
    pids.erase(pids.begin(), pids.begin() + survivors);
}

// More guests of another user than the first chunk has seats for, relayed to by one process.
TEST_F(Crowd, GuestsAreManyToo) {
    if (::geteuid() != 0) GTEST_SKIP() << "takes root";
    const std::uint32_t guests = std::min(size / 2, 30u);
    const pid_t relay = start_victim(guests);
    pids.push_back(relay);
    ASSERT_TRUE(
        await(kPatience, [&] { return board->members[guests].stage.load() == Stage::Open; }));
    board->stop = true;
    for (std::uint32_t i = 0; i < guests; ++i) pids.push_back(start(i, true));
    for (std::uint32_t i = 0; i < guests; ++i) {
        EXPECT_EQ(exit_status(pids[i + 1]), 0) << "guest " << i;
        EXPECT_GE(board->members[i].link.rounds, kRounds) << "guest " << i;
    }
    pids = {relay};
}

}  // namespace crowd_test
}  // namespace feroce::share
