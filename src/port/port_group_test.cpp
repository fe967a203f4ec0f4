// Processes that share the port: real sockets on loopback, on a port number of the test's own.
#include "port/port_group.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <thread>

#include "port/port_entry.hpp"

namespace feroce::port {
namespace {

std::uint16_t test_port() {
    static const auto port = static_cast<std::uint16_t>(20000 + ::getpid() % 20000);
    return port;  // The same in a forked child.
}

Result<std::shared_ptr<PortGroup>> enter() {
    Result<PortEntry> entry = enter_port(test_port(), capture_identity(Sharing::Default), {},
                                         std::chrono::milliseconds(500));
    if (!entry) return entry.error();
    return std::move(entry->group);
}

// A datagram as the filter sees it: only the destination QPN matters.
void send_to_qpn(std::uint16_t port, std::uint32_t qpn) {
    std::array<unsigned char, 16> bytes{};
    bytes[5] = static_cast<unsigned char>(qpn >> 16);
    bytes[6] = static_cast<unsigned char>(qpn >> 8);
    bytes[7] = static_cast<unsigned char>(qpn);
    const Fd fd(::socket(AF_INET, SOCK_DGRAM, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(::sendto(fd.get(), bytes.data(), bytes.size(), 0,
                       reinterpret_cast<const sockaddr*>(&to), sizeof to),
              static_cast<ssize_t>(bytes.size()));
}

bool readable(int fd) {
    pollfd p{fd, POLLIN, 0};
    return ::poll(&p, 1, 0) == 1;
}

// Serves newcomers until destroyed.
class Server {
public:
    explicit Server(PortGroup& group) : group_(group) {
        thread_ = std::thread([this] {
            while (!stop_) {
                pollfd p{group_.listener(), POLLIN, 0};
                if (::poll(&p, 1, 10) == 1) group_.serve();
            }
        });
    }
    ~Server() {
        stop_ = true;
        thread_.join();
    }

private:
    PortGroup& group_;
    std::atomic<bool> stop_{false};
    std::thread thread_;
};

TEST(PortGroup, SlotsOfOneProcessDiffer) {
    Result<std::shared_ptr<PortGroup>> group = enter();
    ASSERT_TRUE(group.has_value()) << group.error().why;
    const auto first = (*group)->claim();
    const auto second = (*group)->claim();
    ASSERT_TRUE(first && second);
    EXPECT_NE(*first, *second);
    EXPECT_NE(*first, 0);
    (*group)->release(*first);
    EXPECT_EQ((*group)->claim(), first);
}

TEST(PortGroup, SteersByTheTopByteOfTheQpn) {
    Result<std::shared_ptr<PortGroup>> group = enter();
    ASSERT_TRUE(group.has_value()) << group.error().why;
    for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
        send_to_qpn(test_port(), slot << 16 | 0x1234);
        for (std::uint32_t other = 0; other < kSlots; ++other) {
            const int fd = (*group)->socket_v4(static_cast<std::uint8_t>(other));
            EXPECT_EQ(readable(fd), other == slot) << "slot " << slot << ", socket " << other;
        }
        char byte;
        ::recv((*group)->socket_v4(static_cast<std::uint8_t>(slot)), &byte, 1, 0);
    }
}

TEST(PortGroup, ClaimDrainsWhatTheLastOwnerLeft) {
    Result<std::shared_ptr<PortGroup>> group = enter();
    ASSERT_TRUE(group.has_value());
    send_to_qpn(test_port(), 0x01'0000);
    ASSERT_TRUE(readable((*group)->socket_v4(1)));
    EXPECT_EQ((*group)->claim(), 1);
    EXPECT_FALSE(readable((*group)->socket_v4(1)));
}

TEST(PortGroup, AKilledMemberFreesItsSlotAndLeavesTheOthersAlone) {
    Result<std::shared_ptr<PortGroup>> group = enter();
    ASSERT_TRUE(group.has_value());
    ASSERT_EQ((*group)->claim(), 1);
    int pipe_fds[2];
    ASSERT_EQ(::pipe(pipe_fds), 0);
    const pid_t child = ::fork();
    if (child == 0) {
        // The fork inherited the parent's group; a member of its own comes in by the front door.
        Result<std::shared_ptr<PortGroup>> own = enter();
        const char slot = own ? static_cast<char>((*own)->claim().value_or(0)) : 0;
        (void)!::write(pipe_fds[1], &slot, 1);
        ::pause();
    }
    char slot = 0;
    {
        const Server server(**group);
        ASSERT_EQ(::read(pipe_fds[0], &slot, 1), 1);
    }
    EXPECT_EQ(slot, 2);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    EXPECT_EQ((*group)->claim(), 2);
    send_to_qpn(test_port(), 0x01'0005);
    EXPECT_TRUE(readable((*group)->socket_v4(1)));
    ::close(pipe_fds[0]);
    ::close(pipe_fds[1]);
}

TEST(PortGroup, AForeignOwnerOfThePortIsNamed) {
    const Fd other(::socket(AF_INET, SOCK_DGRAM, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(test_port());
    ASSERT_EQ(::bind(other.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    const Result<std::shared_ptr<PortGroup>> group = enter();
    ASSERT_FALSE(group.has_value());
    EXPECT_EQ(group.error().code, EADDRINUSE);
}

}  // namespace
}  // namespace feroce::port
