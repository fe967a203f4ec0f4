// One stream against a peer that the test plays by hand.
#include <gtest/gtest.h>

#include <cerrno>
#include <numeric>

#include "rsocket/test_wire.hpp"

namespace feroce::rsockets {
namespace stream_test {

std::vector<std::byte> pattern(std::size_t size, unsigned first = 0) {
    std::vector<std::byte> out(size);
    for (std::size_t i = 0; i < size; ++i) out[i] = static_cast<std::byte>(first + i * 7);
    return out;
}

// A stream whose peer is the test.
struct Scripted {
    explicit Scripted(std::endian peer_order = std::endian::native, std::uint32_t mappings = 0,
                      std::uint16_t credits = 384)
        : memory(1 << 17, mappings), stream(adjusted(memory)) {
        peer.order = peer_order;
        peer.credits = credits;
        peer.mappings = mappings;
        peer.targets = {0x10000, 21, kTargets};
        peer.first = {0x20000, 22, 1 << 16};
        EXPECT_TRUE(stream.meet(peer));
        stream.open(out);
    }

    static const StreamConfig& adjusted(StreamMemory& memory) {
        memory.config.receive_queue = 384;
        return memory.config;
    }

    Sent take() {
        Sent first = out.sends.front();
        out.sends.pop_front();
        return first;
    }

    void complete_all() {
        while (!out.sends.empty()) stream.on_sent(take().send.tag);
    }

    // As the peer's RDMA WRITE: the entry, then its immediate.
    void give_target(std::size_t index, const Target& target, std::uint16_t limit) {
        emit_target(std::span<std::byte, kTargetBytes>(
                        memory.config.targets.data() + index * kTargetBytes, kTargetBytes),
                    target, memory.config.order);
        stream.on_immediate(Immediate{Kind::Credits, limit}.emit());
    }

    void arrive(ByteView bytes) {
        std::memcpy(memory.receive_ring.data() + arrived % memory.receive_ring.size(), bytes.data(),
                    bytes.size());
        arrived += bytes.size();
        stream.on_immediate(Immediate{Kind::Data, static_cast<std::uint32_t>(bytes.size())}.emit());
    }

    StreamMemory memory;
    Stream stream;
    Greeting peer;
    KeptSends out;
    std::size_t arrived = 0;
};

// A post that fails ends the stream, which drops what is still to be said.
struct FailingOutlet final : Outlet {
    explicit FailingOutlet(Stream& owner) : stream(owner) {}
    void post(const Send&) override { stream.fail(ECONNRESET); }
    Stream& stream;
};

TEST(RsocketStream, EndsByAPostThatFails) {
    Scripted s;
    FailingOutlet failing(s.stream);
    s.stream.shut_writing(failing);
    EXPECT_EQ(s.stream.error(), ECONNRESET);
    EXPECT_FALSE(s.stream.is_connected());
    s.stream.flush(s.out);
}

TEST(RsocketStream, SpeaksAsRdmaCoreDidInTheCapture) {
    StreamMemory memory(1 << 20);
    memory.config.receive_address = 0xffff8d41b000;
    memory.config.receive_key = 0x11a1;
    memory.config.targets_address = 0xaaaaf2d91000;
    memory.config.targets_key = 0x10b4;
    memory.config.order = std::endian::little;
    Stream stream(memory.config);
    const Greeting::Bytes greeting = stream.greeting().emit();
    EXPECT_EQ(std::vector<std::byte>(greeting.begin(), greeting.end()), from_hex(kRequestHex));

    KeptSends out;
    ASSERT_TRUE(stream.meet(*Greeting::parse(from_hex(kReplyHex))));
    stream.open(out);
    ASSERT_EQ(out.sends.size(), 1U);
    EXPECT_EQ(out.sends[0].send.address, 0xffff88003010U);
    EXPECT_EQ(out.sends[0].send.key, 0x0e27U);
    EXPECT_EQ(out.sends[0].send.immediate, 0x80000180U);
    EXPECT_EQ(out.sends[0].bytes, from_hex(kFirstEntryHex));

    EXPECT_EQ(send_all(stream, pattern(16), out), 16U);
    EXPECT_EQ(send_all(stream, pattern(1024), out), 1024U);
    EXPECT_EQ(out.sends[1].send.address, 0xffff8c0eb000U);
    EXPECT_EQ(out.sends[1].send.immediate, 16U);
    EXPECT_EQ(out.sends[2].send.address, 0xffff8c0eb010U);
    EXPECT_EQ(out.sends[2].send.key, 0x0f4eU);
    stream.disconnect(out);
    EXPECT_EQ(out.sends[3].send.immediate, 0xe0000000U);
    EXPECT_EQ(out.sends[3].send.length(), 0U);
}

TEST(RsocketStream, WritesABigEndianPeersMemoryInItsOrder) {
    Scripted s(std::endian::big);
    const Sent first = s.take();
    const std::uint64_t half = s.memory.config.receive_address + (1 << 16);
    EXPECT_EQ(first.send.address, s.peer.targets.address + kTargetBytes);
    ASSERT_EQ(first.bytes.size(), kTargetBytes);
    const std::span<const std::byte, kTargetBytes> entry(first.bytes.data(), kTargetBytes);
    EXPECT_EQ(load_be64(entry.first<8>()), half);
    EXPECT_EQ(load_be32(entry.subspan<8, 4>()), s.memory.config.receive_key);
    EXPECT_EQ(load_be32(entry.subspan<12, 4>()), 1U << 16);
}

TEST(RsocketStream, ChunksGrowAndDoNotCrossATarget) {
    Scripted s;
    s.take();
    const std::vector<std::byte> bytes = pattern(100000);
    EXPECT_EQ(send_all(s.stream, bytes, s.out), std::size_t{1} << 16);  // All of the first target.
    std::vector<std::size_t> lengths;
    std::uint64_t next = s.peer.first.address;
    for (const Sent& sent : s.out.sends) {
        EXPECT_EQ(sent.send.address, next);
        EXPECT_EQ(sent.immediate().value, sent.bytes.size());
        EXPECT_EQ(sent.bytes[0], bytes[next - s.peer.first.address]);
        next += sent.bytes.size();
        lengths.push_back(sent.bytes.size());
    }
    EXPECT_EQ(lengths, (std::vector<std::size_t>{8192, 16384, 32768, 8192}));
    EXPECT_FALSE(s.stream.can_send());
    s.give_target(1, {0x50000, 23, 1 << 16}, 384);
    s.complete_all();
    EXPECT_TRUE(s.stream.can_send());
    send_all(s.stream, pattern(10), s.out);
    EXPECT_EQ(s.out.sends[0].send.address, 0x50000U);
    EXPECT_EQ(s.out.sends[0].send.key, 23U);
}

// Each message costs as much as copying some KiB, on both sides.
TEST(RsocketStream, MessagesAreFewAndLeaveNoSmallRest) {
    const auto lengths_of = [](std::size_t count, bool in_flight) {
        Scripted s;
        s.take();
        if (in_flight) send_all(s.stream, pattern(1), s.out);
        s.out.sends.clear();
        EXPECT_EQ(send_all(s.stream, pattern(count), s.out), count);
        std::vector<std::size_t> lengths;
        for (const Sent& sent : s.out.sends) lengths.push_back(sent.bytes.size());
        return lengths;
    };
    using Lengths = std::vector<std::size_t>;
    EXPECT_EQ(lengths_of(4096, false), (Lengths{4096}));
    EXPECT_EQ(lengths_of(12000, false), (Lengths{12000}));
    EXPECT_EQ(lengths_of(40000, false), (Lengths{8192, 16384, 15424}));
    // The peer has something to do meanwhile.
    EXPECT_EQ(lengths_of(40000, true), (Lengths{40000}));
    EXPECT_EQ(lengths_of(65535, true), (Lengths{65535}));
}

TEST(RsocketStream, StopsWithoutCreditsAndGoesOnAcrossTheirWrap) {
    Scripted s(std::endian::native, 0, 100);
    s.take();
    std::uint16_t limit = 100;
    int stops = 0;
    for (std::size_t sent = 0; sent < 70000;) {  // More than 16 bits count.
        if (send_all(s.stream, pattern(1), s.out) == 1) {
            ++sent;
            s.complete_all();
        } else if (static_cast<std::uint16_t>(sent) == limit) {
            ++stops;
            limit = static_cast<std::uint16_t>(limit + 500);
            s.stream.on_immediate(Immediate{Kind::Credits, limit}.emit());
        } else {
            ASSERT_EQ(sent, s.peer.first.length);
            s.give_target(1, {0x90000, 1, 1 << 16}, limit);
        }
    }
    EXPECT_EQ(stops, 140);
}

TEST(RsocketStream, ControlMessagesWaitForASlotAndNotForCredit) {
    Scripted s(std::endian::native, 0, 0);
    EXPECT_EQ(send_all(s.stream, pattern(10), s.out), 0U);
    for (int i = 0; i < 3; ++i) s.stream.keep_alive(s.out);
    EXPECT_EQ(s.out.sends.size(), Stream::kControlSlots);
    s.stream.shut_writing(s.out);
    EXPECT_EQ(s.out.sends.size(), Stream::kControlSlots);
    EXPECT_FALSE(s.stream.is_quiet());
    s.stream.on_sent(s.take().send.tag);
    s.stream.flush(s.out);
    ASSERT_EQ(s.out.sends.size(), Stream::kControlSlots);
    EXPECT_EQ(s.out.sends.back().immediate().kind, Kind::Control);
    EXPECT_EQ(s.out.sends.back().immediate().value, 2U);
    s.complete_all();
    EXPECT_TRUE(s.stream.is_quiet());
}

TEST(RsocketStream, GivesAHalfBackWhenItWasRead) {
    Scripted s;
    s.complete_all();
    std::vector<std::byte> got(1 << 16);
    s.arrive(pattern(1 << 15));
    s.arrive(pattern(1 << 15, 3));
    EXPECT_EQ(s.stream.receive(std::span(got).first(65535)), 65535U);
    s.stream.flush(s.out);
    EXPECT_TRUE(s.out.sends.empty());
    EXPECT_EQ(s.stream.receive(std::span(got).last(1)), 1U);
    s.stream.flush(s.out);
    ASSERT_EQ(s.out.sends.size(), 1U);
    EXPECT_EQ(s.out.sends[0].immediate().value, 386U);  // Two messages were read.
    EXPECT_EQ(s.out.sends[0].send.address, s.peer.targets.address);
    EXPECT_EQ(got[65535], pattern(1 << 15, 3).back());
}

TEST(RsocketStream, GivesCreditsWithoutAHalfWhenManyMessagesWereRead) {
    Scripted s;
    s.complete_all();
    std::array<std::byte, 1> got{};
    for (int i = 0; i < 192; ++i) {
        EXPECT_TRUE(s.out.sends.empty());
        s.arrive(pattern(1));
        s.stream.receive(got);
        s.stream.flush(s.out);
    }
    ASSERT_EQ(s.out.sends.size(), 1U);
    EXPECT_EQ(s.out.sends[0].immediate().kind, Kind::Credits);
    EXPECT_EQ(s.out.sends[0].immediate().value, 192U + 384);
    EXPECT_EQ(s.out.sends[0].send.length(), 0U);
}

TEST(RsocketStream, APeerThatOverrunsIsRefused) {
    Scripted bytes;
    bytes.stream.on_immediate(Immediate{Kind::Data, (1 << 17) + 1}.emit());
    EXPECT_EQ(bytes.stream.error(), EPROTO);
    Scripted messages;
    for (int i = 0; i < 386; ++i) messages.arrive(pattern(1));
    EXPECT_EQ(messages.stream.error(), EPROTO);
    Scripted reserved;
    reserved.stream.on_immediate(0x20000000);
    EXPECT_EQ(reserved.stream.error(), EPROTO);
}

TEST(RsocketStream, DataBeforeTheEndIsRead) {
    Scripted s;
    s.arrive(pattern(100));
    s.stream.on_immediate(Immediate{Kind::Control, 0}.emit());
    EXPECT_FALSE(s.stream.is_connected());
    s.stream.fail(ECONNRESET);  // What the connection manager tells afterwards changes nothing.
    EXPECT_EQ(s.stream.error(), 0);
    std::array<std::byte, 200> got{};
    EXPECT_EQ(s.stream.peek(got), 100U);
    EXPECT_EQ(s.stream.receive(got), 100U);
    EXPECT_FALSE(s.stream.has_data());
}

TEST(RsocketStream, EndsOneSideAfterTheOther) {
    Scripted s;
    s.stream.on_immediate(Immediate{Kind::Control, 2}.emit());
    EXPECT_FALSE(s.stream.is_readable());
    EXPECT_TRUE(s.stream.is_writable());
    EXPECT_EQ(send_all(s.stream, pattern(10), s.out), 10U);
    s.stream.shut_writing(s.out);
    EXPECT_EQ(s.out.sends.back().immediate().value, 0U);  // Nothing is left: a disconnect.
    EXPECT_FALSE(s.stream.is_connected());
}

TEST(RsocketStream, ALostConnectionIsAnError) {
    Scripted s;
    s.stream.fail(ECONNRESET);
    EXPECT_EQ(s.stream.error(), ECONNRESET);
    EXPECT_EQ(send_all(s.stream, pattern(10), s.out), 0U);
}

TEST(RsocketStream, PiecesOfAProgramBecomeOneMessage) {
    Scripted s;
    s.take();
    const std::vector<std::byte> bytes = pattern(300);
    const ByteView all(bytes);
    const std::array<ByteView, 4> places{all.first(1), ByteView{}, all.subspan(1, 199),
                                         all.subspan(200)};
    EXPECT_EQ(s.stream.send(places, 5, s.out), 295U);
    ASSERT_EQ(s.out.sends.size(), 1U);
    EXPECT_EQ(s.out.sends[0].bytes, std::vector<std::byte>(bytes.begin() + 5, bytes.end()));
}

TEST(RsocketStream, MappingsTravelBeforeLaterDataAndTakeACredit) {
    Scripted s(std::endian::big, 4, 1);
    s.take();
    const Mapping mapping{1000, {0x77000, 9, 500}};
    ASSERT_TRUE(s.stream.offer_mapping(3, mapping, s.out));
    EXPECT_FALSE(s.stream.offer_mapping(4, mapping, s.out));
    const Sent sent = s.take();
    EXPECT_EQ(sent.immediate().kind, Kind::Mapping);
    EXPECT_EQ(sent.immediate().value, 3U);
    EXPECT_EQ(sent.send.address, s.peer.targets.address + 32 + 3 * 24);
    EXPECT_EQ(parse_mapping(std::span<const std::byte, kMappingBytes>(sent.bytes), std::endian::big)
                  .target,
              mapping.target);
    EXPECT_EQ(send_all(s.stream, pattern(1), s.out), 0U);  // The only credit is gone.
}

TEST(RsocketStream, WritesIntoAPeersMapping) {
    Scripted s(std::endian::native, 2);
    s.take();
    const std::vector<std::byte> bytes = pattern(3000);
    EXPECT_EQ(s.stream.write_mapped(bytes, 5000, s.out).error().code, EINVAL);
    emit_mapping(std::span<std::byte, kMappingBytes>(s.memory.config.targets.data() + 32 + 24, 24),
                 {4000, {0x66000, 31, 4000}}, s.memory.config.order);
    EXPECT_EQ(*s.stream.write_mapped(bytes, 5000, s.out), 3000U);
    EXPECT_EQ(s.out.sends[0].send.address, 0x66000U + 1000);
    EXPECT_EQ(s.out.sends[0].send.key, 31U);
    EXPECT_FALSE(s.out.sends[0].send.has_immediate);
    // What reaches beyond the mapping is written up to its end.
    EXPECT_EQ(*s.stream.write_mapped(bytes, 6000, s.out), 2000U);
}

}  // namespace stream_test
}  // namespace feroce::rsockets
