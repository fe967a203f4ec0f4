#include "wire/capture_reader.hpp"

#include <gtest/gtest.h>

#include "base/random.hpp"

namespace feroce::wire::capture_reader_test {
namespace {

using Bytes = std::vector<std::byte>;
using Kind = CaptureReader::Kind;

const DatagramAddress kV4{.source = Gid::from_v4(0x0a000001),
                          .destination = Gid::from_v4(0x0a000002),
                          .source_port = 50'000};

Bytes sealed_packet() {
    Bytes packet(packet_size(Opcode::RcSendOnly, 8));
    emit_headers(packet, {.opcode = Opcode::RcSendOnly}, {});
    seal(kV4, 7, packet);
    return packet;
}

// The IP packet around it, as our writer makes it.
Bytes ip_packet() {
    Bytes file;
    PcapngWriter writer([&file](ByteView b) { file.insert(file.end(), b.begin(), b.end()); },
                        LinkType::RawIp);
    const Bytes packet = sealed_packet();
    writer.write_datagram({}, {.address = kV4, .ipv4_id = 7, .udp_payload = packet});
    PcapngReader reader(file);
    const ByteView frame = reader.next()->bytes;
    return {frame.begin(), frame.end()};
}

void put(Bytes& out, std::uint64_t value, std::size_t bytes, bool big) {
    for (std::size_t i = 0; i < bytes; ++i)
        out.push_back(static_cast<std::byte>(value >> 8 * (big ? bytes - 1 - i : i)));
}

struct Form {
    bool big_endian = false;
    std::uint32_t magic = 0xa1b2c3d4;
    std::uint32_t link = 1;
};

Bytes pcap_file(const Form& form, const Bytes& frame, std::size_t cut = 0) {
    Bytes out;
    const bool big = form.big_endian;
    put(out, form.magic, 4, big);
    put(out, 2, 2, big);
    put(out, 4, 2, big);
    for (const std::uint32_t v : {0u, 0u, 262'144u, form.link}) put(out, v, 4, big);
    for (int i = 0; i < 2; ++i) {
        for (const std::uint64_t v :
             {std::uint64_t{1'700'000'000}, std::uint64_t{5}, std::uint64_t{frame.size() - cut},
              std::uint64_t{frame.size()}})
            put(out, v, 4, big);
        out.insert(out.end(), frame.begin(), frame.end() - static_cast<std::ptrdiff_t>(cut));
    }
    return out;
}

// In pieces of any size.
CaptureReader::Source from(const Bytes& file, std::size_t step = 7) {
    return [&file, step, at = std::size_t{0}](ByteSpan out) mutable {
        const std::size_t count = std::min({step, out.size(), file.size() - at});
        std::copy_n(file.begin() + static_cast<std::ptrdiff_t>(at), count, out.begin());
        at += count;
        return count;
    };
}

Bytes behind(std::initializer_list<unsigned> header, const Bytes& ip) {
    Bytes out;
    for (const unsigned byte : header) out.push_back(static_cast<std::byte>(byte));
    out.insert(out.end(), ip.begin(), ip.end());
    return out;
}

TEST(CaptureReader, ReadsPcapOfEitherOrderAndBothClocks) {
    const Bytes frame = ip_packet();
    for (const bool big : {false, true}) {
        for (const std::uint32_t magic : {0xa1b2c3d4u, 0xa1b23c4du}) {
            const Bytes file = pcap_file({big, magic, 101}, frame);
            CaptureReader reader(from(file));
            for (int i = 0; i < 2; ++i) {
                const auto read = reader.next();
                ASSERT_TRUE(read.has_value());
                EXPECT_EQ(read->since_epoch, std::chrono::seconds(1'700'000'000) +
                                                 Duration(magic == 0xa1b2c3d4u ? 5000 : 5));
                const auto datagram = find_datagram(*read);
                ASSERT_TRUE(datagram.has_value());
                EXPECT_TRUE(verify(*datagram));
            }
            EXPECT_FALSE(reader.next().has_value());
            EXPECT_FALSE(reader.damaged());
            EXPECT_EQ(reader.kind(), Kind::Pcap);
        }
    }
}

TEST(CaptureReader, FindsTheDatagramBelowEveryLink) {
    const Bytes ip = ip_packet();
    const Bytes plain = behind({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 8, 0}, ip);
    const Bytes tagged = behind({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x81, 0, 0, 5, 8, 0}, ip);
    const Bytes twice =
        behind({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x88, 0xa8, 0, 5, 0x81, 0, 0, 6, 8, 0}, ip);
    const Bytes other = behind({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 8, 6}, ip);
    const Bytes cooked = behind({0, 4, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0, 8, 0}, ip);
    const Bytes cooked2 = behind({8, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0}, ip);
    const Bytes family = behind({2, 0, 0, 0}, ip);
    const auto found = [](LinkType link, const Bytes& frame) {
        const auto datagram = find_datagram({.link = link, .bytes = frame});
        return datagram && verify(*datagram) && is_read(link);
    };
    EXPECT_TRUE(found(LinkType::Ethernet, plain));
    EXPECT_TRUE(found(LinkType::Ethernet, tagged));
    EXPECT_TRUE(found(LinkType::Ethernet, twice));
    EXPECT_FALSE(found(LinkType::Ethernet, other));
    EXPECT_TRUE(found(LinkType::LinuxCooked, cooked));
    EXPECT_TRUE(found(LinkType::LinuxCooked2, cooked2));
    EXPECT_TRUE(found(LinkType::BsdLoopback, family));
    EXPECT_TRUE(found(LinkType::RawIpOfBsd, ip));
    EXPECT_FALSE(is_read(static_cast<LinkType>(247)));
    EXPECT_EQ(find_datagram({.link = LinkType::LinuxCooked, .bytes = cooked})->direction,
              Direction::Outbound);
    EXPECT_EQ(find_datagram({.link = LinkType::LinuxCooked2, .bytes = cooked2})->direction,
              Direction::Inbound);
}

// Bit by bit, from the bytes of the frame.
std::uint32_t icrc_of(Bytes ip) {
    for (const std::size_t masked : {1, 8, 10, 11, 26, 27, 32}) ip[masked] = std::byte{0xff};
    ip.resize(ip.size() - kIcrcSize);
    ip.insert(ip.begin(), 8, std::byte{0xff});
    std::uint32_t crc = 0xffff'ffff;
    for (const std::byte byte : ip) {
        crc ^= std::to_integer<std::uint32_t>(byte);
        for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xedb8'8320u : 0u);
    }
    return ~crc;
}

TEST(CaptureReader, TheIcrcCoversTheFlagsOfTheIpHeader) {
    Bytes ip = ip_packet();
    EXPECT_EQ(load_le32(ByteView(ip).last<4>()), icrc_of(ip));
    ip[6] = std::byte{0};  // Without DF.
    store_le32(ByteSpan(ip).last<4>(), icrc_of(ip));
    const auto datagram = find_datagram({.link = LinkType::RawIp, .bytes = ip});
    ASSERT_TRUE(datagram.has_value());
    EXPECT_FALSE(datagram->dont_fragment);
    EXPECT_TRUE(verify(*datagram));
    ip.back() ^= std::byte{1};
    EXPECT_FALSE(verify(*find_datagram({.link = LinkType::RawIp, .bytes = ip})));
}

TEST(CaptureReader, ReadsPcapngInPieces) {
    Bytes file;
    PcapngWriter writer([&file](ByteView b) { file.insert(file.end(), b.begin(), b.end()); },
                        LinkType::RawIp);
    const Bytes packet = sealed_packet();
    RoceDatagram datagram{.address = kV4, .ipv4_id = 7, .udp_payload = packet};
    for (const Direction way : {Direction::Unknown, Direction::Inbound, Direction::Outbound}) {
        datagram.direction = way;
        writer.write_datagram({}, datagram);
    }
    CaptureReader reader(from(file, 5));
    for (const Direction way : {Direction::Unknown, Direction::Inbound, Direction::Outbound}) {
        const auto frame = reader.next();
        ASSERT_TRUE(frame.has_value());
        EXPECT_EQ(find_datagram(*frame)->direction, way);
    }
    EXPECT_FALSE(reader.next().has_value());
    EXPECT_FALSE(reader.damaged());
    EXPECT_TRUE(reader.is_capture());
}

TEST(CaptureReader, SaysWhatAFileIsNot) {
    const auto kind = [](const Bytes& file) {
        CaptureReader reader(from(file));
        EXPECT_FALSE(reader.next().has_value());
        EXPECT_FALSE(reader.is_capture());
        return reader.kind();
    };
    EXPECT_EQ(kind({}), Kind::Empty);
    EXPECT_EQ(kind(Bytes(3)), Kind::Other);
    EXPECT_EQ(kind(Bytes(100)), Kind::Other);
    EXPECT_EQ(kind(behind({0x1f, 0x8b, 8, 0}, Bytes(20))), Kind::Gzip);
}

TEST(CaptureReader, CutFilesAreToldAndLengthsNotBelieved) {
    Bytes file = pcap_file({}, ip_packet());
    file.pop_back();
    CaptureReader reader(from(file));
    EXPECT_TRUE(reader.next().has_value());
    EXPECT_FALSE(reader.next().has_value());
    EXPECT_TRUE(reader.damaged());
    EXPECT_TRUE(reader.is_capture());

    Bytes lies = pcap_file({}, ip_packet());
    store_le32(ByteSpan(lies).subspan<32, 4>(), 0x7fff'ffff);
    CaptureReader careful(from(lies));
    EXPECT_FALSE(careful.next().has_value());
    EXPECT_TRUE(careful.damaged());
}

TEST(CaptureReader, DamagedFilesNeverCrash) {
    Prng prng(5);
    const Bytes file = pcap_file({}, ip_packet());
    for (int round = 0; round < 5'000; ++round) {
        Bytes damaged = file;
        for (std::uint64_t n = 1 + prng.below(4); n > 0; --n)
            damaged[prng.below(damaged.size())] = static_cast<std::byte>(prng.next());
        CaptureReader reader(from(damaged, 1 + prng.below(64)));
        for (int frames = 0; frames < 100 && reader.next(); ++frames) continue;
    }
}

}  // namespace
}  // namespace feroce::wire::capture_reader_test
