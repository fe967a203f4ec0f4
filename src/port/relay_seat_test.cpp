#include "port/relay_seat.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "port/relay_server.hpp"

namespace feroce::port::relay_seat_test {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;

std::atomic<int> signals{0};

// A handler without SA_RESTART, as for a program's timer, while this object lives.
class HandledSignal {
public:
    HandledSignal() {
        struct sigaction action {};
        action.sa_handler = [](int) { ++signals; };
        ::sigaction(SIGUSR1, &action, &before_);
    }
    ~HandledSignal() { ::sigaction(SIGUSR1, &before_, nullptr); }

private:
    struct sigaction before_ {};
};

template <class Condition>
bool await(const Condition& met) {
    const auto give_up = steady_clock::now() + seconds(20);
    while (!met() && steady_clock::now() < give_up) std::this_thread::yield();
    return met();
}

bool sleeps(pid_t thread) {
    std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
    std::string line;
    std::getline(file, line);
    const std::size_t at = line.rfind(") ");
    return at != line.npos && line[at + 2] == 'S';
}

// Answers after the asking thread has handled some signals while it waited.
void answer_late(Fd connection, pthread_t asker, pid_t asker_id) {
    GuestMessage question;
    pollfd asked{connection.get(), POLLIN, 0};
    if (::poll(&asked, 1, 20'000) != 1) return;
    if (::recv(connection.get(), &question, sizeof question, 0) != sizeof question) return;
    for (int i = 0; i < 3; ++i) {
        const int before = signals;
        if (!await([&] { return sleeps(asker_id); })) return;
        ::pthread_kill(asker, SIGUSR1);
        if (!await([&] { return signals > before; })) return;
    }
    const GuestMessage answer{.kind = GuestMessage::Kind::Answer, .slot = 61, .token = 7};
    (void)!::send(connection.get(), &answer, sizeof answer, MSG_NOSIGNAL);
}

TEST(RelaySeat, ASignalDoesNotEndTheWaitForTheAnswer) {
    const HandledSignal handled;
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    std::thread relay(answer_late, Fd(pair[1]), ::pthread_self(), ::gettid());
    const Result<RelaySeat> seat = RelaySeat::ask_over(Fd(pair[0]), 0, {}, seconds(60));
    relay.join();
    ASSERT_TRUE(seat.has_value()) << seat.error().why;
    EXPECT_EQ(seat->slot, 61);
    EXPECT_EQ(seat->token, 7u);
}

TEST(RelaySeat, SilenceEndsTheWaitAtItsTime) {
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    const Fd relay(pair[1]);
    const Result<RelaySeat> seat =
        RelaySeat::ask_over(Fd(pair[0]), 0, {}, std::chrono::milliseconds(20));
    ASSERT_FALSE(seat.has_value());
    EXPECT_EQ(seat.error().code, EAGAIN);
}

}  // namespace
}  // namespace feroce::port::relay_seat_test
