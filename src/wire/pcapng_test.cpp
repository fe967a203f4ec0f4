// What the writer writes the reader reads, and no input makes the reader misbehave.
#include "wire/pcapng.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/random.hpp"

namespace feroce::wire::pcapng_test {
namespace {

using Bytes = std::vector<std::byte>;

const DatagramAddress kV4{.source = Gid::from_v4(0x7f000001),
                          .destination = Gid::from_v4(0x7f000002),
                          .source_port = 50'000};
const DatagramAddress kV6{.source = {{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}},
                          .destination = {{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}},
                          .source_port = 50'001};
constexpr Duration kTime{1'700'000'000'123'456'789};

Bytes sealed_packet(const DatagramAddress& address, std::uint16_t id, std::size_t payload) {
    Bytes packet(packet_size(Opcode::RcSendOnly, payload));
    const Bth bth{.opcode = Opcode::RcSendOnly,
                  .pad_count = static_cast<std::uint8_t>(pad_of(payload))};
    emit_headers(packet, bth, {});
    seal(address, id, packet);
    return packet;
}

PcapngWriter::Sink into(Bytes& file) {
    return [&file](ByteView block) { file.insert(file.end(), block.begin(), block.end()); };
}

Bytes sample_file(LinkType link) {
    Bytes file;
    PcapngWriter writer(into(file), link);
    for (std::size_t payload = 0; payload < 6; ++payload) {
        const Bytes v4 = sealed_packet(kV4, 7, payload), v6 = sealed_packet(kV6, 0, payload);
        writer.write_datagram(kTime, {.address = kV4, .ipv4_id = 7, .udp_payload = v4});
        writer.write_datagram(kTime, {.address = kV6, .traffic_class = 2, .udp_payload = v6});
    }
    return file;
}

std::uint32_t internet_sum(ByteView bytes) {
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < bytes.size(); i += 2) sum += load_be16(bytes.subspan(i).first<2>());
    while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
    return sum;
}

TEST(Pcapng, DatagramsComeBackWhole) {
    for (const LinkType link : {LinkType::Ethernet, LinkType::RawIp}) {
        const Bytes file = sample_file(link);
        PcapngReader reader(file);
        for (std::size_t i = 0; i < 12; ++i) {
            const bool v4 = i % 2 == 0;
            const auto frame = reader.next();
            ASSERT_TRUE(frame.has_value());
            EXPECT_EQ(frame->since_epoch, kTime);
            EXPECT_EQ(frame->link, link);
            EXPECT_EQ(frame->original_size, frame->bytes.size());
            const auto datagram = find_datagram(*frame);
            ASSERT_TRUE(datagram.has_value());
            EXPECT_EQ(datagram->address, v4 ? kV4 : kV6);
            EXPECT_EQ(datagram->ipv4_id, v4 ? 7 : 0);
            EXPECT_EQ(datagram->traffic_class, v4 ? 0 : 2);
            EXPECT_TRUE(verify(datagram->address, datagram->ipv4_id, datagram->udp_payload));
            EXPECT_EQ(datagram->udp_payload.size(), packet_size(Opcode::RcSendOnly, i / 2));
        }
        EXPECT_FALSE(reader.next().has_value());
        EXPECT_FALSE(reader.damaged());
    }
}

TEST(Pcapng, ChecksumsAreRight) {
    const Bytes file = sample_file(LinkType::RawIp);
    PcapngReader reader(file);
    const ByteView v4 = reader.next()->bytes, v6 = reader.next()->bytes;
    EXPECT_EQ(internet_sum(v4.first(20)), 0xffffu);
    // The UDP checksum covers addresses, protocol and length as well.
    Bytes pseudo(v4.begin() + 12, v4.end());
    const auto v4_length = static_cast<std::uint16_t>(v4.size() - 20);
    pseudo.resize(pseudo.size() + 4);
    store_be16(ByteSpan(pseudo).last(4).first<2>(), 17);
    store_be16(ByteSpan(pseudo).last<2>(), v4_length);
    EXPECT_EQ(internet_sum(pseudo), 0xffffu);
    pseudo.assign(v6.begin() + 8, v6.end());
    pseudo.resize(pseudo.size() + 4);
    store_be16(ByteSpan(pseudo).last(4).first<2>(), 17);
    store_be16(ByteSpan(pseudo).last<2>(), static_cast<std::uint16_t>(v6.size() - 40));
    EXPECT_EQ(internet_sum(pseudo), 0xffffu);
}

TEST(Pcapng, BigEndianFilesAndMicrosecondsAreRead) {
    const auto be32 = [](Bytes& out, std::uint32_t v) {
        out.resize(out.size() + 4);
        store_be32(ByteSpan(out).last<4>(), v);
    };
    Bytes file;
    for (const std::uint32_t v : {0x0a0d0d0au, 28u, 0x1a2b3c4du, 0x10000u, ~0u, ~0u, 28u})
        be32(file, v);
    for (const std::uint32_t v : {1u, 20u, 1u << 16, 0u, 20u}) be32(file, v);
    for (const std::uint32_t v : {6u, 36u, 0u, 0u, 1'500'000u, 3u, 60u, 0xaabbcc00u, 36u})
        be32(file, v);
    PcapngReader reader(file);
    const auto frame = reader.next();
    ASSERT_TRUE(frame.has_value());
    EXPECT_EQ(frame->since_epoch, std::chrono::milliseconds(1500));
    EXPECT_EQ(frame->bytes.size(), 3u);
    EXPECT_EQ(frame->original_size, 60u);
    EXPECT_EQ(frame->link, LinkType::Ethernet);
    EXPECT_FALSE(find_datagram(*frame).has_value());
}

TEST(Pcapng, EveryTruncationEndsTheReadingAndIsTold) {
    const Bytes file = sample_file(LinkType::Ethernet);
    std::vector<std::size_t> ends;  // Where a block ends nothing is missing.
    for (std::size_t at = 0; at < file.size();) {
        ends.push_back(at);
        at += byte_at(file, at + 4) | byte_at(file, at + 5) << 8;
    }
    for (std::size_t size = 0; size < file.size(); ++size) {
        const Bytes cut(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size));
        PcapngReader reader(cut);
        std::size_t frames = 0;
        while (reader.next().has_value()) ++frames;
        EXPECT_LT(frames, 12u);
        const bool clean = std::find(ends.begin(), ends.end(), size) != ends.end();
        EXPECT_EQ(reader.damaged(), !clean) << size;
    }
}

TEST(Pcapng, DamagedFilesNeverYieldMoreThanTheyHold) {
    Prng prng(12);
    const Bytes file = sample_file(LinkType::RawIp);
    std::size_t datagrams = 0;
    for (int round = 0; round < 20'000; ++round) {
        Bytes damaged = file;
        for (std::uint64_t n = 1 + prng.below(4); n > 0; --n)
            damaged[prng.below(damaged.size())] = static_cast<std::byte>(prng.next());
        PcapngReader reader(damaged);
        while (const auto frame = reader.next()) {
            ASSERT_GE(frame->bytes.data(), damaged.data());
            ASSERT_LE(frame->bytes.data() + frame->bytes.size(), damaged.data() + damaged.size());
            datagrams += find_datagram(*frame).has_value();
        }
    }
    EXPECT_GT(datagrams, 20'000u);
}

TEST(Pcapng, OtherTrafficIsNotRoce) {
    Bytes file;
    PcapngWriter writer(into(file), LinkType::RawIp);
    const Bytes packet = sealed_packet(kV4, 0, 8);
    DatagramAddress other = kV4;
    other.destination_port = 53;
    writer.write_datagram(kTime, {.address = other, .udp_payload = packet});
    writer.write_frame(kTime, {});
    PcapngReader reader(file);
    EXPECT_FALSE(find_datagram(*reader.next()).has_value());
    EXPECT_FALSE(find_datagram(*reader.next()).has_value());
}

TEST(Pcapng, FileSinkWritesTheSameBytes) {
    std::FILE* file = std::tmpfile();
    ASSERT_NE(file, nullptr);
    PcapngWriter writer(PcapngWriter::file_sink(file), LinkType::Ethernet);
    writer.write_frame(kTime, Bytes(5));
    Bytes expected;
    PcapngWriter memory(into(expected), LinkType::Ethernet);
    memory.write_frame(kTime, Bytes(5));
    Bytes actual(expected.size() + 1);
    std::rewind(file);
    actual.resize(std::fread(actual.data(), 1, actual.size(), file));
    EXPECT_EQ(actual, expected);
    std::fclose(file);
}

}  // namespace
}  // namespace feroce::wire::pcapng_test
