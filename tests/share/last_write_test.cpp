// Two processes of one machine swap WRITEs, and one of them ends the moment it has seen the last
// one in its memory. What it owed for it waited for what it would post next, and reaches its peer
// all the same: it was left behind in the ring (docs/adr/0015-acknowledge-first.md).
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>

#include "endings.hpp"
#include "net_space.hpp"

namespace feroce::share {
namespace {

// Where the peer writes, and what is written from.
constexpr std::size_t kInbox = 0, kOutbox = 4096;

class Swapper {
public:
    explicit Swapper(ibv_context* context) : own_(*new Endpoint(context)) {}  // Until the end.

    bool connect_by(int socket) { return connect(own_, socket, peer_); }
    bool write(int number) {
        own_.memory[kOutbox] = static_cast<char>(number);
        return own_.post(IBV_WR_RDMA_WRITE, own_.sge(kOutbox, 1), peer_.memory + kInbox,
                         peer_.rkey) == 0;
    }
    ibv_wc_status written() const { return own_.completion().status; }
    // The device's thread stores a WRITE and leaves its acknowledgement in one turn. A program that
    // looks and ends within that turn can be too early (ADR 15), and a sanitizer or a busy machine
    // makes turns long. So the test waits for the turn's end: this call needs the same lock.
    void let_turn_end() {
        ibv_qp_attr attributes{};
        ibv_qp_init_attr init{};
        ibv_query_qp(own_.qp, &attributes, IBV_QP_STATE, &init);
    }
    // Polls memory and nothing else.
    bool sees(int number) {
        const std::atomic_ref<char> inbox(own_.memory[kInbox]);
        const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (inbox.load(std::memory_order_acquire) != static_cast<char>(number))
            if (std::chrono::steady_clock::now() > give_up) return false;
        return true;
    }

private:
    Endpoint& own_;
    Address peer_{};
};

// Answers each WRITE but the last.
int answer(int socket, Ending how) {
    ibv_context* context = open("lo");
    if (context == nullptr) return 2;
    Swapper own(context);
    if (!own.connect_by(socket)) return 3;
    for (int i = 1; i <= kMessages; ++i) {
        if (!own.sees(i)) return 4;
        if (i == kMessages) {
            own.let_turn_end();
            end(how);
        }
        if (!own.write(i) || own.written() != IBV_WC_SUCCESS) return 5;
    }
    return 6;
}

int ask(int socket) {
    ibv_context* context = open("lo");
    if (context == nullptr) return 2;
    Swapper own(context);
    if (!own.connect_by(socket)) return 3;
    for (int i = 1; i <= kMessages; ++i) {
        if (!own.write(i)) return 4;
        const ibv_wc_status status = own.written();
        if (status != IBV_WC_SUCCESS) {
            std::fprintf(stderr, "WRITE %d: %s\n", i, ibv_wc_status_str(status));
            return 1;
        }
        if (i < kMessages && !own.sees(i)) return 5;
    }
    return 0;
}

void play(Ending how) {
    int sockets[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    const pid_t answers = ::fork();
    if (answers == 0) {
        ::close(sockets[0]);
        ::_exit(answer(sockets[1], how));
    }
    const pid_t asks = ::fork();
    if (asks == 0) {
        ::close(sockets[1]);
        ::_exit(ask(sockets[0]));
    }
    ::close(sockets[0]);
    ::close(sockets[1]);
    int status = 0;
    EXPECT_EQ(::waitpid(asks, &status, 0), asks);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0) << "the last WRITE was not acknowledged";
    expect_end(answers, how);
}

TEST(LastWrite, IsAcknowledgedThoughItsTargetEnds) {
    enter_private_network();
    each_ending(10, play);
}

}  // namespace
}  // namespace feroce::share
