// A process forks while another of its threads enters the port, claims slots, adds some and leaves.
#include "port/fork_gate.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <semaphore>
#include <string_view>
#include <thread>
#include <vector>

#include "base/random.hpp"
#include "port/guest_port.hpp"
#include "port/network.hpp"
#include "port/parcel_receiver.hpp"
#include "port/port_entry.hpp"

namespace feroce::port::fork_gate {
namespace {

std::uint16_t test_port() {
    static const auto port = static_cast<std::uint16_t>(20000 + ::getpid() % 20000);
    return port;  // The same in a forked child.
}

// Whether it is a socket of the port's group, or that by which its processes meet.
bool is_of_the_group(int fd) {
    union {
        sockaddr any;
        sockaddr_in v4;
        sockaddr_in6 v6;
        sockaddr_un name;
    } address{};
    socklen_t length = sizeof address;
    if (::getsockname(fd, &address.any, &length) != 0) return false;
    if (address.any.sa_family == AF_INET) return ntohs(address.v4.sin_port) == test_port();
    if (address.any.sa_family == AF_INET6) return ntohs(address.v6.sin6_port) == test_port();
    const std::string_view bytes(address.name.sun_path, sizeof address.name.sun_path);
    return address.any.sa_family == AF_UNIX && bytes.find("feroce/udp/") == 1;
}

int sockets_of_the_group() {
    int count = 0;
    for (int fd = 0; fd < 1024; ++fd) count += is_of_the_group(fd) ? 1 : 0;
    return count;
}

// Until told to stop; how often it was in the port.
class Restless {
public:
    explicit Restless(std::shared_ptr<ForkGate> gate) : gate_(std::move(gate)) {
        thread_ = std::thread([this] {
            while (!stop_) come_and_go();
        });
    }
    ~Restless() {
        stop_ = true;
        thread_.join();
    }
    int visits() const { return visits_; }

private:
    void come_and_go() {
        Result<PortEntry> entry = enter_port(test_port(), capture_identity(Sharing::Default), {},
                                             std::chrono::milliseconds(500), gate_);
        if (!entry || !entry->group) return;
        for (std::uint32_t i = 0; i <= kChunkMembers; ++i)  // One more than there are at first.
            if (!entry->group->claim()) return;
        ++visits_;
    }

    std::shared_ptr<ForkGate> gate_;
    std::atomic<bool> stop_{false};
    std::atomic<int> visits_{0};
    std::thread thread_;
};

TEST(ForkGate, AChildKeepsNoSocketOfTheGroup) {
    const auto gate = std::make_shared<ForkGate>();
    const Restless restless(gate);
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(200);
    int forks = 0;
    while ((forks < 100 || restless.visits() < 20) && std::chrono::steady_clock::now() < give_up) {
        if (!gate->before_fork()) continue;  // The machine is overloaded; a child would keep some.
        const pid_t child = ::fork();
        if (child == 0) {
            gate->abandon();
            ::_exit(std::min(sockets_of_the_group(), 100));
        }
        gate->after_fork();
        int status = -1;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        ASSERT_TRUE(WIFEXITED(status));
        ASSERT_EQ(WEXITSTATUS(status), 0) << "sockets that a child has kept, at fork " << forks;
        ++forks;
    }
    EXPECT_GE(restless.visits(), 20);
}

TEST(ForkGate, AForkIsToldThatItDidNotGetTheGate) {
    using std::chrono::milliseconds;
    ForkGate gate;
    std::binary_semaphore held(0), end(0);
    std::thread holder([&] {
        const ForkGate::Hold hold(gate);
        held.release();
        end.acquire();
    });
    held.acquire();
    EXPECT_FALSE(gate.before_fork(milliseconds(1)));
    gate.after_fork();  // Leaves the gate to the thread that holds it.
    EXPECT_FALSE(gate.before_fork(milliseconds(1)));
    end.release();
    EXPECT_TRUE(gate.before_fork());
    gate.after_fork();
    holder.join();
}

// A thread that waits for a processor is not one that will never go on.
TEST(ForkGate, AForkWaitsForAThreadThatWasKeptFromItsProcessor) {
    static_assert(ForkGate::kPatience >= std::chrono::seconds(10));
    ForkGate gate;
    std::binary_semaphore held(0), end(0);
    std::thread holder([&] {
        const ForkGate::Hold hold(gate);
        held.release();
        end.acquire();
    });
    held.acquire();
    EXPECT_FALSE(gate.before_fork(std::chrono::milliseconds(0)));
    end.release();
    EXPECT_TRUE(gate.before_fork(std::chrono::hours(1)));  // However late the holder runs.
    gate.after_fork();
    holder.join();
}

// The number of its connection may be that of a file of the program by then.
TEST(ForkGate, AChildClosesNothingOfAGuestPortThatIsGone) {
    const auto gate = std::make_shared<ForkGate>();
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    const Fd relay(pair[1]);
    RelaySeat seat;
    seat.connection = Fd(pair[0]);
    seat.slot = 61;
    Prng random(7);
    GuestPort::Settings settings{
        *Network::enter(), random, test_port(), {}, {}, std::make_shared<SeatTokens>(), gate};
    Result<std::unique_ptr<host::HostPort>> port = GuestPort::open(std::move(seat), settings);
    ASSERT_TRUE(port.has_value());
    port->reset();
    ASSERT_EQ(::dup2(relay.get(), pair[0]), pair[0]);
    const Fd of_the_program(pair[0]);
    gate->abandon();
    EXPECT_NE(::fcntl(pair[0], F_GETFD), -1);
}

// Ends of ties may lie in it, which would never end.
TEST(ForkGate, AChildClosesWhatNeighboursSendTo) {
    const auto gate = std::make_shared<ForkGate>();
    Result<PortEntry> entry = enter_port(test_port(), capture_identity(Sharing::Default), {},
                                         std::chrono::milliseconds(500), gate);
    ASSERT_TRUE(entry.has_value() && entry->group) << entry.error().why;
    const HandOverReceiver receiver(*entry->group, 1, nullptr);
    EXPECT_GE(receiver.fd(), 0);
    gate->abandon();
    EXPECT_EQ(receiver.fd(), -1);
}

}  // namespace
}  // namespace feroce::port::fork_gate
