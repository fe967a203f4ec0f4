// The answering half of RC, packet by packet.
#include "scripted_peer.hpp"

namespace feroce::script::rc_responder_test {
namespace {

using transport::AsyncEventType;
using transport::Counter;
using transport::DropReason;
using transport::WcOpcode;
using wire::NakCode;

Psn asked(std::uint32_t n) {
    return kReceivePsn + n;
}

ScriptedPeer::Spec write(const ScriptedPeer& peer, std::uint32_t length, std::size_t payload,
                         bool ack_request = true) {
    ScriptedPeer::Spec spec{.payload_size = payload, .ack_request = ack_request};
    spec.extensions.reth = peer.reth(length);
    return spec;
}

std::uint64_t word(const ScriptedPeer& peer, std::size_t offset = 0) {
    std::uint64_t value = 0;
    std::memcpy(&value, peer.memory.data() + offset, 8);
    return value;
}

ScriptedPeer::Spec add(const ScriptedPeer& peer, std::uint64_t value) {
    ScriptedPeer::Spec spec;
    spec.extensions.atomic = {peer.address(), peer.keys.rkey, value, 0};
    return spec;
}

TEST(RcResponder, WritesAndAcknowledgesOnceWhenAsked) {
    ScriptedPeer peer;
    peer.peer_sends(Opcode::RcWriteFirst, asked(0), write(peer, 2 * kMtu + 2, kMtu, false));
    peer.peer_sends(Opcode::RcWriteMiddle, asked(1), {.payload_size = kMtu, .ack_request = false});
    peer.expect_silence();
    peer.peer_sends(Opcode::RcWriteLast, asked(2), {.payload_size = 2});
    peer.expect_ack(asked(2));
    peer.expect_silence();
    EXPECT_EQ(peer.memory[0], std::byte{0x5a});
    EXPECT_EQ(peer.memory[2 * kMtu + 1], std::byte{0x5a});
    EXPECT_NE(peer.memory[2 * kMtu + 2], std::byte{0x5a});
    peer.expect_no_completion();
}

TEST(RcResponder, SendFillsAReceiveAndCarriesItsExtras) {
    ScriptedPeer peer;
    peer.post_receive(4096, 7);
    ScriptedPeer::Spec first{.payload_size = kMtu};
    peer.peer_sends(Opcode::RcSendFirst, asked(0), first);
    ScriptedPeer::Spec last{.payload_size = 5, .solicited = true};
    last.extensions.immediate = 0xcafe;
    peer.peer_sends(Opcode::RcSendLastImmediate, asked(1), last);
    const auto completion = peer.poll();
    ASSERT_TRUE(completion);
    EXPECT_EQ(completion->wr_id, 7U);
    EXPECT_EQ(completion->byte_length, kMtu + 5);
    EXPECT_TRUE(completion->has_immediate);
    EXPECT_EQ(completion->immediate, 0xcafeU);
    EXPECT_TRUE(completion->solicited);
    EXPECT_EQ(completion->source_qpn, kPeerQpn);
}

TEST(RcResponder, WriteWithImmediateTakesAReceiveAtItsEnd) {
    ScriptedPeer peer;
    ScriptedPeer::Spec spec = write(peer, 100, 100);
    spec.extensions.immediate = 9;
    peer.peer_sends(Opcode::RcWriteOnlyImmediate, asked(0), spec);
    peer.expect_ack(asked(0), wire::Syndrome::Kind::Rnr);
    peer.post_receive(0, 3);
    peer.peer_sends(Opcode::RcWriteOnlyImmediate, asked(0), spec);
    peer.expect_ack(asked(0));
    const auto completion = peer.poll();
    ASSERT_TRUE(completion);
    EXPECT_EQ(static_cast<int>(completion->opcode),
              static_cast<int>(WcOpcode::ReceiveWriteImmediate));
    EXPECT_EQ(completion->byte_length, 100U);
}

TEST(RcResponder, OneNakForAGapUntilItCloses) {
    ScriptedPeer peer;
    for (std::uint32_t n : {1U, 2U, 3U})
        peer.peer_sends(Opcode::RcWriteOnly, asked(n), write(peer, 8, 8));
    peer.expect_nak(asked(0), NakCode::SequenceError);
    peer.expect_silence();
    peer.peer_sends(Opcode::RcWriteOnly, asked(0), write(peer, 8, 8));
    peer.expect_ack(asked(0));
    peer.peer_sends(Opcode::RcWriteOnly, asked(2), write(peer, 8, 8));
    peer.expect_nak(asked(1), NakCode::SequenceError);
    EXPECT_EQ(peer.engine.counters()[Counter::OutOfSequenceRequest], 4U);
}

TEST(RcResponder, NoReceiveGivesAnRnrNakWithOurTimer) {
    ScriptedPeer peer;
    peer.peer_sends(Opcode::RcSendOnly, asked(0), {.payload_size = 8});
    const SentPacket nak = peer.expect_sent(Opcode::RcAck, asked(0));
    EXPECT_EQ(nak.packet.aeth().syndrome, wire::Syndrome::rnr(12));
    peer.peer_sends(Opcode::RcSendOnly, asked(1), {.payload_size = 8});
    peer.expect_silence();
    peer.post_receive(64, 1);
    peer.peer_sends(Opcode::RcSendOnly, asked(0), {.payload_size = 8});
    peer.expect_ack(asked(0));
    peer.expect_completion(1, WcStatus::Success);
}

TEST(RcResponder, DuplicateWritesAreAcknowledgedButNotExecuted) {
    ScriptedPeer peer;
    peer.peer_sends(Opcode::RcWriteOnly, asked(0), write(peer, 8, 8));
    peer.expect_ack(asked(0));
    peer.memory[0] = std::byte{1};
    peer.peer_sends(Opcode::RcWriteOnly, asked(0), write(peer, 8, 8));
    peer.expect_ack(asked(0));
    EXPECT_EQ(peer.memory[0], std::byte{1});
    EXPECT_EQ(peer.engine.counters()[Counter::DuplicateRequest], 1U);
}

TEST(RcResponder, DuplicateAtomicsGetTheirOldAnswer) {
    ScriptedPeer peer;  // dest_read_atomic_max 2.
    const std::uint64_t start = word(peer);
    for (std::uint32_t n = 0; n < 3; ++n) {
        peer.peer_sends(Opcode::RcFetchAdd, asked(n), add(peer, 10));
        const SentPacket answer = peer.expect_sent(Opcode::RcAtomicAck, asked(n));
        EXPECT_EQ(answer.packet.atomic_ack().original, start + 10 * n);
    }
    peer.peer_sends(Opcode::RcFetchAdd, asked(2), add(peer, 10));
    EXPECT_EQ(peer.expect_sent(Opcode::RcAtomicAck, asked(2)).packet.atomic_ack().original,
              start + 20);
    peer.peer_sends(Opcode::RcFetchAdd, asked(0), add(peer, 10));  // Forgotten: too old.
    peer.expect_silence();
    EXPECT_EQ(word(peer), start + 30);
    EXPECT_EQ(peer.engine.counters()[DropReason::DuplicateUnknownAtomic], 1U);
}

TEST(RcResponder, DuplicateReadsAreReadAgain) {
    ScriptedPeer peer;
    ScriptedPeer::Spec read;
    read.extensions.reth = peer.reth(3 * kMtu);
    peer.peer_sends(Opcode::RcReadRequest, asked(0), read);
    peer.expect_sent(Opcode::RcReadResponseFirst, asked(0));
    peer.expect_sent(Opcode::RcReadResponseMiddle, asked(1));
    peer.expect_sent(Opcode::RcReadResponseLast, asked(2));
    peer.memory[kMtu] = std::byte{0x77};
    read.extensions.reth = peer.reth(2 * kMtu, kMtu);
    peer.peer_sends(Opcode::RcReadRequest, asked(1), read);
    EXPECT_EQ(peer.expect_sent(Opcode::RcReadResponseFirst, asked(1)).packet.payload[0],
              std::byte{0x77});
    peer.expect_sent(Opcode::RcReadResponseLast, asked(2));
    peer.peer_sends(Opcode::RcWriteOnly, asked(3), write(peer, 8, 8));
    peer.expect_ack(asked(3));
}

TEST(RcResponder, AnswersLeaveInTheOrderOfRequests) {
    ScriptedPeer peer;
    ScriptedPeer::Spec read;
    read.extensions.reth = peer.reth(100 * kMtu);
    read.extensions.reth.length = 100 * kMtu;
    // Both arrive before the engine runs: the WRITE is done while most responses are still to go.
    peer.peer_sends(Opcode::RcReadRequest, asked(0), read);
    peer.peer_sends(Opcode::RcWriteOnly, asked(100), write(peer, 8, 8));
    for (std::uint32_t n = 0; n < 100; ++n) {
        const Opcode opcode = n == 0    ? Opcode::RcReadResponseFirst
                              : n == 99 ? Opcode::RcReadResponseLast
                                        : Opcode::RcReadResponseMiddle;
        peer.expect_sent(opcode, asked(n));
    }
    peer.expect_ack(asked(100));
    peer.expect_silence();
}

TEST(RcResponder, RefusesWhatTheRulesForbid) {
    struct Case {
        const char* name;
        Opcode opcode;
        std::size_t payload;
        wire::Reth reth;
        NakCode code;
        std::uint32_t access;
    };
    const ScriptedPeer model;
    const RKey bad{0x1234};
    for (const Case& c : std::initializer_list<Case>{
             {"bad rkey", Opcode::RcWriteOnly, 8, {0, bad, 8}, NakCode::RemoteAccess, 15},
             {"read, bad rkey", Opcode::RcReadRequest, 0, {0, bad, 8}, NakCode::RemoteAccess, 15},
             {"middle first", Opcode::RcWriteMiddle, kMtu, {}, NakCode::InvalidRequest, 15},
             {"last first", Opcode::RcSendLast, 8, {}, NakCode::InvalidRequest, 15},
             {"short first", Opcode::RcWriteFirst, 8, {0, bad, 9}, NakCode::InvalidRequest, 15},
             {"length", Opcode::RcWriteOnly, 8, {0, bad, 9}, NakCode::InvalidRequest, 15},
             {"too long", Opcode::RcSendOnly, kMtu + 4, {}, NakCode::InvalidRequest, 15},
             {"no write", Opcode::RcWriteOnly, 8, {0, bad, 8}, NakCode::InvalidRequest, 1},
             {"no read", Opcode::RcReadRequest, 0, {0, bad, 8}, NakCode::InvalidRequest, 1},
             {"no atomic", Opcode::RcFetchAdd, 0, {}, NakCode::InvalidRequest, 1}}) {
        SCOPED_TRACE(c.name);
        ScriptedPeer peer({.access = c.access});
        peer.post_receive(8192, 1);
        ScriptedPeer::Spec spec{.payload_size = c.payload};
        spec.extensions.reth = c.reth;
        peer.peer_sends(c.opcode, asked(0), spec);
        peer.expect_nak(asked(0), c.code);
        EXPECT_EQ(static_cast<int>(peer.qp->state()), static_cast<int>(QpState::Err));
        const transport::Reason* reason = peer.engine.reasons().find(peer.qp->first_reason());
        ASSERT_NE(reason, nullptr);
        EXPECT_TRUE(reason->at_responder);
        peer.expect_completion(1, WcStatus::FlushError);
        peer.peer_sends(c.opcode, asked(0), spec);
        peer.expect_nak(asked(0), c.code);  // Said again when asked again: the first may be lost.
        EXPECT_EQ(
            static_cast<int>(peer.events.events.back()),
            static_cast<int>(c.code == NakCode::RemoteAccess ? AsyncEventType::QpAccessError
                                                             : AsyncEventType::QpRequestError));
    }
}

TEST(RcResponder, AReceiveThatIsTooSmallFailsBothSides) {
    ScriptedPeer peer;
    peer.post_receive(10, 5);
    peer.post_receive(10, 6);
    peer.peer_sends(Opcode::RcSendOnly, asked(0), {.payload_size = 11});
    peer.expect_nak(asked(0), NakCode::InvalidRequest);
    peer.expect_completion(5, WcStatus::LocalLengthError);
    peer.expect_completion(6, WcStatus::FlushError);
}

TEST(RcResponder, AReceiveInHandIsFlushedFirst) {
    ScriptedPeer peer;
    peer.post_receive(4 * kMtu, 1);
    peer.post_receive(4 * kMtu, 2);
    peer.peer_sends(Opcode::RcSendFirst, asked(0), {.payload_size = kMtu});
    ASSERT_TRUE(peer.modify(QpState::Err));
    peer.expect_completion(1, WcStatus::FlushError);
    peer.expect_completion(2, WcStatus::FlushError);
    peer.expect_no_completion();
}

TEST(RcResponder, AtomicsOutsideTheirRegionAreRefused) {
    ScriptedPeer peer;
    ScriptedPeer::Spec spec = add(peer, 1);
    spec.extensions.atomic.address = peer.address() + ScriptedPeer::kMemoryBytes - 4;
    peer.peer_sends(Opcode::RcFetchAdd, asked(0), spec);
    peer.expect_nak(asked(0), NakCode::InvalidRequest);  // Misaligned comes first.
    ScriptedPeer other;
    spec.extensions.atomic = {other.address() + ScriptedPeer::kMemoryBytes, other.keys.rkey, 1, 0};
    other.peer_sends(Opcode::RcFetchAdd, asked(0), spec);
    other.expect_nak(asked(0), NakCode::RemoteAccess);
}

TEST(RcResponder, ZeroLengthNeedsNoKey) {
    ScriptedPeer peer;
    ScriptedPeer::Spec spec;
    spec.extensions.reth = {0, RKey{0}, 0};
    peer.peer_sends(Opcode::RcWriteOnly, asked(0), spec);
    peer.expect_ack(asked(0));
    peer.peer_sends(Opcode::RcReadRequest, asked(1), spec);
    EXPECT_TRUE(peer.expect_sent(Opcode::RcReadResponseOnly, asked(1)).packet.payload.empty());
}

TEST(RcResponder, TooManyReadsAtOnceAreRefused) {
    ScriptedPeer peer({.dest_read_atomic_max = 0});
    ScriptedPeer::Spec read;
    read.extensions.reth = peer.reth(8);
    peer.peer_sends(Opcode::RcReadRequest, asked(0), read);
    peer.expect_nak(asked(0), NakCode::InvalidRequest);
}

TEST(RcResponder, TellsHowManyReceivesArePosted) {
    ScriptedPeer peer;
    for (std::uint64_t i = 0; i < 6; ++i) peer.post_receive(8, i);
    peer.peer_sends(Opcode::RcSendOnly, asked(0), {.payload_size = 8});
    const SentPacket ack = peer.expect_sent(Opcode::RcAck, asked(0));
    EXPECT_EQ(ack.packet.aeth().syndrome, wire::Syndrome::ack(4));  // Five left: code 4 says four.
    EXPECT_EQ(ack.packet.aeth().msn, 1U);
}

TEST(RcResponder, AtomicWriteAndFlushAreAnsweredByAnEmptyRead) {
    ScriptedPeer peer;
    ScriptedPeer::Spec spec = write(peer, 8, 8);
    peer.peer_sends(Opcode::RcAtomicWrite, asked(0), spec);
    peer.expect_sent(Opcode::RcReadResponseOnly, asked(0));
    EXPECT_EQ(word(peer), 0x5a5a'5a5a'5a5a'5a5aU);
    ScriptedPeer::Spec flush;
    flush.extensions.reth = peer.reth(64);
    peer.peer_sends(Opcode::RcFlush, asked(1), flush);
    peer.expect_sent(Opcode::RcReadResponseOnly, asked(1));
}

// Its eight bytes are those of the payload, whatever length it names, and need the key.
TEST(RcResponder, AnAtomicWriteNeedsItsKeyWhateverLengthItNames) {
    for (const std::uint32_t length : {0U, 1U, 8U}) {
        ScriptedPeer peer;
        const std::uint64_t before = word(peer);
        ScriptedPeer::Spec spec = write(peer, length, 8);
        spec.extensions.reth.rkey.raw ^= 1;
        peer.peer_sends(Opcode::RcAtomicWrite, asked(0), spec);
        peer.expect_nak(asked(0), NakCode::RemoteAccess);
        EXPECT_EQ(word(peer), before);
    }
    ScriptedPeer peer;  // The last byte of the region, and seven behind it.
    ScriptedPeer::Spec spec = write(peer, 1, 8);
    spec.extensions.reth.address += ScriptedPeer::kMemoryBytes - 1;
    peer.peer_sends(Opcode::RcAtomicWrite, asked(0), spec);
    peer.expect_nak(asked(0), NakCode::RemoteAccess);
}

// Whoever asks again for more than it may ask for at once waits, and asks once more.
TEST(RcResponder, AsManyAnswersAreRepeatedAsMayBeAskedFor) {
    ScriptedPeer peer;  // dest_read_atomic_max 2.
    ScriptedPeer::Spec read;
    read.extensions.reth = peer.reth(8);
    peer.peer_sends(Opcode::RcReadRequest, asked(0), read);
    peer.peer_sends(Opcode::RcFetchAdd, asked(1), add(peer, 1));
    peer.port.sent.clear();
    for (const std::uint32_t n : {2U, 3U, 4U})
        peer.peer_delivers(Opcode::RcReadRequest, asked(n), read);
    peer.peer_delivers(Opcode::RcReadRequest, asked(0), read);
    peer.peer_delivers(Opcode::RcFetchAdd, asked(1), add(peer, 1));
    EXPECT_EQ(peer.engine.counters()[DropReason::DuplicateReadBusy], 2U);
    peer.run();
    for (const std::uint32_t n : {2U, 3U, 4U})
        peer.expect_sent(Opcode::RcReadResponseOnly, asked(n));
    peer.expect_silence();
    peer.peer_sends(Opcode::RcReadRequest, asked(0), read);
    peer.expect_sent(Opcode::RcReadResponseOnly, asked(0));
    peer.peer_sends(Opcode::RcFetchAdd, asked(1), add(peer, 1));
    peer.expect_sent(Opcode::RcAtomicAck, asked(1));
}

// A peer that grows impatient gets one answer: the first is on its way out, or half of it is.
TEST(RcResponder, AReadThatIsBeingAnsweredIsNotAnsweredTwice) {
    ScriptedPeer peer;
    constexpr std::uint32_t kTwoTurns = 100;  // Packets: one turn is 64.
    ScriptedPeer::Spec read;
    read.extensions.reth = peer.reth(kTwoTurns * kMtu);
    peer.peer_delivers(Opcode::RcReadRequest, asked(0), read);
    peer.peer_delivers(Opcode::RcReadRequest, asked(0), read);
    EXPECT_EQ(peer.engine.counters()[DropReason::DuplicateReadBusy], 1U);
    peer.engine.run(peer.now);
    const auto done = static_cast<std::uint32_t>(peer.port.sent.size());
    ASSERT_TRUE(done > 0 && done < kTwoTurns) << done;
    read.extensions.reth = peer.reth((kTwoTurns - done) * kMtu, done * kMtu);
    peer.peer_delivers(Opcode::RcReadRequest, asked(done), read);
    EXPECT_EQ(peer.engine.counters()[DropReason::DuplicateReadBusy], 2U);
    peer.run();
    EXPECT_EQ(peer.port.sent.size(), kTwoTurns);
    for (std::uint32_t n = 0; n < kTwoTurns; ++n)
        EXPECT_EQ(peer.port.sent[n].packet.bth.psn, asked(n)) << n;
}

// Half of all PSNs count as duplicates: a READ that was never asked for must not end the
// connection.
TEST(RcResponder, ADuplicateReadWithAWrongKeyIsDropped) {
    ScriptedPeer peer;
    peer.peer_sends(Opcode::RcWriteOnly, asked(0), write(peer, 8, 8));
    peer.expect_ack(asked(0));
    ScriptedPeer::Spec read;
    read.extensions.reth = peer.reth(8);
    read.extensions.reth.rkey.raw ^= 1;
    peer.peer_sends(Opcode::RcReadRequest, asked(0) - 1000, read);
    EXPECT_EQ(peer.engine.counters()[DropReason::DuplicateReadDenied], 1U);
    peer.expect_silence();
    peer.peer_sends(Opcode::RcWriteOnly, asked(1), write(peer, 8, 8));
    peer.expect_ack(asked(1));
}

TEST(RcResponder, NoStrangerIsBelieved) {
    ScriptedPeer peer;
    std::vector<std::byte> bytes(wire::packet_size(Opcode::RcWriteOnly, 8));
    wire::Bth bth;
    bth.opcode = Opcode::RcWriteOnly;
    bth.destination = peer.qp->qpn();
    bth.psn = asked(0);
    wire::Extensions extensions;
    extensions.reth = peer.reth(8);
    wire::emit_headers(bytes, bth, extensions);
    peer.engine.receive(peer.now, {bytes, Gid::from_v4(0x7f00'0003), kOurs, kPeerPort, 0, 0, 64});
    EXPECT_EQ(peer.engine.counters()[DropReason::WrongSource], 1U);
    // One who forges the address but does not know the PSN may be first: he teaches no port.
    bth.psn = asked(5);
    wire::emit_headers(bytes, bth, extensions);
    peer.engine.receive(peer.now, {bytes, kPeers, kOurs, 1234, 0, 0, 64});
    peer.peer_sends(Opcode::RcWriteOnly, asked(0), write(peer, 8, 8));
    const std::uint64_t before = word(peer);
    EXPECT_EQ(before, 0x5a5a'5a5a'5a5a'5a5aU);
    EXPECT_EQ(peer.engine.counters()[DropReason::WrongSourcePort], 0U);
    bth.psn = asked(1);
    wire::emit_headers(bytes, bth, extensions);
    peer.engine.receive(peer.now, {bytes, kPeers, kOurs, 1234, 0, 0, 64});
    EXPECT_EQ(peer.engine.counters()[DropReason::WrongSourcePort], 1U);
    bth.pkey = Pkey{0x1234};
    wire::emit_headers(bytes, bth, extensions);
    peer.engine.receive(peer.now, {bytes, kPeers, kOurs, kPeerPort, 0, 0, 64});
    EXPECT_EQ(peer.engine.counters()[DropReason::BadPkey], 1U);
    EXPECT_EQ(word(peer), before);
}

}  // namespace
}  // namespace feroce::script::rc_responder_test
