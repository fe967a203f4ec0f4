// Answers that are not what was asked for: what the asking half of RC drops, asks for again, or
// gives up for.
#include "mem/test_pages.hpp"
#include "scripted_peer.hpp"

namespace feroce::script::rc_completer_test {
namespace {

using namespace std::chrono_literals;
using transport::DropReason;
using transport::Rule;
using wire::NakCode;

Psn sent(std::uint32_t n) {
    return kSendPsn + n;
}

ScriptedPeer::Spec syndrome(std::uint8_t raw) {
    ScriptedPeer::Spec spec;
    spec.extensions.aeth = {wire::Syndrome{raw}, 0};
    return spec;
}

std::uint64_t drops(const ScriptedPeer& peer, DropReason reason) {
    return peer.engine.counters()[reason];
}

void expect_failure(ScriptedPeer& peer, std::uint64_t wr_id, WcStatus status, Rule rule) {
    const std::optional<Completion> completion = peer.poll();
    ASSERT_TRUE(completion.has_value()) << "no completion; expected that of " << wr_id;
    EXPECT_EQ(completion->wr_id, wr_id);
    EXPECT_EQ(static_cast<int>(completion->status), static_cast<int>(status));
    const transport::Reason* reason = peer.engine.reasons().find(completion->reason);
    ASSERT_NE(reason, nullptr);
    EXPECT_STREQ(transport::text(reason->rule), transport::text(rule));
    EXPECT_EQ(reason->wr_id, wr_id);
    EXPECT_FALSE(reason->at_responder);
}

// A READ into memory of its own region.
void post_read_into(ScriptedPeer& peer, std::uint64_t address, LKey key) {
    SendWr wr = peer.send_wr(SendOp::Read, 8, 1);
    const mem::Sge sge{address, 8, key};
    wr.sges = {&sge, 1};
    ASSERT_TRUE(peer.engine.post_send(peer.now, *peer.qp, wr));
    peer.run();
    peer.expect_sent(Opcode::RcReadRequest, sent(0));
}

TEST(RcCompleter, WhatAnswersNoWriteIsDropped) {
    ScriptedPeer peer;
    peer.post(SendOp::Write, 8, 1);
    peer.peer_sends(Opcode::RcAck, sent(0), syndrome(0x40));  // Kinds that IBTA reserves.
    peer.peer_sends(Opcode::RcAck, sent(0), syndrome(0x80));
    peer.peer_sends(Opcode::RcReadResponseOnly, sent(0), {.payload_size = 8});
    peer.peer_sends(Opcode::RcAtomicAck, sent(0));
    EXPECT_EQ(drops(peer, DropReason::UnexpectedResponse), 4U);
    peer.expect_no_completion();
    peer.peer_acks(sent(0));
    peer.expect_completion(1, WcStatus::Success);
}

TEST(RcCompleter, AnAnswerOfTheOtherKindIsDropped) {
    ScriptedPeer peer;
    peer.post(SendOp::FetchAdd, 8, 1);
    peer.post(SendOp::Read, 8, 2);
    peer.peer_sends(Opcode::RcReadResponseOnly, sent(0), {.payload_size = 8});
    peer.peer_sends(Opcode::RcAtomicAck, sent(1));  // The atomic before it is still open.
    peer.expect_no_completion();
    peer.peer_sends(Opcode::RcAtomicAck, sent(0));
    peer.expect_completion(1, WcStatus::Success);
    peer.peer_sends(Opcode::RcAtomicAck, sent(1));
    peer.expect_no_completion();
    EXPECT_EQ(drops(peer, DropReason::UnexpectedResponse), 3U);
    peer.peer_sends(Opcode::RcReadResponseOnly, sent(1), {.payload_size = 8});
    peer.expect_completion(2, WcStatus::Success);
}

TEST(RcCompleter, AnswersToWhatWasNeverSentAreStale) {
    ScriptedPeer peer;
    peer.post(SendOp::Read, 8, 1);
    for (const Psn psn : {sent(1), kSendPsn - 1}) {
        peer.peer_sends(Opcode::RcReadResponseOnly, psn, {.payload_size = 8});
        peer.peer_sends(Opcode::RcAtomicAck, psn);
        peer.peer_naks(psn, NakCode::RemoteAccess);
        peer.peer_rnr(psn, 1);
    }
    EXPECT_EQ(drops(peer, DropReason::StaleAck), 8U);
    peer.expect_no_completion();
    peer.peer_sends(Opcode::RcReadResponseOnly, sent(0), {.payload_size = 8});
    peer.expect_completion(1, WcStatus::Success);
}

// IBTA 9.7.5.1.2. The second time nothing is asked for: the first answer is on its way.
TEST(RcCompleter, AnAcknowledgementPastAReadAsksForItAgainOnce) {
    ScriptedPeer peer;
    peer.post(SendOp::Read, 8, 1);
    peer.post(SendOp::Write, 8, 2);
    peer.port.sent.clear();
    peer.peer_acks(sent(1));
    peer.expect_sent(Opcode::RcReadRequest, sent(0));
    peer.expect_sent(Opcode::RcWriteOnly, sent(1));
    peer.peer_acks(sent(1));
    peer.expect_silence();
    peer.expect_no_completion();
    peer.peer_sends(Opcode::RcReadResponseOnly, sent(0), {.payload_size = 8});
    peer.expect_completion(1, WcStatus::Success);
    peer.peer_acks(sent(1));
    peer.expect_completion(2, WcStatus::Success);
}

TEST(RcCompleter, AskingAgainIsCountedAsARetry) {
    ScriptedPeer peer({.retry_count = 0});
    peer.post(SendOp::Read, 8, 1);
    peer.post(SendOp::Write, 8, 2);
    peer.peer_acks(sent(1));
    expect_failure(peer, 1, WcStatus::RetryExceededError, Rule::RetryLimit);
    peer.expect_completion(2, WcStatus::FlushError);
    // Nothing is left to send: what comes next is the packet that was never sent.
    EXPECT_EQ(peer.qp->machine().progress().next, sent(2));
}

// A retry is a resend. What comes before anything was sent again speaks of the same flight.
TEST(RcCompleter, AnswersToOneFlightAreOneRetry) {
    ScriptedPeer peer({.retry_count = 1});
    peer.post(SendOp::FetchAdd, 8, 1);
    peer.post(SendOp::Write, 8, 2);
    peer.post(SendOp::Write, 8, 3);
    peer.port.sent.clear();
    const std::uint8_t gap = wire::Syndrome::nak(NakCode::SequenceError).raw;
    peer.peer_delivers(Opcode::RcAck, sent(2), syndrome(gap));
    peer.peer_delivers(Opcode::RcAck, sent(1), syndrome(wire::kNoCredits));
    peer.peer_delivers(Opcode::RcAck, sent(2), syndrome(gap));
    peer.run();
    peer.expect_no_completion();
    peer.expect_sent(Opcode::RcFetchAdd, sent(0));
    peer.expect_sent(Opcode::RcWriteOnly, sent(1));
    peer.expect_sent(Opcode::RcWriteOnly, sent(2));
    peer.expect_silence();
    peer.peer_naks(sent(2), NakCode::SequenceError);
    expect_failure(peer, 1, WcStatus::RetryExceededError, Rule::PeerRefused);
}

// A peer whose responses are lost gets further all the same, as the numbers that it names say.
TEST(RcCompleter, SequenceNaksThatGetFurtherAreNoRetries) {
    constexpr std::uint32_t kWrites = 8;
    ScriptedPeer peer({.retry_count = 1});
    peer.post(SendOp::Read, 8, 1);
    for (std::uint32_t i = 0; i < kWrites; ++i) peer.post(SendOp::Write, 8, 2 + i);
    for (std::uint32_t i = 1; i <= kWrites; ++i) {
        peer.port.sent.clear();
        peer.peer_naks(sent(i), NakCode::SequenceError);
        peer.expect_no_completion();
        peer.expect_sent(Opcode::RcReadRequest, sent(0));
    }
    peer.peer_naks(sent(kWrites), NakCode::SequenceError);
    expect_failure(peer, 1, WcStatus::RetryExceededError, Rule::PeerRefused);
}

// The READ before it was not answered: its response, or the READ itself, was lost.
TEST(RcCompleter, ARefusalPastAReadAsksForTheReadAgain) {
    ScriptedPeer peer;
    peer.post(SendOp::Read, 8, 1);
    peer.post(SendOp::Write, 8, 2);
    peer.port.sent.clear();
    peer.peer_naks(sent(1), NakCode::RemoteAccess);
    peer.expect_sent(Opcode::RcReadRequest, sent(0));
    peer.expect_sent(Opcode::RcWriteOnly, sent(1));
    peer.expect_no_completion();
    peer.peer_sends(Opcode::RcReadResponseOnly, sent(0), {.payload_size = 8});
    peer.expect_completion(1, WcStatus::Success);
    peer.peer_naks(sent(1), NakCode::RemoteAccess);
    expect_failure(peer, 2, WcStatus::RemoteAccessError, Rule::PeerRefused);
}

TEST(RcCompleter, ARefusalOfAReservedKindFailsTheRequest) {
    ScriptedPeer peer;
    peer.post(SendOp::Write, 8, 1);
    peer.peer_naks(sent(0), static_cast<NakCode>(9));
    expect_failure(peer, 1, WcStatus::BadResponseError, Rule::PeerRefused);
}

TEST(RcCompleter, AnAnswerOfAnotherLengthFailsTheRead) {
    struct Case {
        std::uint32_t asked;
        std::size_t got;
        Rule rule;
    };
    for (const Case& c :
         {Case{8, 4, Rule::ResponseMalformed}, Case{8, 12, Rule::ResponseMalformed},
          Case{8, kMtu + 4, Rule::MtuMismatch}, Case{2 * kMtu, kMtu / 2, Rule::MtuMismatch}}) {
        SCOPED_TRACE(c.got);
        ScriptedPeer peer;
        peer.post(SendOp::Read, c.asked, 1);
        const std::byte before = peer.memory[1];
        peer.peer_sends(Opcode::RcReadResponseFirst, sent(0), {.payload_size = c.got});
        expect_failure(peer, 1, WcStatus::BadResponseError, c.rule);
        EXPECT_EQ(peer.memory[1], before);
    }
}

TEST(RcCompleter, AnAnswerThatMayNotBeStoredFailsTheRead) {
    ScriptedPeer peer;
    post_read_into(peer, peer.address(), LKey{12345});
    peer.peer_sends(Opcode::RcReadResponseOnly, sent(0), {.payload_size = 8});
    expect_failure(peer, 1, WcStatus::LocalProtectionError, Rule::LocalKey);
}

TEST(RcCompleter, AnAnswerWhoseMemoryIsGoneFailsTheRead) {
    ScriptedPeer peer;
    mem::test::Pages pages(1);
    mem::RegionSpec spec;
    spec.pd = peer.pd;
    spec.address = pages.at(0);
    spec.length = pages.bytes();
    spec.iova = reinterpret_cast<std::uint64_t>(pages.at(0));
    spec.access = mem::Access::LocalWrite;
    const mem::RegionKeys keys = *peer.table.register_region(spec);
    post_read_into(peer, spec.iova, keys.lkey);
    pages.unmap(0, 1);
    peer.peer_sends(Opcode::RcReadResponseOnly, sent(0), {.payload_size = 8});
    expect_failure(peer, 1, WcStatus::LocalProtectionError, Rule::LocalMemoryGone);
    const transport::Reason* reason = peer.engine.reasons().find(peer.qp->first_reason());
    ASSERT_NE(reason, nullptr);
    EXPECT_EQ(reason->region.key, keys.lkey.raw);
}

TEST(RcCompleter, AnRnrRetryOfSevenIsForEver) {
    ScriptedPeer peer({.rnr_retry = 7});
    peer.post(SendOp::Send, 8, 1);
    for (int again = 0; again < 20; ++again) {
        peer.expect_sent(Opcode::RcSendOnly, sent(0));
        peer.peer_rnr(sent(0), 12);  // 0.64 ms.
        peer.expect_silence();
        peer.after(640us);
    }
    peer.expect_no_completion();
    peer.peer_acks(sent(0));
    peer.expect_completion(1, WcStatus::Success);
}

TEST(RcCompleter, WhatIsForAnotherKindOfQueuePairIsDropped) {
    ScriptedPeer connected;
    connected.peer_sends(Opcode::UcSendOnly, kReceivePsn, {.payload_size = 8});
    EXPECT_EQ(drops(connected, DropReason::WrongQpType), 1U);
    ScriptedPeer target({.type = QpType::XrcTarget});  // Never asks.
    target.peer_sends(wire::opcode_of(wire::Service::Xrc, Opcode::RcAck), kSendPsn);
    EXPECT_EQ(drops(target, DropReason::WrongQpState), 1U);
    ScriptedPeer initiator({.type = QpType::XrcInitiator});  // Never answers.
    initiator.peer_sends(Opcode::XrcSendOnly, kReceivePsn, {.payload_size = 8});
    EXPECT_EQ(drops(initiator, DropReason::WrongQpState), 1U);
    for (ScriptedPeer* peer : {&connected, &target, &initiator}) peer->expect_silence();
}

// Requests that are executed in order: an answer to a later one answers those before it.
TEST(RcCompleter, AResponseAcknowledgesTheMessagesBeforeIt) {
    for (const SendOp op : {SendOp::Read, SendOp::FetchAdd}) {
        ScriptedPeer peer;
        peer.post(SendOp::Write, 8, 1);
        peer.post(SendOp::Write, 2 * kMtu, 2);
        peer.post(op, 8, 3);
        if (op == SendOp::Read)
            peer.peer_sends(Opcode::RcReadResponseOnly, sent(3), {.payload_size = 8});
        else
            peer.peer_sends(Opcode::RcAtomicAck, sent(3));
        for (const std::uint64_t wr_id : {1U, 2U, 3U})
            peer.expect_completion(wr_id, WcStatus::Success);
    }
}

// After an RNR NAK the requester is to send again, later. An acknowledgement that comes meanwhile
// says that it need not.
TEST(RcCompleter, AnAcknowledgementWhileItWaitsToSendAgainSparesIt) {
    ScriptedPeer peer({.rnr_retry = 7});
    peer.post(SendOp::Write, 8, 1);
    peer.post(SendOp::Send, 8, 2);
    peer.post(SendOp::Send, 8, 3);
    peer.port.sent.clear();
    peer.peer_rnr(sent(1), 14);  // 1.28 ms.
    peer.expect_completion(1, WcStatus::Success);
    peer.peer_acks(sent(1));
    peer.expect_completion(2, WcStatus::Success);
    peer.expect_no_completion();
    peer.expect_silence();
    peer.after(2ms);
    peer.expect_sent(Opcode::RcSendOnly, sent(2));
    peer.expect_silence();
    peer.peer_acks(sent(2));
    peer.expect_completion(3, WcStatus::Success);
}

class RcProbe : public ::testing::Test {
protected:
    // A message whose acknowledgement does not come: its first packet is sent again early.
    RcProbe() {
        peer.post(SendOp::Write, 8, 1);
        peer.expect_sent(Opcode::RcWriteOnly, sent(0));
        peer.now += 10us;
        peer.peer_acks(sent(0));  // The round trip is known now.
        peer.expect_completion(1, WcStatus::Success);
        peer.post(SendOp::Write, 3 * kMtu, 2);
        peer.expect_sent(Opcode::RcWriteFirst, sent(1));
        peer.expect_sent(Opcode::RcWriteMiddle, sent(2));
        peer.expect_sent(Opcode::RcWriteLast, sent(3));
        peer.after(4ms);
        peer.expect_sent(Opcode::RcWriteFirst, sent(1));
        peer.expect_silence();
    }
    ScriptedPeer peer;
};

TEST_F(RcProbe, WhereNoMoreThanItIsAcknowledgedTheRestIsSentAgain) {
    peer.peer_acks(sent(1));
    peer.expect_sent(Opcode::RcWriteMiddle, sent(2));
    peer.expect_sent(Opcode::RcWriteLast, sent(3));
    peer.expect_silence();
    peer.peer_acks(sent(3));
    peer.expect_completion(2, WcStatus::Success);
}

TEST_F(RcProbe, WhereMoreIsAcknowledgedThePeerWasSlow) {
    peer.peer_acks(sent(2));
    peer.expect_silence();
    peer.peer_acks(sent(3));
    peer.expect_silence();
    peer.expect_completion(2, WcStatus::Success);
}

}  // namespace
}  // namespace feroce::script::rc_completer_test
