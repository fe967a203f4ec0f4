// What leaves a UdpSender verifies at the receiver: its guess of the IPv4 ids was right.
#include "port/udp_sender.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "base/random.hpp"
#include "port/address.hpp"
#include "wire/packet.hpp"

namespace feroce::port {
namespace {

struct Received {
    std::vector<std::byte> bytes;
    std::uint16_t source_port = 0;
};

// A plain socket: the kernel takes segmented sends apart before it.
class Receiver {
public:
    explicit Receiver(const Gid& gid)
        : gid_(gid), fd_(::socket(gid.is_v4() ? AF_INET : AF_INET6, SOCK_DGRAM, 0)) {
        SocketAddress own = socket_address(gid, 0, 0);
        EXPECT_EQ(::bind(fd_.get(), &own.any, own.length), 0);
        EXPECT_EQ(::getsockname(fd_.get(), &own.any, &own.length), 0);
        port_ = ntohs(gid.is_v4() ? own.v4.sin_port : own.v6.sin6_port);
        const timeval timeout{5, 0};
        ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    }
    std::uint16_t port() const { return port_; }

    Received take() {
        Received out;
        out.bytes.resize(65536);
        SocketAddress from;
        from.length = sizeof from.v6;
        const ssize_t n =
            ::recvfrom(fd_.get(), out.bytes.data(), out.bytes.size(), 0, &from.any, &from.length);
        out.bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
        out.source_port = ntohs(gid_.is_v4() ? from.v4.sin_port : from.v6.sin6_port);
        return out;
    }

private:
    Gid gid_;
    Fd fd_;
    std::uint16_t port_ = 0;
};

Gid loopback_v6() {
    Gid gid;
    gid.raw[15] = 1;
    return gid;
}

void check_run(const Gid& gid, std::uint32_t packets, std::uint32_t size,
               bool segmentation = true) {
    Receiver receiver(gid);
    Prng random(7);
    UdpSender sender(random, receiver.port());
    if (!segmentation) sender.forgo_segmentation();
    std::vector<std::byte> bytes(packets * size, std::byte{0x5a});
    transport::TransmitRun run;
    run.path.source = run.path.destination = gid;
    run.bytes = bytes;
    run.segment_size = size;
    run.packet_count = packets;
    sender.transmit(std::span(&run, 1));
    for (std::uint32_t i = 0; i < packets; ++i) {
        const Received got = receiver.take();
        ASSERT_EQ(got.bytes.size(), size);
        const auto id = static_cast<std::uint16_t>(packets > 1 && segmentation ? i : 0);
        EXPECT_TRUE(wire::verify({gid, gid, got.source_port, receiver.port()}, id, got.bytes));
        EXPECT_GE(got.source_port, 0xc000);
    }
    EXPECT_EQ(sender.dropped_packets(), 0u);
}

TEST(UdpSender, SinglePacketOverIpv4) {
    check_run(Gid::from_v4(0x7f00'0001), 1, 64);
}
TEST(UdpSender, SegmentedRunOverIpv4) {
    check_run(Gid::from_v4(0x7f00'0001), 13, 1040);
}
TEST(UdpSender, SinglePacketOverIpv6) {
    check_run(loopback_v6(), 1, 64);
}
TEST(UdpSender, SegmentedRunOverIpv6) {
    check_run(loopback_v6(), 13, 1040);
}

TEST(UdpSender, WithoutSegmentationPacketsGoOneByOne) {
    check_run(Gid::from_v4(0x7f00'0001), 13, 1040, false);
    check_run(loopback_v6(), 13, 1040, false);
}
// Beyond what one segmented send may hold the kernel refuses, and the packets go one by one.
TEST(UdpSender, ARefusedSegmentedSendIsSentOneByOne) {
    Receiver receiver(Gid::from_v4(0x7f00'0001));
    Prng random(7);
    UdpSender sender(random, receiver.port());
    std::vector<std::byte> bytes(200 * 64, std::byte{0x5a});
    transport::TransmitRun run;
    run.path.source = run.path.destination = Gid::from_v4(0x7f00'0001);
    run.bytes = bytes;
    run.segment_size = 64;
    run.packet_count = 200;
    sender.transmit(std::span(&run, 1));
    for (std::uint32_t i = 0; i < 200; ++i) ASSERT_EQ(receiver.take().bytes.size(), 64u) << i;
    EXPECT_EQ(sender.dropped_packets(), 0u);
}

TEST(UdpSender, CountsWhatItCannotSend) {
    Prng random(7);
    UdpSender sender(random, 9);
    std::vector<std::byte> bytes(64);
    transport::TransmitRun run;
    // Not an address of this machine: no socket can be bound to it.
    run.path.source = run.path.destination = Gid::from_v4(0xc000'0201);
    run.bytes = bytes;
    run.segment_size = 64;
    run.packet_count = 1;
    sender.transmit(std::span(&run, 1));
    EXPECT_EQ(sender.dropped_packets(), 1u);
    EXPECT_EQ(sender.send_error(run.path), EADDRNOTAVAIL);
    // A trouble belongs to its path.
    run.path.source = run.path.destination = Gid::from_v4(0x7f00'0001);
    EXPECT_EQ(sender.send_error(run.path), 0);
}

}  // namespace
}  // namespace feroce::port
