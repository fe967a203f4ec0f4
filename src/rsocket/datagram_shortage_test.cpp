// An rsocket of datagrams that gets no memory for one of them while a thread leaves its sleep.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <unistd.h>

#include <array>
#include <string>

#include "base/test_refused_size.hpp"
#include "rsocket/datagram_socket.hpp"

namespace feroce::rsockets::datagram_shortage_test {
namespace {

constexpr std::size_t kSize = 1511;  // Nothing else allocates as much.

// A UDP datagram as an rsocket of 127.0.0.1 sends it.
std::string packet(std::size_t size, char filler) {
    return std::string("\x55\x55\x55\x55\x04\0\x10\0\0\0\0\x01\x7f\0\0\x01", 16) +
           std::string(size, filler);
}

TEST(DatagramShortage, ADatagramWithoutMemoryIsLostAndTheSleeperLeaves) {
    const auto socket = DatagramSocket::create(AF_INET, true);
    ASSERT_TRUE(socket);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const plain = reinterpret_cast<sockaddr*>(&address);
    socklen_t length = sizeof address;
    ASSERT_TRUE((*socket)->bind(plain, length));
    ASSERT_TRUE((*socket)->local_name(plain, &length));
    const int peer = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ASSERT_GE(peer, 0);
    ASSERT_EQ(::connect(peer, plain, length), 0);

    std::vector<pollfd> on;
    ASSERT_TRUE((*socket)->begin_sleep(on));
    const std::string lost = packet(kSize, 'l');
    ASSERT_EQ(::send(peer, lost.data(), lost.size(), 0), static_cast<ssize_t>(lost.size()));
    ASSERT_EQ(::poll(on.data(), on.size(), 30'000), 1);
    refused_size = kSize;
    EXPECT_NO_THROW((*socket)->end_sleep(true));
    refused_size = 0;

    const std::string kept = packet(7, 'k');
    ASSERT_EQ(::send(peer, kept.data(), kept.size(), 0), static_cast<ssize_t>(kept.size()));
    std::array<char, 4096> room;
    const std::array<iovec, 1> to{{{room.data(), room.size()}}};
    const Result<std::size_t> size = (*socket)->receive(to, 0, {});
    ASSERT_TRUE(size);
    EXPECT_EQ(std::string(room.data(), *size), "kkkkkkk");
    (*socket)->close();
    ::close(peer);
}

}  // namespace
}  // namespace feroce::rsockets::datagram_shortage_test
