// A guest that floods the process which relays for it. That process belongs to another user: it
// must live on, with the threads and the memory that it had.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "attacks.hpp"
#include "watched.hpp"

namespace feroce::share {
namespace {

using port::GuestMessage;
using std::chrono::seconds;

// A user of this run alone, because a limit on threads counts all that a user has on the machine.
const unsigned kVictim = 1'000'000 + static_cast<unsigned>(::getpid());

port::Fd sit_down(std::uint32_t owner) {
    Result<port::Fd> connection = port::connect_to_group(kPort, owner);
    if (!connection) return port::Fd();
    const GuestMessage ask{.kind = GuestMessage::Kind::Ask};
    GuestMessage answer;
    ::send(connection->get(), &ask, sizeof ask, MSG_NOSIGNAL);
    const ssize_t n = ::recv(connection->get(), &answer, sizeof answer, 0);
    return n == sizeof answer && answer.refusal == 0 ? std::move(*connection) : port::Fd();
}

// Says the same again and again, over a new connection whenever one is lost. The exit status.
int flood_with_wishes(std::uint32_t owner, int count) {
    port::Fd seat = sit_down(owner);
    if (!seat.valid()) return 2;
    const GuestMessage wish{.kind = GuestMessage::Kind::WantRequests};
    const Clock::time_point give_up = Clock::now() + seconds(120 + count / 1000);
    int sent = 0;
    while (sent < count && Clock::now() < give_up) {
        // Without a seat it is said, too.
        if (!seat.valid()) {
            Result<port::Fd> connection = port::connect_to_group(kPort, owner);
            if (connection) seat = std::move(*connection);
        }
        if (seat.valid() && ::send(seat.get(), &wish, sizeof wish, MSG_NOSIGNAL) > 0)
            ++sent;
        else
            seat = sent % 64 == 0 ? sit_down(owner) : port::Fd();
    }
    return sent == count ? 0 : 3;
}

class HostileGuest : public testing::Test {
protected:
    void SetUp() override { enter_private_network(); }
    void TearDown() override {
        if (victim > 0) ::kill(victim, SIGKILL);
        if (victim > 0) ::waitpid(victim, nullptr, 0);
    }
    // A process that owns the port; it may have one more thread if it is `limited`.
    void start_victim(bool limited) {
        int ready[2];
        ASSERT_EQ(::pipe(ready), 0);
        victim = ::fork();
        if (victim == 0) {
            if (::setresgid(kVictim, kVictim, kVictim) != 0 ||
                ::setresuid(kVictim, kVictim, kVictim) != 0 || verbs::open_loopback() == nullptr)
                ::_exit(1);
            // The relay needs a thread before there can be guests.
            const auto most = static_cast<rlim_t>(status_of(::getpid(), "Threads") + 1);
            const rlimit limit{most, most};
            if (limited && ::setrlimit(RLIMIT_NPROC, &limit) != 0) ::_exit(1);
            (void)!::write(ready[1], "r", 1);
            for (;;) ::pause();
        }
        ::close(ready[1]);
        char byte;
        ASSERT_EQ(::read(ready[0], &byte, 1), 1);
        ::close(ready[0]);
    }
    static pid_t start_attacker(int count) {
        const pid_t attacker = ::fork();
        if (attacker == 0) ::_exit(become_ordinary_user() ? flood_with_wishes(kVictim, count) : 99);
        return attacker;
    }
    bool victim_lives() const { return ::waitpid(victim, nullptr, WNOHANG) == 0; }

    pid_t victim = -1;
};

TEST_F(HostileGuest, CostsItsRelayNoThreadsAndNoMemory) {
    start_victim(false);
    Watched watched(victim);
    EXPECT_EQ(watched.look_until_end_of(start_attacker(messages())), 0);
    ASSERT_TRUE(victim_lives());
    watched.print(messages());
    // The relay's thread, the one that starts the connection manager, and the manager's own.
    EXPECT_LE(watched.threads, watched.threads_before + 3);
    EXPECT_LE(watched.memory, watched.memory_before + kGrowth);
    EXPECT_LE(watched.cpu(), 5 + 1e-3 * messages());
}

TEST_F(HostileGuest, DoesNotEndAProcessThatMayHaveNoMoreThreads) {
    start_victim(true);
    Watched watched(victim);
    EXPECT_EQ(watched.look_until_end_of(start_attacker(2000)), 0);
    EXPECT_TRUE(victim_lives());
    // The one that would start the connection manager; it may end between two looks.
    EXPECT_LE(watched.threads, watched.threads_before + 1);
}

TEST_F(HostileGuest, LeavesOtherUsersTheirSlots) {
    start_victim(false);
    const pid_t attacker = ::fork();
    if (attacker == 0) {
        if (!become_ordinary_user()) ::_exit(99);
        for (int round = 0; round < 4; ++round) {
            std::vector<port::Fd> seats;
            for (std::uint32_t i = 0; i < port::kSeatsPerUser; ++i)
                seats.push_back(sit_down(kVictim));
        }
        ::_exit(0);
    }
    EXPECT_EQ(exit_status(attacker), 0);
    const pid_t other = ::fork();
    if (other == 0) {
        constexpr unsigned kOther = 65531;
        if (::setresuid(kOther, kOther, kOther) != 0) ::_exit(99);
        ::_exit(verbs::open_loopback() != nullptr ? 0 : errno);
    }
    EXPECT_EQ(exit_status(other), 0);
}

}  // namespace
}  // namespace feroce::share
