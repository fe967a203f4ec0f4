// What leaves a UdpSender verifies at the receiver: its guess of the IPv4 ids was right.
#include "port/udp_sender.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "port/address.hpp"
#include "wire/packet.hpp"
#include "wire/pcapng.hpp"

namespace feroce::port {
namespace {

const LocalAddresses no_addresses;  // Loopback needs no interface's index.

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
    int fd() const { return fd_.get(); }
    bool has_more() const {  // On loopback: now or never.
        char byte;
        return ::recv(fd_.get(), &byte, 1, MSG_DONTWAIT | MSG_PEEK) >= 0;
    }

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
    UdpSender sender(*Network::enter(), no_addresses, random, receiver.port());
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
    UdpSender sender(*Network::enter(), no_addresses, random, receiver.port());
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

// Asks for more of a packet than its bytes.
struct Seen {
    std::size_t size = 0;
    int hop_limit = 0;
    int traffic_class = 0;
};

class Onlooker {
public:
    explicit Onlooker(const Gid& gid) : v4_(gid.is_v4()), receiver_(gid) {
        const int on = 1;
        ::setsockopt(receiver_.fd(), v4_ ? IPPROTO_IP : IPPROTO_IPV6,
                     v4_ ? IP_RECVTTL : IPV6_RECVHOPLIMIT, &on, sizeof on);
        ::setsockopt(receiver_.fd(), v4_ ? IPPROTO_IP : IPPROTO_IPV6,
                     v4_ ? IP_RECVTOS : IPV6_RECVTCLASS, &on, sizeof on);
    }
    std::uint16_t port() const { return receiver_.port(); }

    Seen take() {
        std::array<std::byte, 4096> bytes;
        alignas(cmsghdr) std::array<char, 256> control{};
        iovec vec{bytes.data(), bytes.size()};
        msghdr header{};
        header.msg_iov = &vec;
        header.msg_iovlen = 1;
        header.msg_control = control.data();
        header.msg_controllen = control.size();
        Seen out;
        const ssize_t n = ::recvmsg(receiver_.fd(), &header, 0);
        if (n < 0) return out;
        out.size = static_cast<std::size_t>(n);
        for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
            const bool hops = c->cmsg_type == (v4_ ? IP_TTL : IPV6_HOPLIMIT);
            int value = 0;
            std::memcpy(&value, CMSG_DATA(c), v4_ && !hops ? 1 : sizeof value);
            (hops ? out.hop_limit : out.traffic_class) = value;
        }
        return out;
    }

private:
    bool v4_;
    Receiver receiver_;
};

// Long enough for the socket to get used to each way of sending, and back again.
void check_manners(const Gid& gid) {
    Onlooker onlooker(gid);
    Prng random(7);
    UdpSender sender(*Network::enter(), no_addresses, random, onlooker.port());
    std::vector<std::byte> bytes(3000, std::byte{0x5a});
    struct Sort {
        std::uint32_t packets, size;
        std::uint8_t hop_limit, traffic_class;
    };
    const std::vector<Sort> sorts{{1, 64, 64, 0},    {1, 64, 255, 0},  {2, 100, 255, 0},
                                  {1, 64, 255, 0},   {1, 900, 255, 0}, {2, 900, 3, 0x68},
                                  {1, 900, 3, 0x68}, {1, 1000, 64, 0}, {3, 64, 0, 2}};
    for (const std::size_t repeats : {1, 5, 40}) {
        for (const Sort& sort : sorts) {
            for (std::size_t i = 0; i < repeats; ++i) {
                transport::TransmitRun run;
                run.path.source = run.path.destination = gid;
                run.path.hop_limit = sort.hop_limit;
                run.path.traffic_class = sort.traffic_class;
                run.bytes = ByteSpan(bytes).first(sort.packets * sort.size);
                run.segment_size = sort.size;
                run.packet_count = sort.packets;
                sender.transmit(std::span(&run, 1));
                for (std::uint32_t packet = 0; packet < sort.packets; ++packet) {
                    const Seen seen = onlooker.take();
                    ASSERT_EQ(seen.size, sort.size);
                    ASSERT_EQ(seen.hop_limit, sort.hop_limit == 0 ? 64 : sort.hop_limit);
                    ASSERT_EQ(seen.traffic_class, sort.traffic_class);
                }
            }
        }
    }
    EXPECT_EQ(sender.dropped_packets(), 0u);
}

// Where the socket itself segments by now, no packet is lost, sent twice or sent whole.
TEST(UdpSender, ASegmentedSendThatIsRefusedLateIsSentOneByOne) {
    const Gid gid = Gid::from_v4(0x7f00'0001);
    constexpr std::uint32_t kSize = 64, kTooMany = 200;
    for (const bool in_a_batch : {false, true}) {
        Receiver receiver(gid);
        Prng random(7);
        UdpSender sender(*Network::enter(), no_addresses, random, receiver.port());
        std::vector<std::byte> bytes(kTooMany * kSize, std::byte{0x5a});
        const auto run_of = [&](std::uint32_t packets) {
            transport::TransmitRun run;
            run.path.source = run.path.destination = gid;
            run.bytes = ByteSpan(bytes).first(packets * kSize);
            run.segment_size = kSize;
            run.packet_count = packets;
            return run;
        };
        const auto expect_packets = [&](std::uint32_t count) {
            for (std::uint32_t i = 0; i < count; ++i)
                ASSERT_EQ(receiver.take().bytes.size(), kSize) << i;
        };
        const transport::TransmitRun pair = run_of(2);
        for (int i = 0; i < 40; ++i) {
            sender.transmit(std::span(&pair, 1));
            expect_packets(2);
        }
        std::vector<transport::TransmitRun> runs{run_of(kTooMany)};
        if (in_a_batch) runs = {run_of(1), run_of(2), run_of(kTooMany), run_of(2), run_of(1)};
        sender.transmit(runs);
        expect_packets(in_a_batch ? kTooMany + 6 : kTooMany);
        EXPECT_EQ(sender.dropped_packets(), 0u);
        EXPECT_FALSE(receiver.has_more());
    }
}

// What cannot be segmented does not overtake what it was posted behind.
TEST(UdpSender, KeepsTheOrderWhereSomeRunsAreCut) {
    const Gid gid = Gid::from_v4(0x7f00'0001);
    Receiver receiver(gid);
    Prng random(7);
    UdpSender sender(*Network::enter(), no_addresses, random, receiver.port());
    sender.forgo_segmentation();
    std::vector<std::byte> bytes(1000, std::byte{0x5a});
    std::vector<transport::TransmitRun> runs;
    for (const std::uint32_t packets : {1u, 2u, 1u, 3u}) {
        transport::TransmitRun run;
        run.path.source = run.path.destination = gid;
        run.segment_size = static_cast<std::uint32_t>(60 + 4 * runs.size());
        run.bytes = ByteSpan(bytes).first(packets * run.segment_size);
        run.packet_count = packets;
        runs.push_back(run);
    }
    sender.transmit(runs);
    std::vector<std::size_t> sizes;
    for (int i = 0; i < 7; ++i) sizes.push_back(receiver.take().bytes.size());
    EXPECT_EQ(sizes, (std::vector<std::size_t>{60, 64, 64, 68, 72, 72, 72}));
    EXPECT_FALSE(receiver.has_more());
}

// Damage is done to what is sealed, or the receiver could not see it; a duplicate has the same.
TEST(UdpSender, DamagesWhatIsSealed) {
    const Gid gid = Gid::from_v4(0x7f00'0001);
    Receiver receiver(gid);
    Prng random(7);
    FaultInjector faults({.duplicate = 1, .corrupt = 1});
    UdpSender sender(*Network::enter(), no_addresses, random, receiver.port(), {.faults = &faults});
    std::vector<std::byte> bytes(4 * 64, std::byte{0x5a});
    transport::TransmitRun run;
    run.path.source = run.path.destination = gid;
    run.bytes = bytes;
    run.segment_size = 64;
    run.packet_count = 4;
    sender.transmit(std::span(&run, 1));
    for (int i = 0; i < 4; ++i) {
        const Received first = receiver.take();
        const wire::DatagramAddress address{gid, gid, first.source_port, receiver.port()};
        EXPECT_FALSE(wire::verify(address, 0, first.bytes)) << i;
        EXPECT_EQ(receiver.take().bytes, first.bytes) << i;
    }
    EXPECT_FALSE(receiver.has_more());
}

// A capture shows what left, in its order: what faults held back as well.
TEST(UdpSender, CapturesWhatLeavesLate) {
    const Gid gid = Gid::from_v4(0x7f00'0001);
    Receiver receiver(gid);
    Prng random(7);
    FaultInjector faults({.reorder = 0.5});
    const std::string path = testing::TempDir() + "sender." + std::to_string(::getpid());
    const std::unique_ptr<Capture> capture = Capture::open(path);
    ASSERT_NE(capture, nullptr);
    UdpSender sender(*Network::enter(), no_addresses, random, receiver.port(),
                     {capture.get(), &faults});
    std::vector<std::byte> bytes(32 * 64, std::byte{0x5a});
    transport::TransmitRun run;
    run.path.source = run.path.destination = gid;
    run.bytes = bytes;
    run.segment_size = 64;
    run.packet_count = 32;
    for (std::size_t i = 0; i < 32; ++i) bytes[i * 64 + 20] = static_cast<std::byte>(i);
    sender.transmit(std::span(&run, 1));
    std::ifstream file(path, std::ios::binary);
    const std::string captured{std::istreambuf_iterator<char>(file), {}};
    std::filesystem::remove(path);
    wire::PcapngReader reader(std::as_bytes(std::span(captured)));
    int packets = 0;
    for (; const std::optional<wire::CapturedFrame> frame = reader.next(); ++packets) {
        const Received got = receiver.take();
        ASSERT_EQ(got.bytes.size(), 64u);
        const ByteView payload = ByteView(frame->bytes).last(64);
        EXPECT_TRUE(std::ranges::equal(payload, got.bytes)) << packets;
    }
    EXPECT_GT(packets, 24);
    EXPECT_FALSE(receiver.has_more());
}

TEST(UdpSender, EveryPacketLeavesInItsOwnMannerOverIpv4) {
    check_manners(Gid::from_v4(0x7f00'0001));
}
TEST(UdpSender, EveryPacketLeavesInItsOwnMannerOverIpv6) {
    check_manners(loopback_v6());
}

TEST(UdpSender, CountsWhatItCannotSend) {
    Prng random(7);
    UdpSender sender(*Network::enter(), no_addresses, random, 9);
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

TEST(UdpSender, TellsThatThereAreTooFewFileDescriptors) {
    Receiver receiver(Gid::from_v4(0x7f00'0001));
    Prng random(7);
    UdpSender sender(*Network::enter(), no_addresses, random, receiver.port());
    std::vector<std::byte> bytes(64);
    transport::TransmitRun run;
    run.path.source = run.path.destination = Gid::from_v4(0x7f00'0001);
    run.bytes = bytes;
    run.segment_size = 64;
    run.packet_count = 1;
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
    const rlimit none{0, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
    sender.transmit(std::span(&run, 1));
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_EQ(sender.dropped_packets(), 1u);
    EXPECT_EQ(sender.send_error(run.path), EMFILE);
    sender.transmit(std::span(&run, 1));
    EXPECT_EQ(sender.send_error(run.path), 0);
    EXPECT_EQ(receiver.take().bytes.size(), 64u);
}

// One small packet from that address.
transport::TransmitRun small_run(std::uint32_t address, std::vector<std::byte>& bytes) {
    transport::TransmitRun run;
    run.path.source = run.path.destination = Gid::from_v4(address);
    run.bytes = bytes;
    run.segment_size = static_cast<std::uint32_t>(bytes.size());
    run.packet_count = 1;
    return run;
}

constexpr std::uint32_t kManyAddresses = 1100;
constexpr std::uint32_t kOthers = 0x0a63'0000;  // Of nobody here.

TEST(UdpSender, MakesRoomByAddressesThatAreGone) {
    Receiver receiver(Gid::from_v4(0x7f00'0001));
    Prng random(7);
    UdpSender sender(*Network::enter(), no_addresses, random, receiver.port());
    std::vector<std::byte> bytes(64);
    for (std::uint32_t i = 0; i < kManyAddresses; ++i) {
        const transport::TransmitRun run = small_run(kOthers + i, bytes);
        sender.transmit({&run, 1});
    }
    EXPECT_EQ(sender.dropped_packets(), kManyAddresses);
    const transport::TransmitRun run = small_run(0x7f00'0001, bytes);
    sender.transmit({&run, 1});
    EXPECT_EQ(sender.dropped_packets(), kManyAddresses);
    EXPECT_EQ(receiver.take().bytes.size(), 64u);
}

TEST(UdpSender, HasABoundOnItsAddresses) {
    LocalAddresses many;
    host::Interface interface;
    interface.index = 1;
    for (std::uint32_t i = 0; i < kManyAddresses; ++i)
        interface.gids.push_back(Gid::from_v4(kOthers + i));
    many.set({interface});
    Prng random(7);
    UdpSender sender(*Network::enter(), many, random, 9);
    std::vector<std::byte> bytes(64);
    for (std::uint32_t i = 0; i < kManyAddresses; ++i) {
        const transport::TransmitRun run = small_run(kOthers + i, bytes);
        sender.transmit({&run, 1});
        sender.forget_refusals();
    }
    const transport::TransmitRun last = small_run(kOthers + kManyAddresses - 1, bytes);
    sender.transmit({&last, 1});
    EXPECT_EQ(sender.send_error(last.path), ENOMEM);
    const transport::TransmitRun first = small_run(kOthers, bytes);
    sender.transmit({&first, 1});
    EXPECT_EQ(sender.send_error(first.path), EADDRNOTAVAIL) << "it has its place";

    // However many packets find no place, the search is done once for each change of addresses.
    EXPECT_EQ(sender.searches(), 1u);
    interface.gids.pop_back();
    many.set({interface});
    for (int i = 0; i < 100; ++i) sender.transmit({&last, 1});
    EXPECT_EQ(sender.searches(), 2u);
    EXPECT_EQ(sender.send_error(last.path), ENOMEM);
    // One that the machine has lost makes room, and the others are still found.
    interface.gids.erase(interface.gids.begin() + 5);
    many.set({interface});
    sender.transmit({&last, 1});
    EXPECT_EQ(sender.send_error(last.path), EADDRNOTAVAIL);
    EXPECT_EQ(sender.searches(), 3u);
    for (const std::uint32_t i : {0u, 4u, 6u, 1023u}) {
        const transport::TransmitRun run = small_run(kOthers + i, bytes);
        sender.transmit({&run, 1});
        EXPECT_EQ(sender.send_error(run.path), EADDRNOTAVAIL) << i;
        sender.forget_refusals();
    }
    EXPECT_EQ(sender.searches(), 3u);
}

}  // namespace
}  // namespace feroce::port
