// Packets that nobody gets, on a real loopback: the sender hears of the peer, and no other packet
// is lost for it.
#include "port/error_queue.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>

#include <vector>

#include "base/random.hpp"
#include "port/address.hpp"
#include "port/error_news.hpp"
#include "port/udp_sender.hpp"

namespace feroce::port::error_queue_test {
namespace {

using namespace std::chrono_literals;

const Gid kUs = Gid::from_v4(0x7f00'0001);      // Somebody receives here.
const Gid kNobody = Gid::from_v4(0x7f00'0002);  // Nobody does here, on the same port.

Gid loopback(bool v4) {
    Gid v6;
    v6.raw[15] = 1;
    return v4 ? kUs : v6;
}

class ErrorQueue : public testing::Test {
protected:
    ErrorQueue() { bind_receiver(kUs); }

    void bind_receiver(const Gid& gid) {
        receiver_ = Fd(::socket(gid.is_v4() ? AF_INET : AF_INET6, SOCK_DGRAM, 0));
        SocketAddress own = socket_address(gid, 0, 0);
        EXPECT_EQ(::bind(receiver_.get(), &own.any, own.length), 0);
        EXPECT_EQ(::getsockname(receiver_.get(), &own.any, &own.length), 0);
        port_ = ntohs(gid.is_v4() ? own.v4.sin_port : own.v6.sin6_port);
        const timeval timeout{10, 0};
        ::setsockopt(receiver_.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
        sender_.emplace(*Network::enter(), addresses_, random_, port_);
        sender_->tell_errors_by(set_.get());
    }
    // To the manager of the peer, as all those for QPN 1.
    void send(const Gid& to, std::uint32_t packets = 1, std::uint32_t size = 64,
              std::uint32_t qpn = 1) {
        std::vector<std::byte> bytes(std::size_t{packets} * size);
        for (std::size_t i = 0; i < bytes.size(); i += size) bytes[i + 7] = std::byte(qpn);
        transport::TransmitRun run;
        run.path.source = loopback(to.is_v4());
        run.path.destination = to;
        run.bytes = bytes;
        run.segment_size = size;
        run.packet_count = packets;
        run.is_for_manager = qpn == 1;
        sender_->transmit(std::span(&run, 1));
    }
    bool set_is_ready(int milliseconds) {
        pollfd polled{set_.get(), POLLIN, 0};
        return ::poll(&polled, 1, milliseconds) == 1;
    }
    std::size_t received(std::size_t wanted) {
        std::size_t count = 0;
        char byte;
        while (count<wanted&& ::recv(receiver_.get(), &byte, 1, MSG_TRUNC)> 0) ++count;
        return count;
    }

    Fd set_{::epoll_create1(EPOLL_CLOEXEC)};
    Fd receiver_;
    std::uint16_t port_ = 0;
    LocalAddresses addresses_;
    Prng random_{7};
    std::optional<UdpSender> sender_;
};

TEST_F(ErrorQueue, APeerThatRefusesIsASuspect) {
    send(kNobody);
    ASSERT_TRUE(set_is_ready(10'000));
    sender_->look_at_errors();
    const cm::Suspects suspects = sender_->take_suspects();
    ASSERT_EQ(suspects.all().size(), 1u);
    EXPECT_EQ(suspects.all()[0].peer, kNobody);
    EXPECT_TRUE(suspects.all()[0].refused);
    EXPECT_FALSE(set_is_ready(0)) << "it would keep its thread awake";
    EXPECT_FALSE(sender_->has_suspects());
}

TEST_F(ErrorQueue, OverIpv6Too) {
    bind_receiver(loopback(false));
    receiver_.reset();
    send(loopback(false));
    ASSERT_TRUE(set_is_ready(10'000));
    sender_->look_at_errors();
    const cm::Suspects suspects = sender_->take_suspects();
    ASSERT_EQ(suspects.all().size(), 1u);
    EXPECT_EQ(suspects.all()[0].peer, loopback(false));
    EXPECT_TRUE(suspects.all()[0].refused);
}

// The kernel fails the next send on the socket, to any peer.
TEST_F(ErrorQueue, PacketsToOthersAreNotLostForIt) {
    for (const std::uint32_t packets : {1u, 13u}) {
        for (int i = 0; i < 50; ++i) {
            send(kNobody);
            ASSERT_TRUE(set_is_ready(10'000));
            send(kUs, packets, 1040);
            ASSERT_EQ(received(packets), packets);
            EXPECT_TRUE(sender_->has_suspects());
            sender_->look_at_errors();
            EXPECT_EQ(sender_->take_suspects().all().size(), 1u);
        }
    }
    EXPECT_EQ(sender_->dropped_packets(), 0u);
    EXPECT_EQ(sender_->send_error({.source = kUs, .destination = kUs}), 0);
    EXPECT_EQ(sender_->send_error({.source = kUs, .destination = kNobody}), 0);
}

// Sockets of queue pairs are in no epoll set: they hear of it when they send again.
TEST_F(ErrorQueue, ThePacketsOfQueuePairsTellAtTheNextSend) {
    constexpr std::uint32_t kQueuePair = 17;
    const auto give_up = std::chrono::steady_clock::now() + 10s;
    while (!sender_->has_suspects() && std::chrono::steady_clock::now() < give_up)
        send(kNobody, 3, 256, kQueuePair);
    const cm::Suspects suspects = sender_->take_suspects();
    ASSERT_NE(suspects.find(kNobody), nullptr);
    EXPECT_TRUE(suspects.find(kNobody)->refused);
    EXPECT_FALSE(set_is_ready(0));
    send(kUs, 13, 1040, kQueuePair);
    EXPECT_EQ(received(13), 13u);
    EXPECT_EQ(sender_->dropped_packets(), 0u);
}

// More than the queue holds: the rest is forgotten, and nothing is left behind.
TEST_F(ErrorQueue, AFloodIsReadInPartsAndEnds) {
    for (int i = 0; i < 500; ++i) send(kNobody, 1, 1040);
    ASSERT_TRUE(set_is_ready(10'000));
    int rounds = 0;
    for (; rounds < 100 && set_is_ready(0); ++rounds) sender_->look_at_errors();
    EXPECT_LT(rounds, 100);
    EXPECT_NE(sender_->take_suspects().find(kNobody), nullptr);
    send(kUs, 13, 1040);
    EXPECT_EQ(received(13), 13u);
}

// Strangers' datagrams would take the room of errors.
TEST_F(ErrorQueue, WhatIsSentToASocketToSendFromIsNotKept) {
    send(kUs);
    SocketAddress from;
    from.length = sizeof from.v6;
    char bytes[1400] = {};
    ASSERT_GT(::recvfrom(receiver_.get(), bytes, sizeof bytes, 0, &from.any, &from.length), 0);
    for (int i = 0; i < 200; ++i)
        ASSERT_GT(::sendto(receiver_.get(), bytes, sizeof bytes, 0, &from.any, from.length), 0);
    send(kNobody, 1, 1040);
    ASSERT_TRUE(set_is_ready(10'000));
    sender_->look_at_errors();
    EXPECT_NE(sender_->take_suspects().find(kNobody), nullptr);
}

TEST(ErrorNews, IsToldSoonAndNotTooOften) {
    ErrorNews news;
    const Instant start = Instant{} + 1s;
    EXPECT_EQ(news.due(), kNever);
    EXPECT_FALSE(news.take(start));
    EXPECT_TRUE(news.note());
    EXPECT_FALSE(news.note());
    EXPECT_LE(news.due(), start);
    EXPECT_TRUE(news.take(start));
    EXPECT_EQ(news.due(), kNever);
    EXPECT_TRUE(news.note());
    EXPECT_FALSE(news.take(start + 99ms));
    EXPECT_EQ(news.due(), start + 100ms);
    EXPECT_TRUE(news.take(start + 100ms));
}

}  // namespace
}  // namespace feroce::port::error_queue_test
