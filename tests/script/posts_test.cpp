// Posts that are refused, and what they leave behind: nothing. And the limit of a shared receive
// queue.
#include <algorithm>
#include <array>
#include <cerrno>

#include "mem/test_pages.hpp"
#include "scripted_peer.hpp"

namespace feroce::script::posts_test {
namespace {

using transport::AsyncEventType;

int code_of(const Result<void>& result) {
    return result ? 0 : result.error().code;
}

int post(ScriptedPeer& peer, const SendWr& wr) {
    return code_of(peer.engine.post_send(peer.now, *peer.qp, wr));
}

int post_receive(ScriptedPeer& peer) {
    const mem::Sge sge{peer.address(), 8, peer.keys.lkey};
    return code_of(peer.engine.post_receive(peer.now, *peer.qp, {1, {&sge, 1}}));
}

SendWr inlined(SendWr wr) {
    wr.inlined = true;
    return wr;
}

TEST(Posts, WhatTheSendQueueRefusesIsNotSent) {
    ScriptedPeer peer({.send_wr_max = 2, .inline_max = 64});
    EXPECT_EQ(post(peer, inlined(peer.send_wr(SendOp::Read, 8, 1))), EINVAL);
    EXPECT_EQ(post(peer, peer.send_wr(SendOp::FetchAdd, 4, 1)), EINVAL);
    const std::array<mem::Sge, 5> many{};
    SendWr wr = peer.send_wr(SendOp::Send, 8, 1);
    wr.sges = many;
    EXPECT_EQ(post(peer, wr), EINVAL);
    EXPECT_EQ(post(peer, inlined(peer.send_wr(SendOp::Send, 65, 1))), ENOMEM);
    peer.run();
    peer.expect_silence();
    for (const std::uint64_t wr_id : {1U, 2U})
        EXPECT_EQ(post(peer, peer.send_wr(SendOp::Write, 8, wr_id)), 0);
    EXPECT_EQ(post(peer, peer.send_wr(SendOp::Write, 8, 3)), ENOMEM);
    peer.run();
    peer.expect_sent(Opcode::RcWriteOnly, kSendPsn);
    peer.expect_sent(Opcode::RcWriteOnly, kSendPsn + 1);
    peer.expect_silence();
}

TEST(Posts, InlineDataThatIsNotThereIsRefused) {
    ScriptedPeer peer;
    mem::test::Pages pages(1);
    pages.unmap(0, 1);
    SendWr wr = peer.send_wr(SendOp::Send, 8, 1);
    for (const std::byte* from : {pages.at(0), static_cast<std::byte*>(nullptr)}) {
        const mem::Sge sge{reinterpret_cast<std::uint64_t>(from), 8, LKey{}};
        wr.sges = {&sge, 1};
        EXPECT_EQ(post(peer, inlined(wr)), EFAULT);
    }
    peer.run();
    peer.expect_silence();
    peer.post(SendOp::Write, 8, 2);
    peer.expect_sent(Opcode::RcWriteOnly, kSendPsn);
}

// The question is a duplicate of a request that was sent: a peer may look for its receive queue
// first, and refuse one that it never had.
TEST(Posts, ARefusedRequestDoesNotNameTheQueueOfAQuestion) {
    ScriptedPeer peer({.type = QpType::XrcInitiator});
    SendWr wr = peer.send_wr(SendOp::Write, 8, 1);
    wr.remote_srq = SrqNumber{0x11};
    ASSERT_EQ(post(peer, wr), 0);
    peer.run();
    peer.expect_sent(Opcode::XrcWriteOnly, kSendPsn);
    ScriptedPeer::Spec ack;
    ack.extensions.aeth = {wire::Syndrome::ack(wire::kNoCredits), 1};
    peer.peer_sends(Opcode::XrcAck, kSendPsn, ack);
    peer.expect_completion(1, WcStatus::Success);

    const mem::Sge nowhere{0, 8, LKey{}};
    wr.sges = {&nowhere, 1};
    wr.remote_srq = SrqNumber{0x22};
    ASSERT_EQ(post(peer, inlined(wr)), EFAULT);
    ASSERT_TRUE(peer.engine.ask_peer(peer.now, *peer.qp));
    const SentPacket question = peer.expect_sent(Opcode::XrcWriteOnly, kSendPsn);
    EXPECT_EQ(question.packet.xrceth().srq, SrqNumber{0x11});
}

TEST(Posts, AMessageIsGatheredFromItsList) {
    ScriptedPeer peer;
    const std::array<mem::Sge, 3> list{{{peer.address() + 10, 3, peer.keys.lkey},
                                        {peer.address() + 100, 0, LKey{}},
                                        {peer.address() + 50, 2, peer.keys.lkey}}};
    SendWr wr = peer.send_wr(SendOp::Write, 0, 1);
    wr.sges = list;
    ASSERT_EQ(post(peer, wr), 0);
    peer.run();
    const SentPacket sent = peer.expect_sent(Opcode::RcWriteOnly, kSendPsn);
    ASSERT_EQ(sent.packet.payload.size(), 5U);
    for (const std::size_t i : {0U, 1U, 2U}) EXPECT_EQ(sent.packet.payload[i], peer.memory[10 + i]);
    for (const std::size_t i : {0U, 1U}) EXPECT_EQ(sent.packet.payload[3 + i], peer.memory[50 + i]);
}

TEST(Posts, AMessageIsScatteredOverTheListOfItsReceive) {
    ScriptedPeer peer;
    const std::array<mem::Sge, 3> list{{{peer.address() + 10, 3, peer.keys.lkey},
                                        {peer.address() + 50, 2, peer.keys.lkey},
                                        {peer.address() + 90, 8, peer.keys.lkey}}};
    ASSERT_TRUE(peer.engine.post_receive(peer.now, *peer.qp, {7, list}));
    const std::vector<std::byte> before = peer.memory;
    peer.peer_sends(Opcode::RcSendOnly, kReceivePsn, {.payload_size = 6});
    peer.expect_completion(7, WcStatus::Success);
    for (std::size_t i = 0; i < 100; ++i) {
        const bool filled = (i >= 10 && i < 13) || (i >= 50 && i < 52) || i == 90;
        EXPECT_EQ(peer.memory[i], filled ? std::byte{0x5a} : before[i]) << i;
    }
}

// All of a list or nothing of it: a program could not tell how much of it was taken.
TEST(Posts, AListIsTakenAsAWholeOrNotAtAll) {
    ScriptedPeer peer({.send_wr_max = 2});
    std::vector<SendWr> list(3, peer.send_wr(SendOp::Write, 8, 1));
    const auto post_list = [&] {
        return code_of(peer.engine.post_sends(peer.now, *peer.qp, list));
    };
    EXPECT_EQ(post_list(), ENOMEM);
    list.pop_back();
    list[1].op = SendOp::FetchAdd;
    list[1].sges = {};
    EXPECT_EQ(post_list(), EINVAL);
    peer.run();
    peer.expect_silence();
    list[1] = peer.send_wr(SendOp::Write, 8, 2);
    EXPECT_EQ(post_list(), 0);
    peer.run();
    peer.expect_sent(Opcode::RcWriteOnly, kSendPsn);
    peer.expect_sent(Opcode::RcWriteOnly, kSendPsn + 1);
    peer.peer_acks(kSendPsn + 1);
    peer.expect_completion(1, WcStatus::Success);
    peer.expect_completion(2, WcStatus::Success);
}

TEST(Posts, AQueuePairThatIsNotBroughtUpTakesNoWork) {
    ScriptedPeer peer;
    ASSERT_TRUE(peer.modify(QpState::Reset));
    EXPECT_EQ(post(peer, peer.send_wr(SendOp::Write, 8, 1)), EINVAL);
    EXPECT_EQ(post_receive(peer), EINVAL);
    QpAttributes a;
    a.state = QpState::Init;
    a.port = 1;
    AttributeMask given = transport::transition(QpType::Rc, QpState::Reset, a.state).required;
    given.raw |= static_cast<std::uint32_t>(Attribute::State);
    ASSERT_TRUE(peer.engine.modify_qp(peer.now, *peer.qp, a, given));
    EXPECT_EQ(post(peer, peer.send_wr(SendOp::Write, 8, 1)), EINVAL);
    EXPECT_EQ(post_receive(peer), 0);
    peer.run();
    peer.expect_silence();
}

TEST(Posts, XrcQueuePairsHaveNoReceiveQueueAndATargetNoSendQueue) {
    for (const QpType type : {QpType::XrcInitiator, QpType::XrcTarget}) {
        ScriptedPeer peer({.type = type});
        EXPECT_EQ(post_receive(peer), EINVAL);
    }
    ScriptedPeer target({.type = QpType::XrcTarget});
    EXPECT_EQ(post(target, target.send_wr(SendOp::Write, 8, 1)), EINVAL);
}

void post_shared(ScriptedPeer& peer, std::uint64_t wr_id) {
    const mem::Sge sge{peer.address(), 64, peer.keys.lkey};
    ASSERT_TRUE(peer.srq.post({wr_id, {&sge, 1}}));
}

// IBTA 10.2.9.2: the event is told once, and has to be asked for again.
TEST(Posts, TheLimitOfASharedQueueIsToldOnce) {
    ScriptedPeer peer({.type = QpType::XrcTarget});
    peer.events.events.clear();
    for (const std::uint64_t wr_id : {1U, 2U, 3U, 4U}) post_shared(peer, wr_id);
    EXPECT_FALSE(peer.srq.arm_limit(3));
    EXPECT_EQ(peer.srq.limit(), 3U);
    ScriptedPeer::Spec spec{.payload_size = 8};
    spec.extensions.xrceth.srq = peer.srq_number;
    const auto limit_events = [&] {
        return std::count(peer.events.events.begin(), peer.events.events.end(),
                          AsyncEventType::SrqLimitReached);
    };
    peer.peer_sends(Opcode::XrcSendOnly, kReceivePsn, spec);
    EXPECT_EQ(limit_events(), 0);
    peer.peer_sends(Opcode::XrcSendOnly, kReceivePsn + 1, spec);  // Two are left.
    EXPECT_EQ(limit_events(), 1);
    EXPECT_EQ(peer.srq.limit(), 0U);
    peer.peer_sends(Opcode::XrcSendOnly, kReceivePsn + 2, spec);
    EXPECT_EQ(limit_events(), 1);
    EXPECT_TRUE(peer.srq.arm_limit(2)) << "they are fewer already";
    EXPECT_EQ(peer.srq.limit(), 0U);
    for (const std::uint64_t wr_id : {1U, 2U, 3U}) peer.expect_completion(wr_id, WcStatus::Success);
}

}  // namespace
}  // namespace feroce::script::posts_test
