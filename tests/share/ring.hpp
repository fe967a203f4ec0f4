// A ring of processes on one address: each has a reliable connection to the next and one to the one
// before, moves verified bytes over both without end, and tells the test by shared memory how that
// goes. Processes are forked before any of them opens the device.
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>

#include "net_space.hpp"
#include "verbs/test_pair.hpp"

namespace feroce::share {

using verbs::Endpoint;
using Clock = std::chrono::steady_clock;

inline constexpr std::size_t kRingMax = 8;
inline constexpr std::size_t kNext = 0, kBefore = 1;  // The two links of a process.
inline constexpr std::uint32_t kBytes = 16384;

inline bool await(std::chrono::seconds patience, const std::function<bool()>& condition) {
    const Clock::time_point give_up = Clock::now() + patience;
    while (!condition()) {
        if (Clock::now() > give_up) return false;
        ::poll(nullptr, 0, 1);
    }
    return true;
}

inline std::string output_of(const std::string& command) {
    std::string out;
    std::FILE* pipe = ::popen(command.c_str(), "re");
    char line[512];
    while (pipe != nullptr && std::fgets(line, sizeof line, pipe) != nullptr) out += line;
    if (pipe != nullptr) ::pclose(pipe);
    return out;
}

struct LinkReport {
    std::uint32_t qpn = 0;
    std::uint32_t rkey = 0;
    std::uint64_t address = 0;
    std::atomic<std::uint32_t> rounds{0};  // Verified so far.
    std::atomic<int> status{0};            // The first ibv_wc_status that was not success.
    std::atomic<std::int64_t> failed_at{0};
    std::atomic<bool> wrong_bytes{false};
};

struct MemberReport {
    std::atomic<bool> open{false}, connected{false};
    std::array<LinkReport, 2> links;
};

// In memory that all processes share.
struct Board {
    std::uint32_t size = 0;
    std::atomic<bool> stop{false};
    std::array<MemberReport, kRingMax> members;

    static Board& make(std::uint32_t size) {
        void* memory = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        auto* board = new (memory) Board;  // Lives as long as the test.
        board->size = size;
        return *board;
    }
    bool all(const std::function<bool(const MemberReport&)>& condition) const {
        for (std::uint32_t i = 0; i < size; ++i)
            if (!condition(members[i])) return false;
        return true;
    }
};

// One process of the ring.
class Member {
public:
    Member(Board& board, std::uint32_t index) : board_(board), index_(index) {}

    // The exit status: 0 if it ran until it was told to stop.
    int run() {
        ibv_context* context = verbs::open_loopback();
        if (context == nullptr) return 2;
        for (std::size_t i = 0; i < 2; ++i) {
            ends_[i] = std::make_unique<Endpoint>(context);
            LinkReport& report = board_.members[index_].links[i];
            report.qpn = ends_[i]->qp->qp_num;
            report.rkey = ends_[i]->mr->rkey;
            report.address = ends_[i]->address(0);
        }
        board_.members[index_].open = true;
        const std::chrono::seconds patience(30);
        if (!await(patience, [this] { return board_.all([](auto& m) { return m.open.load(); }); }))
            return 3;
        if (!connect(kNext) || !connect(kBefore)) return 4;
        board_.members[index_].connected = true;
        if (!await(patience,
                   [this] { return board_.all([](auto& m) { return m.connected.load(); }); }))
            return 5;
        while (!board_.stop)
            for (std::size_t i = 0; i < 2; ++i) exchange(i);
        return 0;
    }

private:
    // Our link to the next process ends at its link to the one before it.
    LinkReport& far_end(std::size_t link) {
        const std::uint32_t step = link == kNext ? 1 : board_.size - 1;
        return board_.members[(index_ + step) % board_.size].links[1 - link];
    }

    bool connect(std::size_t link) {
        const Endpoint& end = *ends_[link];
        ibv_qp_attr a{};
        a.qp_state = IBV_QPS_RTS;
        a.timeout = 15;  // 134 ms: a busy machine is not a dead peer.
        a.retry_cnt = 7;
        a.rnr_retry = 7;
        a.max_rd_atomic = 4;
        return end.to_init() == 0 && end.to_rtr(far_end(link).qpn) == 0 &&
               ibv_modify_qp(end.qp, &a,
                             IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                 IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0;
    }

    // Sleeps until the completion is there: eight spinning processes would starve each other.
    ibv_wc completion(const Endpoint& end) {
        ibv_wc wc{};
        wc.status = IBV_WC_GENERAL_ERR;
        await(std::chrono::seconds(60), [&] { return ibv_poll_cq(end.cq, 1, &wc) == 1; });
        return wc;
    }

    bool succeeded(const Endpoint& end, LinkReport& report) {
        const ibv_wc wc = completion(end);
        if (wc.status == IBV_WC_SUCCESS) return true;
        report.failed_at = Clock::now().time_since_epoch().count();
        report.status = wc.status;
        return false;
    }

    void exchange(std::size_t link) {
        Endpoint& end = *ends_[link];
        LinkReport& report = board_.members[index_].links[link];
        if (report.status != 0) return;
        const LinkReport& far = far_end(link);
        // Ours goes to the far end's first half; its own goes to our first half.
        char* mine = end.memory.data() + end.memory.size() / 2;
        for (std::uint32_t i = 0; i < kBytes; i += 4) {
            const std::uint32_t word = report.rounds * 2654435761u + i * 40503u + index_;
            std::memcpy(mine + i, &word, sizeof word);
        }
        const std::size_t half = end.memory.size() / 2;
        end.post(IBV_WR_RDMA_WRITE, end.sge(half, kBytes), far.address, far.rkey);
        if (!succeeded(end, report)) return;
        end.post(IBV_WR_RDMA_READ, end.sge(half + kBytes, kBytes), far.address, far.rkey);
        if (!succeeded(end, report)) return;
        if (std::memcmp(mine, mine + kBytes, kBytes) != 0) report.wrong_bytes = true;
        ++report.rounds;
    }

    Board& board_;
    std::uint32_t index_;
    std::array<std::unique_ptr<Endpoint>, 2> ends_;
};

// Forks one; `prepare` runs in the child first, false ends it.
inline pid_t start_member(
    Board& board, std::uint32_t index, const std::function<bool()>& prepare = [] { return true; }) {
    const pid_t child = ::fork();
    if (child != 0) return child;
    ::_exit(prepare() ? Member(board, index).run() : 1);
}

inline int exit_status(pid_t child) {
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace feroce::share
