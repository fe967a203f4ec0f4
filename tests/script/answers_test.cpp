// Answers that are missing: which of them a requester that keeps the others asks for again, when,
// and how often.
#include "scripted_peer.hpp"

namespace feroce::script::answers_test {
namespace {

using namespace std::chrono_literals;
using transport::Counter;
using transport::DropReason;

constexpr std::uint32_t kPackets = 12;

Psn sent(std::uint32_t n) {
    return kSendPsn + n;
}
Psn asked(std::uint32_t n) {
    return kReceivePsn + n;
}

// One READ of many packets is out; a round trip is ten microseconds.
class Answers : public testing::Test {
protected:
    Answers() {
        peer.post(SendOp::Read, kPackets * kMtu, 1);
        peer.expect_sent(Opcode::RcReadRequest, sent(0));
        peer.after(10us);
        respond(0);
        peer.expect_silence();
    }
    void respond(std::uint32_t n) {
        peer.peer_sends(n + 1 == kPackets ? Opcode::RcReadResponseLast
                        : n == 0          ? Opcode::RcReadResponseFirst
                                          : Opcode::RcReadResponseMiddle,
                        sent(n), {.payload_size = kMtu, .fill = static_cast<std::byte>(n)});
    }
    void expect_asked(std::uint32_t first, std::uint32_t packets) {
        const SentPacket again = peer.expect_sent(Opcode::RcReadRequest, sent(first));
        EXPECT_EQ(again.packet.reth().length, packets * kMtu);
    }
    void expect_hello() { peer.expect_sent(Opcode::RcWriteOnly, sent(0)); }
    void expect_all() {
        peer.expect_silence();
        peer.expect_completion(1, WcStatus::Success);
        for (std::uint32_t n = 0; n < kPackets; ++n)
            EXPECT_EQ(peer.memory[n * kMtu], static_cast<std::byte>(n)) << n;
    }
    ScriptedPeer peer{{.read_atomic_max = 2, .keeps_packets = true}};
};

TEST_F(Answers, EveryGapIsAskedForWhenItIsFound) {
    respond(2);
    expect_hello();
    expect_asked(1, 1);
    respond(6);
    expect_asked(3, 3);
    for (const std::uint32_t n : {7, 8, 9, 10, 11}) respond(n);
    peer.expect_silence();
    peer.expect_no_completion();
    peer.after(10us);
    for (const std::uint32_t n : {1, 3, 4, 5}) respond(n);
    expect_all();
    EXPECT_EQ(peer.engine.counters()[Counter::ResentByResponse], 2U);
}

TEST_F(Answers, NoMoreIsAskedForAtATimeThanThePeerKeeps) {
    respond(2);
    expect_hello();
    expect_asked(1, 1);
    respond(4);
    expect_asked(3, 1);
    respond(6);
    for (const std::uint32_t n : {7, 8, 9, 10, 11}) respond(n);
    peer.expect_silence();
    peer.after(10us);
    respond(1);
    expect_asked(5, 1);
    respond(3);
    peer.after(10us);
    respond(5);
    expect_all();
}

TEST_F(Answers, WhatIsLostAgainIsAskedForAgain) {
    respond(2);
    expect_hello();
    expect_asked(1, 1);
    respond(4);
    expect_asked(3, 1);
    for (const std::uint32_t n : {5, 6, 7, 8, 9, 10, 11}) respond(n);
    peer.after(10us);
    respond(3);  // Was asked for after 1.
    expect_asked(1, 1);
    peer.after(10us);
    respond(1);
    expect_all();
}

// Nothing that follows tells so.
TEST_F(Answers, TheLastOneIsAskedForAfterTwoRoundTrips) {
    for (std::uint32_t n = 2; n < kPackets; ++n) respond(n);
    expect_hello();
    expect_asked(1, 1);
    peer.after(100us);
    peer.expect_silence();
    peer.after(100us);
    expect_asked(1, 1);
    peer.after(10us);
    respond(1);
    expect_all();
}

// Packets 0 to 3, of which the peer has listed one. It is known to do that then.
void send_to_one_that_lists(ScriptedPeer& peer) {
    peer.post(SendOp::Write, kMtu, 0);
    peer.after(10us);
    peer.peer_acks(sent(0));
    peer.expect_completion(0, WcStatus::Success);
    peer.post(SendOp::Write, 3 * kMtu, 1);
    peer.after(10us);
    peer.peer_lists(sent(1), {1, 1});
    peer.after(10us);
    peer.peer_acks(sent(3));
    peer.expect_completion(1, WcStatus::Success);
}

// Nor of messages, once the peer is known to keep packets and to list them.
TEST(Tail, IsSentAgainAfterTwoRoundTrips) {
    ScriptedPeer peer({.keeps_packets = true});
    send_to_one_that_lists(peer);
    peer.post(SendOp::Write, kMtu, 2);
    peer.port.sent.clear();
    peer.after(100us);
    peer.expect_silence();
    peer.after(100us);
    peer.expect_sent(Opcode::RcWriteOnly, sent(4));
    peer.expect_silence();
    peer.peer_acks(sent(4));
    peer.expect_completion(2, WcStatus::Success);
    EXPECT_EQ(peer.engine.counters()[Counter::AckTimeouts], 0U);
}

// What it does not list it has dropped, though it lists what it keeps.
TEST(Tail, AllIsSentAgainIfThePeerHasKeptNothing) {
    ScriptedPeer peer({.keeps_packets = true});
    send_to_one_that_lists(peer);
    peer.post(SendOp::Write, 4 * kMtu, 2);
    peer.port.sent.clear();
    peer.after(200us);
    peer.expect_sent(Opcode::RcWriteFirst, sent(4));
    peer.expect_silence();
    peer.peer_acks(sent(4));
    peer.expect_sent(Opcode::RcWriteMiddle, sent(5));
    peer.expect_sent(Opcode::RcWriteMiddle, sent(6));
    peer.expect_sent(Opcode::RcWriteLast, sent(7));
    peer.peer_acks(sent(7));
    peer.expect_completion(2, WcStatus::Success);
}

// It is late, not lost: others that are as late are waited for.
TEST_F(Answers, OnesThatAreOvertakenAreNotAskedForForEver) {
    respond(2);
    expect_hello();
    expect_asked(1, 1);
    respond(3);
    respond(1);
    respond(5);
    peer.expect_silence();
    respond(4);
    for (std::uint32_t n = 6; n < kPackets; ++n) respond(n);
    expect_all();
    EXPECT_EQ(peer.engine.counters()[Counter::ResentByResponse], 1U);
}

// Of those that may be asked for again at a time they are none any more.
TEST(LateAnswers, DoNotKeepOthersFromBeingAskedFor) {
    ScriptedPeer peer({.read_atomic_max = 1, .keeps_packets = true});
    peer.post(SendOp::Read, kPackets * kMtu, 1);
    peer.expect_sent(Opcode::RcReadRequest, sent(0));
    peer.after(10us);
    const auto respond = [&](std::uint32_t n) {
        peer.peer_sends(n == 0 ? Opcode::RcReadResponseFirst : Opcode::RcReadResponseMiddle,
                        sent(n), {.payload_size = kMtu});
    };
    respond(0);
    respond(2);
    peer.expect_sent(Opcode::RcWriteOnly, sent(0));  // Says that we understand lists.
    peer.expect_sent(Opcode::RcReadRequest, sent(1));
    respond(4);
    peer.expect_silence();  // One at a time.
    respond(1);
    peer.expect_sent(Opcode::RcReadRequest, sent(3));
}

// What the peer acknowledged, or says that it keeps, it has not dropped because a READ before it is
// answered one packet earlier than its acknowledgement comes.
TEST(LateAnswers, AreNoSignThatWhatFollowsWasDropped) {
    ScriptedPeer peer({.keeps_packets = true});
    peer.post(SendOp::Write, kMtu, 1);
    peer.post(SendOp::Read, 2 * kMtu, 2);
    peer.post(SendOp::Write, kMtu, 3);
    peer.post(SendOp::Write, kMtu, 4);
    peer.after(10us);
    peer.port.sent.clear();
    peer.peer_lists(sent(0), {1, 4});  // The first is missing; the peer keeps all others.
    peer.expect_sent(Opcode::RcWriteOnly, sent(0));
    for (std::uint32_t n = 1; n < 3; ++n)
        peer.peer_sends(n == 1 ? Opcode::RcReadResponseFirst : Opcode::RcReadResponseLast, sent(n),
                        {.payload_size = kMtu});
    peer.expect_silence();
    peer.peer_acks(sent(4));
    for (std::uint64_t id = 1; id < 5; ++id) peer.expect_completion(id, WcStatus::Success);
}

TEST_F(Answers, ARetryIsOneOfTheProgramsOnlyIfNothingCame) {
    for (std::uint32_t round = 0; round < 20; ++round) {
        respond(2);
        peer.after(10us);
    }
    EXPECT_EQ(peer.qp->state(), QpState::Rts);
}

// A request for a READ that was lost, as a list says: what follows is sent twice.
TEST(Copies, FollowARequestThatWasLost) {
    ScriptedPeer peer({.keeps_packets = true});
    peer.post(SendOp::Write, 8, 1);
    peer.peer_acks(sent(0));
    peer.expect_completion(1, WcStatus::Success);
    peer.post(SendOp::Read, kMtu, 2);
    peer.post(SendOp::Read, kMtu, 3);
    peer.after(10us);
    peer.port.sent.clear();
    peer.peer_lists(sent(1), {1, 1});
    const SentPacket again = peer.expect_sent(Opcode::RcReadRequest, sent(1));
    EXPECT_TRUE(again.packet.bth.ack_request);
    const SentPacket copy = peer.expect_sent(Opcode::RcReadRequest, sent(1));
    EXPECT_FALSE(copy.packet.bth.ack_request);
    EXPECT_EQ(copy.packet.reth().length, kMtu);
    peer.expect_silence();
}

TEST(LateAnswers, EndWithTheLastRetry) {
    for (const bool atomic : {false, true}) {
        ScriptedPeer peer({.retry_count = 0, .keeps_packets = true});
        peer.post(SendOp::Write, kMtu, 1);
        peer.post(SendOp::Read, kMtu, 2);
        peer.post(atomic ? SendOp::FetchAdd : SendOp::Read, atomic ? 8 : kMtu, 3);
        peer.after(10us);
        peer.peer_lists(sent(0), {1});
        peer.after(10us);
        // It says that the answer before it is lost, and there is no retry for that.
        if (atomic)
            peer.peer_sends(Opcode::RcAtomicAck, sent(2), {});
        else
            peer.peer_sends(Opcode::RcReadResponseOnly, sent(2), {.payload_size = kMtu});
        EXPECT_EQ(peer.qp->state(), QpState::Err) << atomic;
    }
}

// It could not be taken in its turn, and would not be asked for again.
TEST(LateAnswers, AreNotKeptIfTheyAreOfTheWrongKind) {
    for (const bool atomic : {false, true}) {
        ScriptedPeer peer({.retry_count = 1, .keeps_packets = true});
        peer.post(SendOp::Read, kMtu, 1);
        peer.post(atomic ? SendOp::FetchAdd : SendOp::Read, atomic ? 8 : kMtu, 2);
        peer.after(10us);
        if (atomic)
            peer.peer_sends(Opcode::RcReadResponseOnly, sent(1), {.payload_size = 8});
        else
            peer.peer_sends(Opcode::RcAtomicAck, sent(1), {});
        peer.peer_sends(Opcode::RcReadResponseOnly, sent(0), {.payload_size = kMtu});
        for (int i = 0; i < 200 && peer.qp->state() == QpState::Rts; ++i) peer.after(10ms);
        EXPECT_EQ(peer.qp->state(), QpState::Err) << "the answer never came; " << atomic;
    }
}

// At the other end, of a peer that understands lists.
TEST(Copies, AreExecutedInPlaceOfTheFirstAndDroppedBehindIt) {
    ScriptedPeer peer({.keeps_packets = true});
    const auto read = [&](std::uint32_t n, bool first) {
        peer.peer_delivers(Opcode::RcReadRequest, asked(n),
                           {.extensions = {.reth = peer.reth(8)}, .ack_request = first});
        peer.run();
    };
    const auto dropped = [&] { return peer.engine.counters()[DropReason::DuplicateReadBusy]; };
    peer.peer_sends(Opcode::RcWriteOnly, asked(0),
                    {.extensions = {.reth = peer.reth(8)}, .payload_size = 8});
    peer.expect_ack(asked(0));
    peer.peer_says_hello();
    peer.port.sent.clear();
    read(1, true);
    peer.expect_sent(Opcode::RcReadResponseOnly, asked(1));
    read(1, false);
    peer.expect_silence();
    EXPECT_EQ(dropped(), 1U);
    read(3, true);  // Kept, once.
    peer.expect_nak(asked(2), wire::NakCode::SequenceError);
    read(3, false);
    peer.expect_silence();
    EXPECT_EQ(dropped(), 2U);
    read(2, false);
    peer.expect_sent(Opcode::RcReadResponseOnly, asked(2));
    peer.expect_sent(Opcode::RcReadResponseOnly, asked(3));
    peer.expect_ack(asked(3));
}

// Others may leave the bit clear.
TEST(Copies, AreReadsAskedForAgainIfThePeerIsOfAnotherKind) {
    ScriptedPeer peer({.keeps_packets = true});
    for (int i = 0; i < 2; ++i) {
        peer.peer_delivers(Opcode::RcReadRequest, asked(0),
                           {.extensions = {.reth = peer.reth(8)}, .ack_request = false});
        peer.run();
        peer.expect_sent(Opcode::RcReadResponseOnly, asked(0));
    }
}

}  // namespace
}  // namespace feroce::script::answers_test
