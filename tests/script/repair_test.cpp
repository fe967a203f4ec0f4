// Selective repeat, from either side: what a responder keeps and says, and what a requester sends
// again to a peer that keeps packets and to one that goes back.
#include <algorithm>

#include "scripted_peer.hpp"

namespace feroce::script::repair_test {
namespace {

using namespace std::chrono_literals;
using transport::Counter;
using transport::DropReason;
using transport::rc::GapList;
using wire::NakCode;

constexpr QpOptions kKeeping{.keeps_packets = true};
using Spec = ScriptedPeer::Spec;

Psn sent(std::uint32_t n) {
    return kSendPsn + n;
}
Psn asked(std::uint32_t n) {
    return kReceivePsn + n;
}

// The packets of one WRITE to the start of our memory, packet n filled with n.
struct Writer {
    ScriptedPeer& peer;
    std::uint32_t packets;

    void send(std::uint32_t n, bool ack_request = false) const {
        const Opcode opcode = n == 0             ? Opcode::RcWriteFirst
                              : n == packets - 1 ? Opcode::RcWriteLast
                                                 : Opcode::RcWriteMiddle;
        peer.peer_sends(opcode, asked(n),
                        {.extensions = {.reth = peer.reth(packets * kMtu)},
                         .payload_size = kMtu,
                         .ack_request = ack_request,
                         .fill = static_cast<std::byte>(n)});
    }
    void expect_written(std::uint32_t count) const {
        for (std::uint32_t n = 0; n < packets; ++n)
            EXPECT_EQ(peer.memory[n * kMtu] == static_cast<std::byte>(n) &&
                          peer.memory[n * kMtu + kMtu - 1] == static_cast<std::byte>(n),
                      n < count)
                << n;
    }
};

ScriptedPeer& blank(ScriptedPeer& peer) {
    std::fill(peer.memory.begin(), peer.memory.end(), std::byte{0xff});
    return peer;
}

TEST(Keeping, WhatFollowsAGapIsExecutedWhenItIsClosed) {
    ScriptedPeer peer(kKeeping);
    const Writer writer{blank(peer), 5};
    writer.send(0);
    writer.send(2);
    peer.expect_nak(asked(1), NakCode::SequenceError);
    writer.send(3);
    writer.send(4);
    peer.expect_silence();
    writer.expect_written(1);  // Nothing is placed early.
    writer.send(1);
    writer.expect_written(5);
    peer.expect_ack(asked(4));
    EXPECT_EQ(peer.engine.counters()[DropReason::OutOfSequence], 0U);
    EXPECT_EQ(peer.engine.counters()[Counter::OutOfSequenceRequest], 3U);
}

TEST(Keeping, TheNextGapIsNamedAtOnceIfTheRepairAsks) {
    ScriptedPeer peer(kKeeping);
    const Writer writer{blank(peer), 6};
    writer.send(0);
    writer.send(2);
    peer.expect_nak(asked(1), NakCode::SequenceError);
    writer.send(5);
    writer.send(1, true);
    peer.expect_nak(asked(3), NakCode::SequenceError);
    writer.send(3, true);
    peer.expect_nak(asked(4), NakCode::SequenceError);  // Beside the one before.
    writer.send(4, true);
    peer.expect_ack(asked(5));
    writer.expect_written(6);
}

TEST(Keeping, ARequesterThatDidNotHearIsAnsweredAgain) {
    ScriptedPeer peer(kKeeping);
    const Writer writer{blank(peer), 6};
    writer.send(0);
    writer.send(2);
    peer.expect_nak(asked(1), NakCode::SequenceError);
    writer.send(3, true);
    peer.expect_ack(asked(0));
}

// It sends all from the gap on: what is executed already is a duplicate, and is acknowledged.
TEST(Keeping, ARequesterThatGoesBackIsAnswered) {
    ScriptedPeer peer(kKeeping);
    const Writer writer{blank(peer), 5};
    writer.send(0);
    writer.send(2);
    writer.send(4, true);
    peer.port.sent.clear();
    writer.send(1);
    peer.expect_ack(asked(2));  // Up to the second gap, which it is not told of: it did not ask.
    writer.send(2);
    peer.expect_ack(asked(2));
    writer.send(3);
    peer.expect_ack(asked(4));
    writer.send(4, true);
    peer.expect_ack(asked(4));
    writer.expect_written(5);
}

TEST(Keeping, NothingIsKeptBehindARefusal) {
    ScriptedPeer peer(kKeeping);
    const auto send = [&](std::uint32_t n) {
        peer.peer_sends(Opcode::RcSendOnly, asked(n), {.payload_size = 8});
    };
    send(1);
    peer.expect_nak(asked(0), NakCode::SequenceError);
    send(2);
    peer.post_receive(64, 1);
    peer.port.sent.clear();
    send(0);  // The receive is for this one; the next finds none.
    peer.expect_ack(asked(1), wire::Syndrome::Kind::Rnr);
    peer.port.sent.clear();
    peer.expect_completion(1, WcStatus::Success);
    for (std::uint64_t id = 2; id < 5; ++id) peer.post_receive(64, id);
    send(1);
    peer.expect_ack(asked(1));
    peer.expect_completion(2, WcStatus::Success);
    peer.expect_no_completion();  // The third was dropped with the refusal.
    send(2);
    peer.expect_completion(3, WcStatus::Success);
}

// A packet of the life before must not be executed in the next.
TEST(Keeping, NothingOutlivesAReset) {
    ScriptedPeer peer(kKeeping);
    const Writer writer{blank(peer), 3};
    writer.send(0);
    writer.send(2);
    peer.expect_nak(asked(1), NakCode::SequenceError);
    peer.restart();
    peer.port.sent.clear();
    std::fill(peer.memory.begin(), peer.memory.end(), std::byte{0xff});
    writer.send(0);
    writer.send(1, true);
    peer.expect_ack(asked(1));
    writer.expect_written(2);
}

// As many READs as were agreed on, all of them kept, then repeated by one that goes back.
TEST(Keeping, ReadsThatWereKeptAndComeAgainFindRoom) {
    ScriptedPeer peer(kKeeping);  // Two at a time.
    const auto read = [&](std::uint32_t n) {
        peer.peer_delivers(Opcode::RcReadRequest, asked(n), {.extensions = {.reth = peer.reth(8)}});
    };
    const auto write = [&](std::uint32_t n) {
        peer.peer_delivers(Opcode::RcWriteOnly, asked(n),
                           {.extensions = {.reth = peer.reth(8)}, .payload_size = 8});
    };
    read(1);
    read(2);
    peer.run();
    peer.expect_nak(asked(0), NakCode::SequenceError);
    for (int turn = 0; turn < 4; ++turn) {
        write(0);
        read(1);
        read(2);
    }
    peer.run();
    EXPECT_EQ(peer.qp->state(), QpState::Rts);
    peer.expect_sent(Opcode::RcReadResponseOnly, asked(1));
    peer.expect_sent(Opcode::RcReadResponseOnly, asked(2));
}

// Four packets out, of which the peer misses number 1.
class Repairing : public testing::Test {
protected:
    Repairing() {
        peer.post(SendOp::Write, 4 * kMtu, 1);
        peer.after(10us);
        peer.port.sent.clear();
        peer.peer_naks(sent(1), NakCode::SequenceError);
        repair_ = peer.expect_sent(Opcode::RcWriteMiddle, sent(1));
        peer.expect_silence();
    }
    ScriptedPeer peer{kKeeping};
    SentPacket repair_;
};

TEST_F(Repairing, OnlyTheMissingPacketIsSentAgainAndAsksForAnAnswer) {
    EXPECT_TRUE(repair_.packet.bth.ack_request);
    peer.peer_acks(sent(3));
    peer.expect_completion(1, WcStatus::Success);
    EXPECT_EQ(peer.engine.counters()[Counter::ResentBySequence], 1U);
}

TEST_F(Repairing, NothingNewFollowsTheFirstOne) {
    peer.post(SendOp::Write, 8, 2);
    peer.expect_silence();
    peer.peer_acks(sent(3));
    peer.expect_sent(Opcode::RcWriteOnly, sent(4));
    peer.port.sent.clear();
    peer.post(SendOp::Write, 4 * kMtu, 3);
    peer.port.sent.clear();
    peer.peer_naks(sent(6), NakCode::SequenceError);  // It is known now.
    peer.expect_sent(Opcode::RcWriteOnly, sent(3));   // Says that we understand lists.
    peer.expect_sent(Opcode::RcWriteMiddle, sent(6));
    peer.post(SendOp::Write, 8, 4);
    peer.expect_sent(Opcode::RcWriteOnly, sent(9));
}

TEST_F(Repairing, APeerThatGoesBackIsRecognisedByItsAcknowledgement) {
    peer.peer_acks(sent(1));
    peer.expect_sent(Opcode::RcWriteMiddle, sent(2));
    peer.expect_sent(Opcode::RcWriteLast, sent(3));
    peer.peer_acks(sent(3));
    peer.expect_completion(1, WcStatus::Success);
    peer.post(SendOp::Write, 4 * kMtu, 2);
    peer.port.sent.clear();
    peer.peer_naks(sent(5), NakCode::SequenceError);  // From now on all is sent again at once.
    peer.expect_sent(Opcode::RcWriteOnly, sent(3));
    peer.expect_sent(Opcode::RcWriteMiddle, sent(5));
    peer.expect_sent(Opcode::RcWriteMiddle, sent(6));
    peer.expect_sent(Opcode::RcWriteLast, sent(7));
}

TEST_F(Repairing, ASecondGapBesideTheFirstIsRepairedToo) {
    peer.peer_naks(sent(2), NakCode::SequenceError);
    peer.expect_sent(Opcode::RcWriteOnly, sent(0));    // Says that we understand lists.
    peer.expect_sent(Opcode::RcWriteMiddle, sent(2));  // Two at a time now.
    peer.expect_sent(Opcode::RcWriteLast, sent(3));
    peer.peer_acks(sent(3));
    peer.expect_completion(1, WcStatus::Success);
}

TEST_F(Repairing, ANakOfAPacketThatIsSentAgainAlreadyOnlyAcknowledges) {
    peer.peer_naks(sent(2), NakCode::SequenceError);
    peer.expect_sent(Opcode::RcWriteOnly, sent(0));  // Says that we understand lists.
    peer.expect_sent(Opcode::RcWriteMiddle, sent(2));
    peer.expect_sent(Opcode::RcWriteLast, sent(3));
    peer.peer_naks(sent(3), NakCode::SequenceError);  // It was said before that one came.
    peer.expect_silence();
    EXPECT_EQ(peer.qp->machine().progress().unacknowledged, sent(3));
    peer.peer_acks(sent(3));
    peer.expect_completion(1, WcStatus::Success);
}

TEST_F(Repairing, ANakThatComesTwiceIsAnsweredOnce) {
    peer.peer_naks(sent(1), NakCode::SequenceError);
    peer.expect_silence();
}

TEST_F(Repairing, ALostRepairIsFollowedByTheTimeoutOfTheProgram) {
    peer.after(67'108'864ns);
    peer.expect_sent(Opcode::RcWriteMiddle, sent(1));
    peer.expect_sent(Opcode::RcWriteMiddle, sent(2));
    peer.expect_sent(Opcode::RcWriteLast, sent(3));
    EXPECT_EQ(peer.engine.counters()[Counter::AckTimeouts], 1U);
}

// Lists of gaps: what they say, and what is done on one.
using Runs = std::array<std::uint16_t, GapList::kRuns>;

void expect_list(ScriptedPeer& peer, Psn acknowledged, Psn base, const Runs& runs) {
    const SentPacket sent = peer.expect_sent(Opcode::RcAck, acknowledged);
    const auto list = GapList::parse(sent.packet.payload);
    ASSERT_TRUE(list);
    EXPECT_EQ(list->base, base);
    EXPECT_EQ(list->runs, runs);
    EXPECT_EQ(sent.packet.aeth().syndrome.kind(), wire::Syndrome::Kind::Ack);
}

TEST(Lists, APeerThatUnderstandsThemIsToldOfAllGaps) {
    ScriptedPeer peer(kKeeping);
    const Writer writer{blank(peer), 8};
    writer.send(0);
    peer.peer_says_hello();  // It is answered: nothing is missing.
    expect_list(peer, asked(0) - 1, asked(0), {0, 1});
    writer.send(2);
    peer.expect_nak(asked(1), NakCode::SequenceError);
    peer.expect_silence();  // The NAK says all.
    writer.send(5);
    expect_list(peer, asked(0), asked(1), {1, 1, 2, 1});
    writer.send(6, true);
    peer.expect_ack(asked(0));
    expect_list(peer, asked(0), asked(1), {1, 1, 2, 2});
}

// A hostile one would have a short packet answered by hundreds.
TEST(Lists, AreFewAtATime) {
    ScriptedPeer peer(kKeeping);
    const Writer writer{blank(peer), 8};
    writer.send(0);
    peer.peer_says_hello();
    for (std::uint32_t n = 2; n < 400; n += 2) writer.send(n);
    peer.port.sent.clear();
    writer.send(400, true);
    const auto lists = std::count_if(
        peer.port.sent.begin(), peer.port.sent.end(),
        [](const SentPacket& sent) { return sent.packet.payload.size() == GapList::kSize; });
    EXPECT_EQ(lists, 9) << "the first four, the new one, and four of the others";
}

// What a list said was kept may have grown before the next gap, and a list may be lost.
TEST(Lists, TellOfWhatWasKeptSinceTheLast) {
    ScriptedPeer peer(kKeeping);
    const Writer writer{blank(peer), 8};
    writer.send(0);
    peer.peer_says_hello();
    expect_list(peer, asked(0) - 1, asked(0), {0, 1});
    writer.send(3);
    peer.expect_nak(asked(1), NakCode::SequenceError);
    expect_list(peer, asked(0), asked(1), {2, 1});
    writer.send(4);
    writer.send(5);
    peer.expect_silence();
    writer.send(7);
    expect_list(peer, asked(0), asked(4), {0, 2, 1, 1});
}

// A requester may wait for what it does not know to be lost: the window counts it.
TEST(Lists, AreToldAgainBehindAGapThatIsFilled) {
    ScriptedPeer peer(kKeeping);
    const Writer writer{blank(peer), 8};
    writer.send(0);
    peer.peer_says_hello();
    for (std::uint32_t n = 2; n < 400; n += 2) writer.send(n);
    peer.port.sent.clear();
    Psn told = asked(3);
    for (std::uint32_t n = 1; n < 7; n += 2) {
        writer.send(n, true);
        peer.expect_nak(asked(n + 2), NakCode::SequenceError);
        expect_list(peer, asked(n + 1), asked(n + 2), {1, 1, 1, 1, 1});
        ASSERT_EQ(peer.port.sent.size(), 7U);
        const auto far = GapList::parse(peer.port.sent[3].packet.payload);
        ASSERT_TRUE(far);
        EXPECT_GT(distance(told, far->base), 10) << "others, in turn";
        told = far->base;
        peer.port.sent.clear();
    }
}

// One that only answers may stay in RTR for ever, as perftest's servers do.
TEST(Lists, AreToldBeforeAnythingCanBeAsked) {
    ScriptedPeer peer({.keeps_packets = true, .state = QpState::Rtr});
    const Writer writer{blank(peer), 8};
    writer.send(0);
    peer.peer_says_hello();
    expect_list(peer, asked(0) - 1, asked(0), {0, 1});
    writer.send(2);
    peer.expect_nak(asked(1), NakCode::SequenceError);
    writer.send(4);
    expect_list(peer, asked(0), asked(1), {1, 1, 1, 1});
}

TEST(Lists, APeerThatSaysNothingGetsNone) {
    ScriptedPeer peer(kKeeping);
    const Writer writer{blank(peer), 8};
    writer.send(0);
    writer.send(2);
    peer.expect_nak(asked(1), NakCode::SequenceError);
    writer.send(5);
    peer.expect_silence();
}

TEST(Lists, AllThatIsMissingIsSentAgainAtOnce) {
    ScriptedPeer peer(kKeeping);
    peer.post(SendOp::Write, 8 * kMtu, 1);
    peer.after(10us);
    peer.port.sent.clear();
    peer.peer_lists(sent(1), {1, 2, 1, 1});  // 1 and 4 are missing; 2, 3 and 5 are there.
    peer.expect_sent(Opcode::RcWriteMiddle, sent(1));
    peer.expect_sent(Opcode::RcWriteMiddle, sent(4));
    peer.expect_silence();
    peer.peer_lists(sent(1), {1, 2, 1, 1});  // They may be on their way.
    peer.expect_silence();
    peer.peer_acks(sent(7));
    peer.expect_completion(1, WcStatus::Success);
}

TEST(Lists, OneThatNamesNothingThatWasSentIsIgnored) {
    ScriptedPeer peer(kKeeping);
    peer.post(SendOp::Write, 4 * kMtu, 1);
    peer.after(10us);
    peer.port.sent.clear();
    peer.peer_lists(sent(4), {0xfff, 0xfff});
    peer.peer_lists(sent(0) - 5000, {0xfff});
    peer.peer_lists(sent(900'000), {0xfff});
    peer.expect_silence();
    peer.peer_acks(sent(3));
    peer.expect_completion(1, WcStatus::Success);
}

// What it kept is gone, as its acknowledgement of less shows.
TEST(Lists, APeerThatDropsWhatItKeptGetsAllAgain) {
    ScriptedPeer peer(kKeeping);
    peer.post(SendOp::Write, 4 * kMtu, 1);
    peer.after(10us);
    peer.port.sent.clear();
    peer.peer_lists(sent(1), {1, 2});
    peer.expect_sent(Opcode::RcWriteMiddle, sent(1));
    peer.peer_acks(sent(1));
    peer.expect_sent(Opcode::RcWriteMiddle, sent(2));
    peer.expect_sent(Opcode::RcWriteLast, sent(3));
}

TEST(KeepingResponses, OnlyWhatIsMissingIsAskedForAgain) {
    ScriptedPeer peer(kKeeping);
    peer.post(SendOp::Read, 5 * kMtu, 1);
    const std::uint64_t begin =
        peer.expect_sent(Opcode::RcReadRequest, sent(0)).packet.reth().address;
    const auto respond = [&](std::uint32_t n) {
        peer.peer_sends(n == 4 ? Opcode::RcReadResponseLast : Opcode::RcReadResponseMiddle, sent(n),
                        {.payload_size = kMtu, .fill = static_cast<std::byte>(n)});
    };
    respond(0);
    respond(3);
    peer.expect_sent(Opcode::RcWriteOnly, sent(0));  // Says that we understand lists.
    const SentPacket again = peer.expect_sent(Opcode::RcReadRequest, sent(1));
    EXPECT_EQ(again.packet.reth().length, 2 * kMtu);
    EXPECT_EQ(again.packet.reth().address, begin + kMtu);
    respond(4);
    peer.expect_silence();
    respond(1);
    peer.expect_no_completion();
    respond(2);
    peer.expect_silence();
    peer.expect_completion(1, WcStatus::Success);
    for (std::uint32_t n = 0; n < 5; ++n) EXPECT_EQ(peer.memory[n * kMtu], std::byte(n));
}

TEST(KeepingResponses, AnAcknowledgementBehindThemCountsWhenTheyHaveCome) {
    ScriptedPeer peer(kKeeping);
    peer.post(SendOp::Read, kMtu, 1);
    peer.post(SendOp::Write, 8, 2);
    peer.port.sent.clear();
    peer.peer_acks(sent(1));  // The response was lost.
    peer.expect_sent(Opcode::RcReadRequest, sent(0));
    peer.expect_silence();  // The WRITE is not sent again.
    peer.peer_sends(Opcode::RcReadResponseOnly, sent(0), {.payload_size = kMtu});
    peer.expect_completion(1, WcStatus::Success);
    peer.expect_completion(2, WcStatus::Success);
}

TEST(KeepingResponses, AnAtomicsAnswerIsKeptToo) {
    ScriptedPeer peer(kKeeping);
    peer.post(SendOp::Read, kMtu, 1);
    peer.post(SendOp::FetchAdd, 8, 2);
    peer.port.sent.clear();
    peer.peer_sends(Opcode::RcAtomicAck, sent(1));
    peer.expect_sent(Opcode::RcReadRequest, sent(0));
    peer.expect_silence();  // The atomic is not sent again.
    peer.expect_no_completion();
    peer.peer_sends(Opcode::RcReadResponseOnly, sent(0), {.payload_size = kMtu});
    peer.expect_completion(1, WcStatus::Success);
    peer.expect_completion(2, WcStatus::Success);
}

}  // namespace
}  // namespace feroce::script::repair_test
