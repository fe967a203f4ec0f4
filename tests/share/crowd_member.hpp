// One process of a crowd (crowd_test.cpp): it has a reliable connection to the one that it is
// paired with, moves verified bytes over it by WRITE, READ, an atomic and SEND, and tells the test
// by shared memory how that goes. When the other is killed and another comes in its place it
// connects again. Which lives of the two a queue pair is for is said beside its number, so that
// none connects to a dead one's.
#pragma once

#include <filesystem>
#include <iterator>
#include <vector>

#include "ring.hpp"

namespace feroce::share::crowd {

inline constexpr std::uint32_t kCrowdMax = 250;
inline constexpr std::uint32_t kMessage = 128 * 1024;

// A busy machine with hundreds of processes: everything takes long, and nothing for ever.
inline constexpr std::chrono::seconds kPatience(100);

struct Report {
    // How many processes there have been with this index; the test counts before it starts one.
    std::atomic<std::uint32_t> life{0};
    std::atomic<bool> open{false};  // The process of this life has the device.
    std::atomic<std::size_t> descriptors{0};
    // Of the queue pair that is for the lives which `offered` names (Member::lives()).
    std::atomic<std::uint32_t> qpn{0}, rkey{0};
    std::atomic<std::uint64_t> address{0};
    std::atomic<std::uint64_t> offered{0};
    std::atomic<std::uint64_t> connected{0};
    std::atomic<std::uint32_t> connections{0};  // Of this life.
    std::atomic<std::uint32_t> rounds{0};       // Verified, of all lives.
    std::atomic<bool> ended{false};             // Was asked to stop, and has all its bytes.
};

// In memory that all processes share.
struct Board {
    std::uint32_t rounds = 0;          // Of a connection, at least.
    std::uint32_t message = kMessage;  // What goes each way in a round; no more than that.
    std::atomic<bool> stop{false};
    std::array<Report, kCrowdMax> members;
};

// What a step came to: 0 if all is well, else the exit status of the process.
enum Outcome : int {
    kWell = 0,
    kNoDevice = 2,
    kNoQueuePair,
    kNoOffer,
    kCannotConnect,
    kNotConnected,
    kCannotPost,
    kNoCompletion,
    kFailedCompletion,
    kWrongRead,
    kWrongCount,
    kWrongMessage,
    kNotEnded,
    kFarDied = 100,  // Never an exit status: another comes.
};

class Member {
public:
    Member(Board& board, std::uint32_t index)
        : board_(board), self_(board.members[index]), far_(board.members[index ^ 1]) {}

    int open() {
        context_ = verbs::open_loopback();
        if (context_ == nullptr) return kNoDevice;
        self_.open = true;
        return kWell;
    }

    // The exit status of the process.
    int run() {
        if (const int failed = open(); failed != kWell) return failed;
        for (;;) {
            far_life_ = far_.life;
            const int outcome = live_with_far();
            if (outcome != kFarDied) return outcome;
        }
    }

private:
    // Where things are in a member's memory.
    static constexpr std::size_t kFetched = 0, kCounter = 8, kOut = 4096, kIn = kOut + kMessage,
                                 kReadBack = kIn + kMessage, kReceived = kReadBack + kMessage,
                                 kMemory = kReceived + 2 * kMessage;

    static std::uint64_t lives(std::uint32_t own, std::uint32_t other) {
        return std::uint64_t{own} << 32 | other;
    }
    bool far_died() const { return far_.life != far_life_; }

    // Until the condition holds, or the other is gone.
    int await_far(Outcome otherwise, const std::function<bool()>& condition) {
        const bool in_time = await(kPatience, [&] { return condition() || far_died(); });
        if (!in_time) return otherwise;
        return far_died() ? kFarDied : kWell;
    }

    int live_with_far() {
        // Nothing of the last connection may reach the memory of this one.
        mr_.reset();
        end_.reset();
        end_ = std::make_unique<Endpoint>(context_);
        memory_.assign(kMemory, 0);
        mr_ = Registration(ibv_reg_mr(end_->pd, memory_.data(), kMemory, verbs::kAllAccess));
        if (end_->qp == nullptr || mr_ == nullptr) return kNoQueuePair;
        received_ = done_ = posted_ = 0;
        self_.qpn = end_->qp->qp_num;
        self_.rkey = mr_->rkey;
        self_.address = address(0);
        self_.offered = lives(self_.life, far_life_);
        const std::uint64_t wanted = lives(far_life_, self_.life);
        if (const int failed = await_far(kNoOffer, [&] { return far_.offered == wanted; });
            failed != kWell)
            return failed;
        far_qpn_ = far_.qpn;
        if (!connect()) return far_died() ? kFarDied : kCannotConnect;
        self_.connected = lives(self_.life, far_life_);
        if (const int failed = await_far(kNotConnected, [&] { return far_.connected == wanted; });
            failed != kWell)
            return failed;
        const auto all = std::filesystem::directory_iterator("/proc/self/fd");
        self_.descriptors = static_cast<std::size_t>(std::distance(begin(all), end(all)));
        ++self_.connections;
        for (std::uint32_t round = 0; !ended_; ++round)
            if (const int failed = exchange(round); failed != kWell) return failed;
        // An acknowledgement of ours may have been lost.
        self_.ended = true;
        return await_far(kNotEnded, [&] { return far_.ended.load(); });
    }

    bool connect() {
        ibv_qp_attr a{};
        a.qp_state = IBV_QPS_RTS;
        // 2.1 s, and 17 s at least with its retries: the other may have to wait for a core behind
        // all others, or be stopped for 8 s.
        a.timeout = 19;
        a.retry_cnt = 7;
        a.rnr_retry = 7;
        a.max_rd_atomic = 4;
        return end_->to_init() == 0 && end_->to_rtr(far_qpn_, IBV_MTU_4096) == 0 && receive(0) &&
               receive(1) &&
               ibv_modify_qp(end_->qp, &a,
                             IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                 IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0;
    }

    // The other is a round ahead at most: two buffers are enough.
    bool receive(std::uint32_t round) {
        ibv_sge entry = sge(kReceived + round % 2 * kMessage, kMessage);
        ibv_recv_wr wr{};
        wr.sg_list = &entry;
        wr.num_sge = 1;
        ibv_recv_wr* bad = nullptr;
        return ibv_post_recv(end_->qp, &wr, &bad) == 0;
    }

    bool post(ibv_wr_opcode opcode, std::size_t offset, std::uint32_t length, std::size_t to = 0) {
        ++posted_;
        return end_->post(opcode, sge(offset, length), far_.address + to, far_.rkey) == 0;
    }

    // Takes completions until all is done that was posted, and `received` messages are there.
    int complete(std::uint32_t received) {
        bool failed = false;
        const int outcome = await_far(kNoCompletion, [&] {
            ibv_wc wc{};
            while (!failed && ibv_poll_cq(end_->cq, 1, &wc) == 1) {
                failed = wc.status != IBV_WC_SUCCESS;
                ++(wc.opcode & IBV_WC_RECV ? received_ : done_);
            }
            return failed || (done_ == posted_ && received_ >= received);
        });
        return outcome == kWell && failed ? kFailedCompletion : outcome;
    }

    // What a member sends in a round. The first word says whether it is asked to stop.
    static std::uint64_t word(std::uint32_t qpn, std::uint32_t round, std::size_t i) {
        return (std::uint64_t{qpn} << 32 | round) * 0x9e3779b97f4a7c15u + i * 0xff51afd7ed558ccdu;
    }

    // Our bytes go into the other's memory, come back from there, and go to it as a message. Both
    // end after a round in which one of them was asked to.
    int exchange(std::uint32_t round) {
        const std::uint64_t asked = round + 1 >= board_.rounds && board_.stop ? 1 : 0;
        const std::uint32_t size = board_.message;
        auto* out = words(kOut);
        out[0] = asked;
        for (std::size_t i = 1; i < size / 8; ++i) out[i] = word(self_.qpn, round, i);
        if (!post(IBV_WR_RDMA_WRITE, kOut, size, kIn) ||
            !post(IBV_WR_RDMA_READ, kReadBack, size, kIn) ||
            !post(IBV_WR_ATOMIC_FETCH_AND_ADD, kFetched, 8, kCounter) ||
            !post(IBV_WR_SEND, kOut, size))
            return kCannotPost;
        if (const int failed = complete(round + 1); failed != kWell) return failed;
        if (std::memcmp(words(kOut), words(kReadBack), size) != 0) return kWrongRead;
        if (*words(kFetched) != round) return kWrongCount;
        const auto* in = words(kReceived + round % 2 * kMessage);
        if (in[0] > 1) return kWrongMessage;
        for (std::size_t i = 1; i < size / 8; ++i)
            if (in[i] != word(far_qpn_, round, i)) return kWrongMessage;
        ended_ = asked == 1 || in[0] == 1;
        if (!receive(round)) return kCannotPost;
        ++self_.rounds;
        return kWell;
    }

    struct Deregister {
        void operator()(ibv_mr* mr) const { ibv_dereg_mr(mr); }
    };
    using Registration = std::unique_ptr<ibv_mr, Deregister>;

    std::uint64_t* words(std::size_t offset) {
        return reinterpret_cast<std::uint64_t*>(memory_.data() + offset);
    }
    std::uint64_t address(std::size_t offset) const {
        return reinterpret_cast<std::uintptr_t>(memory_.data()) + offset;
    }
    ibv_sge sge(std::size_t offset, std::uint32_t length) const {
        return {address(offset), length, mr_->lkey};
    }

    Board& board_;
    Report& self_;
    Report& far_;
    std::uint32_t far_life_ = 0;
    std::uint32_t far_qpn_ = 0;
    std::uint32_t received_ = 0, done_ = 0, posted_ = 0;  // Of this connection.
    bool ended_ = false;
    ibv_context* context_ = nullptr;
    std::vector<char> memory_;
    std::unique_ptr<Endpoint> end_;
    Registration mr_;  // Goes before its protection domain.
};

}  // namespace feroce::share::crowd
