// The ICRC against a bit-by-bit CRC-32 over a header written out by hand, and what it catches.
#include "wire/icrc.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "base/random.hpp"

namespace feroce::wire::icrc_test {
namespace {

using Bytes = std::vector<std::byte>;

const DatagramAddress kV4{.source = Gid::from_v4(0xc633640b),
                          .destination = Gid::from_v4(0xc633640c),
                          .source_port = 0xc123};
const DatagramAddress kV6{
    .source = {{0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x11}},
    .destination = {{0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x12}},
    .source_port = 0xc123};

Bytes random_packet(Prng& prng, std::size_t size) {
    Bytes bytes(size);
    for (std::byte& b : bytes) b = static_cast<std::byte>(prng.next());
    return bytes;
}

// The textbook loop, one bit at a time.
std::uint32_t reference_crc(const Bytes& bytes) {
    std::uint32_t crc = 0xffff'ffff;
    for (const std::byte b : bytes) {
        crc ^= std::to_integer<std::uint32_t>(b);
        for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? crc >> 1 ^ 0xedb8'8320 : crc >> 1;
    }
    return ~crc;
}

void put(Bytes& out, std::initializer_list<unsigned> values) {
    for (const unsigned v : values) out.push_back(static_cast<std::byte>(v & 0xff));
}

void put_raw(Bytes& out, const Gid& gid, std::size_t from) {
    for (std::size_t i = from; i < 16; ++i) put(out, {gid.raw[i]});
}

std::uint32_t reference_icrc(const DatagramAddress& a, unsigned id, const Bytes& packet) {
    Bytes all(8, std::byte{0xff});
    const auto udp = static_cast<unsigned>(packet.size() + 8);
    if (a.destination.is_v4()) {
        const unsigned total = udp + 20;
        put(all, {0x45, 0xff, total >> 8, total, id >> 8, id, 0x40, 0, 0xff, 17, 0xff, 0xff});
        put_raw(all, a.source, 12);
        put_raw(all, a.destination, 12);
    } else {
        put(all, {0x6f, 0xff, 0xff, 0xff, udp >> 8, udp, 17, 0xff});
        put_raw(all, a.source, 0);
        put_raw(all, a.destination, 0);
    }
    put(all, {unsigned{a.source_port} >> 8, a.source_port, unsigned{a.destination_port} >> 8,
              a.destination_port, udp >> 8, udp, 0xff, 0xff});
    Bytes masked = packet;
    masked[4] = std::byte{0xff};
    all.insert(all.end(), masked.begin(), masked.end() - 4);
    return reference_crc(all);
}

std::uint32_t stored(ByteView packet) {
    const ByteView b = packet.last(4);
    return byte_at(b, 0) | byte_at(b, 1) << 8 | byte_at(b, 2) << 16 | byte_at(b, 3) << 24;
}

TEST(Icrc, MatchesTheReference) {
    Prng prng(3);
    for (int round = 0; round < 500; ++round) {
        Bytes packet = random_packet(prng, 16 + prng.below(300) * 4);
        const auto id = static_cast<std::uint16_t>(prng.next());
        for (const DatagramAddress& address : {kV4, kV6}) {
            seal(address, id, packet);
            ASSERT_EQ(stored(packet), reference_icrc(address, id, packet));
            EXPECT_TRUE(verify(address, id, packet));
        }
    }
}

TEST(Icrc, ARunIsSealedAsItsSegmentsAre) {
    Prng prng(4);
    for (int round = 0; round < 300; ++round) {
        const std::size_t segment = 16 + prng.below(100) * 4;
        const std::size_t last = 16 + prng.below((segment - 16) / 4 + 1) * 4;
        const std::size_t count = prng.below(70);
        Bytes run = random_packet(prng, count * segment + last);
        // As in practice the byte with FECN and BECN is mostly 0, with some that differ.
        if (round % 2 == 0)
            for (std::size_t i = 0; i < count; ++i)
                run[i * segment + 4] = i % 5 == 3 ? std::byte{0x40} : std::byte{0};
        for (const DatagramAddress& address : {kV4, kV6}) {
            Bytes expected = run;
            for (std::size_t i = 0; i <= count; ++i)
                seal(address, static_cast<std::uint16_t>(i),
                     ByteSpan(expected).subspan(i * segment, i < count ? segment : last));
            seal_run(address, run, segment);
            ASSERT_EQ(run, expected) << count << " of " << segment << " and " << last;
        }
    }
}

TEST(Icrc, SolvesForEveryId) {
    Prng prng(5);
    for (const std::size_t size : {std::size_t{16}, std::size_t{1040}, std::size_t{4128}}) {
        Bytes packet = random_packet(prng, size);
        for (unsigned id = 0; id < 0x1'0000; ++id) {
            seal(kV4, static_cast<std::uint16_t>(id), packet);
            ASSERT_EQ(solve_id(kV4, packet), static_cast<std::uint16_t>(id));
        }
    }
}

TEST(Icrc, SolvesAtEveryLength) {
    Prng prng(6);
    const Bytes bytes = random_packet(prng, 65'504);
    for (std::size_t size = 16; size <= bytes.size(); size += size < 5000 ? 4 : 500) {
        Bytes packet(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
        seal(kV4, 0xbeef, packet);
        ASSERT_EQ(solve_id(kV4, packet), std::uint16_t{0xbeef}) << size;
    }
}

TEST(Icrc, Ipv6HasNoIdToSolve) {
    Prng prng(7);
    Bytes packet = random_packet(prng, 64);
    seal(kV6, 77, packet);
    EXPECT_TRUE(verify(kV6, 0, packet));
    EXPECT_EQ(solve_id(kV6, packet), std::uint16_t{0});
    packet[20] ^= std::byte{1};
    EXPECT_FALSE(verify(kV6, 77, packet));
    EXPECT_EQ(solve_id(kV6, packet), std::nullopt);
}

TEST(Icrc, EveryCoveredBitIsCaughtAndTheMaskedByteIsNot) {
    Prng prng(8);
    Bytes packet = random_packet(prng, 1040);
    for (const DatagramAddress& address : {kV4, kV6}) {
        seal(address, 9, packet);
        for (std::size_t bit = 0; bit < packet.size() * 8; ++bit) {
            packet[bit / 8] ^= std::byte{1} << (bit % 8);
            ASSERT_EQ(verify(address, 9, packet), bit / 8 == 4) << bit;
            packet[bit / 8] ^= std::byte{1} << (bit % 8);
        }
    }
}

TEST(Icrc, AddressesPortsLengthAndIdAreCovered) {
    Prng prng(9);
    Bytes packet = random_packet(prng, 256);
    for (const DatagramAddress& address : {kV4, kV6}) {
        seal(address, 9, packet);
        // Bits of the v4-mapping prefix are not on the wire.
        for (std::size_t bit = address.source.is_v4() ? 96 : 0; bit < 128; ++bit) {
            DatagramAddress other = address;
            other.source.raw[bit / 8] ^= static_cast<std::uint8_t>(1 << bit % 8);
            EXPECT_FALSE(verify(other, 9, packet)) << bit;
            other = address;
            other.destination.raw[bit / 8] ^= static_cast<std::uint8_t>(1 << bit % 8);
            EXPECT_FALSE(verify(other, 9, packet)) << bit;
        }
        for (int bit = 0; bit < 16; ++bit) {
            DatagramAddress other = address;
            other.source_port ^= static_cast<std::uint16_t>(1 << bit);
            EXPECT_FALSE(verify(other, 9, packet)) << bit;
            other = address;
            other.destination_port ^= static_cast<std::uint16_t>(1 << bit);
            EXPECT_FALSE(verify(other, 9, packet)) << bit;
            EXPECT_EQ(verify(address, static_cast<std::uint16_t>(9 ^ 1 << bit), packet),
                      !address.source.is_v4());
        }
        EXPECT_FALSE(verify(address, 9, ByteView(packet).first(252)));
    }
}

// With the id unknown a change passes only if it looks like another id. Of two million random
// corruptions about 30 do; were the check weaker or stronger than 16 bits this would show.
TEST(Icrc, WithUnknownIdOnlyOneCorruptionIn65536Passes) {
    Prng prng(10);
    Bytes packet = random_packet(prng, 80);
    seal(kV4, 1234, packet);
    constexpr int kRounds = 2'000'000;
    int passed = 0;
    for (int round = 0; round < kRounds; ++round) {
        Bytes corrupt = packet;
        for (int i = 0; i < 4; ++i) {
            // A non-zero change to some byte that the ICRC covers.
            const std::size_t at = 5 + prng.below(packet.size() - 5);
            corrupt[at] ^= static_cast<std::byte>(1 + prng.below(255));
        }
        if (corrupt == packet) continue;
        const std::optional<std::uint16_t> id = solve_id(kV4, corrupt);
        if (!id.has_value()) continue;
        ++passed;
        EXPECT_TRUE(verify(kV4, *id, corrupt));
        EXPECT_NE(*id, 1234);
    }
    EXPECT_GT(passed, 5);
    EXPECT_LT(passed, 80);
}

TEST(Icrc, WithUnknownIdEverySingleFlippedBitOfThisPacketIsCaught) {
    Prng prng(11);
    Bytes packet = random_packet(prng, 1040);
    seal(kV4, 4321, packet);
    int passed = 0;
    for (std::size_t bit = 0; bit < packet.size() * 8; ++bit) {
        if (bit / 8 == 4) continue;
        packet[bit / 8] ^= std::byte{1} << (bit % 8);
        passed += solve_id(kV4, packet).has_value();
        packet[bit / 8] ^= std::byte{1} << (bit % 8);
    }
    EXPECT_EQ(passed, 0);
}

TEST(Icrc, ImpossibleLengthsNeverVerify) {
    Bytes bytes(70'000);
    for (const std::size_t size : {0u, 1u, 3u, 4u, 12u, 15u, 65'536u, 70'000u}) {
        EXPECT_FALSE(verify(kV4, 0, ByteView(bytes).first(size))) << size;
        EXPECT_EQ(solve_id(kV4, ByteView(bytes).first(size)), std::nullopt) << size;
    }
}

}  // namespace
}  // namespace feroce::wire::icrc_test
