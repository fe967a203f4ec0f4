// Parsing and emitting whole packets: every opcode round trips, and no truncation, growth or wrong
// field gets past the parser.
#include "wire/packet.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "base/random.hpp"

namespace feroce::wire {
namespace {

std::vector<Opcode> known_opcodes() {
    std::vector<Opcode> all;
    for (unsigned raw = 0; raw < 256; ++raw)
        if (opcode_info(static_cast<Opcode>(raw)).known) all.push_back(static_cast<Opcode>(raw));
    return all;
}

Extensions distinct_extensions() {
    return {.deth = {.qkey = {0x11111111}, .source = {0x222222}, .reserved = 3},
            .xrceth = {.srq = {0x444444}, .reserved = 5},
            .feth = {.placement = 2, .selectivity = 1, .reserved = 6},
            .reth = {.address = 0x7777777777777777, .rkey = {0x88888888}, .length = 0x99999999},
            .atomic = {.address = 0xaaaaaaaaaaaaaaaa,
                       .rkey = {0xbbbbbbbb},
                       .swap_or_add = 0xcccccccccccccccc,
                       .compare = 0xdddddddddddddddd},
            .aeth = {.syndrome = Syndrome::rnr(14), .msn = 0xeeeeee},
            .atomic_ack = {.original = 0x1212121212121212},
            .immediate = 0x34343434,
            .invalidate = {0x56565656}};
}

Bth bth_for(Opcode opcode, std::size_t payload) {
    return {.opcode = opcode,
            .solicited = true,
            .pad_count = static_cast<std::uint8_t>(pad_of(payload)),
            .destination = {0x010203},
            .ack_request = true,
            .psn = Psn(0x040506)};
}

std::vector<std::byte> make_packet(Opcode opcode, std::size_t payload) {
    std::vector<std::byte> bytes(packet_size(opcode, payload), std::byte{0x5a});
    emit_headers(bytes, bth_for(opcode, payload), distinct_extensions());
    return bytes;
}

void expect_extensions(const Packet& p, const Extensions& e) {
    if (p.info->has(Header::Deth)) {
        EXPECT_EQ(p.deth(), e.deth);
    }
    if (p.info->has(Header::Xrceth)) {
        EXPECT_EQ(p.xrceth(), e.xrceth);
    }
    if (p.info->has(Header::Feth)) {
        EXPECT_EQ(p.feth(), e.feth);
    }
    if (p.info->has(Header::Reth)) {
        EXPECT_EQ(p.reth(), e.reth);
    }
    if (p.info->has(Header::AtomicEth)) {
        EXPECT_EQ(p.atomic_eth(), e.atomic);
    }
    if (p.info->has(Header::Aeth)) {
        EXPECT_EQ(p.aeth(), e.aeth);
    }
    if (p.info->has(Header::AtomicAckEth)) {
        EXPECT_EQ(p.atomic_ack(), e.atomic_ack);
    }
    if (p.info->has(Header::Immediate)) {
        EXPECT_EQ(p.immediate(), e.immediate);
    }
    if (p.info->has(Header::Ieth)) {
        EXPECT_EQ(p.invalidate(), e.invalidate);
    }
}

TEST(Packet, EveryOpcodeRoundTripsWithEveryPad) {
    for (const Opcode opcode : known_opcodes()) {
        const bool carries = opcode_info(opcode).may_carry_payload();
        for (std::size_t payload = 0; payload <= (carries ? 9u : 0u); ++payload) {
            const std::vector<std::byte> bytes = make_packet(opcode, payload);
            Packet p;
            ASSERT_EQ(parse_packet(bytes, p), ParseError::None) << opcode_info(opcode).name;
            EXPECT_EQ(p.bth, bth_for(opcode, payload));
            EXPECT_EQ(p.info, &opcode_info(opcode));
            EXPECT_EQ(p.payload.size(), payload);
            EXPECT_EQ(p.payload.data(), bytes.data() + header_size(opcode));
            EXPECT_EQ(bytes.size() % 4, 0u);
            expect_extensions(p, distinct_extensions());
        }
    }
}

TEST(Packet, EmitWritesExactlyTheHeaders) {
    for (const Opcode opcode : known_opcodes()) {
        std::vector<std::byte> zeros(64, std::byte{0}), ones(64, std::byte{0xff});
        const std::size_t size = emit_headers(zeros, bth_for(opcode, 0), distinct_extensions());
        EXPECT_EQ(size, header_size(opcode));
        emit_headers(ones, bth_for(opcode, 0), distinct_extensions());
        for (std::size_t i = 0; i < 64; ++i)
            ASSERT_EQ(zeros[i] == ones[i], i < size) << opcode_info(opcode).name << " byte " << i;
    }
}

TEST(Packet, EveryTruncationIsRefused) {
    for (const Opcode opcode : known_opcodes()) {
        const std::size_t payload = opcode_info(opcode).may_carry_payload() ? 5 : 0;
        const std::vector<std::byte> bytes = make_packet(opcode, payload);
        for (std::size_t size = 0; size < bytes.size(); ++size) {
            // An exact heap copy, so that a sanitizer sees any read past the end.
            const std::vector<std::byte> cut(bytes.begin(),
                                             bytes.begin() + static_cast<std::ptrdiff_t>(size));
            Packet p;
            const ParseError error = parse_packet(cut, p);
            if (size < header_size(opcode) + kIcrcSize) {
                ASSERT_EQ(error, ParseError::TooShort) << size;
            } else if (size % 4 != 0) {
                ASSERT_EQ(error, ParseError::BadLength) << size;
            } else if (size - header_size(opcode) - kIcrcSize < pad_of(payload)) {
                ASSERT_EQ(error, ParseError::BadPad) << size;
            }
        }
    }
}

TEST(Packet, PadMustFitThePayload) {
    std::vector<std::byte> bytes = make_packet(Opcode::RcSendOnly, 0);
    Packet p;
    for (std::uint8_t pad = 1; pad < 4; ++pad) {
        Bth bth = bth_for(Opcode::RcSendOnly, 0);
        bth.pad_count = pad;
        emit_headers(bytes, bth, {});
        EXPECT_EQ(parse_packet(bytes, p), ParseError::BadPad);
    }
}

TEST(Packet, PayloadWhereThereIsNoneIsRefused) {
    for (const Opcode opcode : known_opcodes()) {
        std::vector<std::byte> bytes = make_packet(opcode, 0);
        const std::size_t bare = bytes.size();
        const bool carries = opcode_info(opcode).may_carry_payload();
        for (const std::size_t more : {4, 8, 12, 16}) {
            bytes.resize(bare + more);
            Packet p;
            const bool is_list = opcode == Opcode::RcAck && more == kListSize;
            EXPECT_EQ(parse_packet(bytes, p),
                      carries || is_list ? ParseError::None : ParseError::BadLength);
        }
    }
}

TEST(Packet, VersionAndOpcodeAreChecked) {
    for (std::uint8_t version = 1; version < 16; ++version) {
        std::vector<std::byte> bytes = make_packet(Opcode::RcSendOnly, 8);
        bytes[1] |= std::byte{version};
        Packet p;
        EXPECT_EQ(parse_packet(bytes, p), ParseError::BadVersion);
    }
    for (unsigned raw = 0; raw < 256; ++raw) {
        std::vector<std::byte> bytes(64);
        bytes[0] = static_cast<std::byte>(raw);
        Packet p;
        const bool known = opcode_info(static_cast<Opcode>(raw)).known;
        EXPECT_EQ(parse_packet(bytes, p) == ParseError::UnknownOpcode, !known);
    }
}

TEST(Packet, WhateverParsesReEmits) {
    Prng prng(7);
    std::size_t parsed = 0;
    for (int round = 0; round < 200'000; ++round) {
        std::vector<std::byte> bytes(prng.below(20) * 4);
        for (std::byte& b : bytes) b = static_cast<std::byte>(prng.next());
        if (bytes.size() > 1) bytes[1] &= std::byte{0xf0};
        Packet p;
        if (parse_packet(bytes, p) != ParseError::None) continue;
        ++parsed;
        std::vector<std::byte> again = bytes;
        std::fill_n(again.begin(), header_size(p.bth.opcode), std::byte{0});
        emit_headers(again, p.bth, extensions_of(p));
        ASSERT_EQ(again, bytes);
    }
    EXPECT_GT(parsed, 10'000u);
}

TEST(PacketDeathTest, AnAccessorForAnAbsentHeaderIsOurMistake) {
    const std::vector<std::byte> bytes = make_packet(Opcode::RcSendOnly, 4);
    Packet p;
    ASSERT_EQ(parse_packet(bytes, p), ParseError::None);
    EXPECT_DEATH((void)p.reth(), "has");
}

TEST(PacketSize, Examples) {
    static_assert(pad_of(0) == 0 && pad_of(1) == 3 && pad_of(3) == 1 && pad_of(4) == 0);
    static_assert(header_size(Opcode::RcAck) == 16);
    static_assert(packet_size(Opcode::RcAck, 0) == 20);
    static_assert(packet_size(Opcode::RcWriteMiddle, 1024) == 1040);
    static_assert(packet_size(Opcode::RcWriteOnly, 1) == 12 + 16 + 4 + 4);
    static_assert(packet_size(Opcode::Cnp, 16) == 32);
}

TEST(Packet, NoOpcodeHasLongerExtensionHeadersThanTheMaximum) {
    for (unsigned raw = 0; raw < 256; ++raw)
        EXPECT_LE(opcode_info(static_cast<Opcode>(raw)).extension_size, kExtensionMax) << raw;
}

}  // namespace
}  // namespace feroce::wire
