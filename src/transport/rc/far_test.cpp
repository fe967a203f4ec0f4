// Far memory under a reliable connection, with copies that end when the test says so: what waits
// for them, in which order it happens then, and what a failed copy does.
#include <gtest/gtest.h>

#include "transport/rc/far_rc_fixture.hpp"

namespace feroce::transport::rc {
namespace {

using far_test::FarEnd;
using far_test::FarMemoryUnderRc;
using far_test::kBase;

TEST_F(FarMemoryUnderRc, AWriteIsAcknowledgedWhenItIsInMemory) {
    a.fill(0, 5000, 1);
    write_far(7, 0, 5000);
    exchange();
    EXPECT_EQ(b.far->started.size(), 1u) << "one copy a message";
    EXPECT_TRUE(a.sent.list.empty());
    EXPECT_EQ(a.qp.machine().progress().unacknowledged, Psn(4)) << "all but the last packet";
    b.far->finish_one();
    exchange();
    ASSERT_EQ(a.sent.list.size(), 1u);
    EXPECT_EQ(a.sent.list[0].status, WcStatus::Success);
    expect_same(ByteView(b.far->bytes).first(5000), ByteView(a.bytes).first(5000));
}

// The peer has read all of it, so there is room where it reads.
TEST_F(FarMemoryUnderRc, ByARingPacketsRunAheadOfAMessageThatIsCopied) {
    constexpr std::uint32_t kLength = 60'000, kCount = 8;
    constexpr std::uint32_t kRing = SendWindow::Limits{}.ring_bytes;
    a.window.set_by_ring(true);
    for (std::uint32_t i = 0; i < kCount; ++i)
        a.send(request(SendOp::Write, i, kBase + i * kLength, b.far_keys.rkey), a.sge(0, kLength));
    const auto in_flight = [this] { return a.qp.machine().progress().in_flight_bytes; };
    exchange();
    EXPECT_LT(in_flight(), kRing + 4096);
    a.recorder.unread_now = RunSink::Unread{0, kRing};
    exchange();
    EXPECT_LT(in_flight(), kRing + 4096) << "nothing was read";
    a.recorder.unread_now = RunSink::Unread{};
    exchange();
    EXPECT_EQ(b.qp.machine().progress().expected, Psn(kCount * packets_for(kLength, 1024)));
    EXPECT_EQ(b.far->started.size(), kCount);
    while (!b.far->started.empty()) b.far->finish_one();
    exchange();
    EXPECT_EQ(a.sent.list.size(), kCount);
}

// Their answers come by the peer's ring, of which nobody here knows how full it is.
TEST_F(FarMemoryUnderRc, ByARingReadsDoNotRunAhead) {
    a.window.set_by_ring(true);
    a.recorder.unread_now = RunSink::Unread{};
    a.window.on_sent(Instant{}, SendWindow::Limits{}.ring_bytes);
    a.send(request(SendOp::Read, 1, b.address(0), b.keys.rkey), a.sge(0, 1000));
    EXPECT_TRUE(a.pump().empty());
    a.window.on_forgotten(SendWindow::Limits{}.ring_bytes);
    exchange();
    EXPECT_EQ(a.sent.list.size(), 1u);
}

TEST_F(FarMemoryUnderRc, WhatIsPostedWhileTheFirstIsFetchedIsFetchedToo) {
    const auto send = [this](std::uint64_t wr_id, std::uint64_t offset) {
        a.send(request(SendOp::Write, wr_id, b.address(offset), b.keys.rkey),
               a.far_sge(offset, 1000));
        a.qp.machine().pump(Instant{}, 10);  // As the device does after each post.
    };
    a.fill_far(3);
    send(1, 0);
    EXPECT_EQ(a.far->started.size(), 1u);
    send(2, 1000);
    send(3, 2000);
    EXPECT_EQ(a.far->started.size(), 3u);
    while (!a.far->started.empty()) a.far->finish_one();
    exchange();
    EXPECT_EQ(a.sent.list.size(), 3u);
    expect_same(ByteView(b.bytes).first(3000), ByteView(a.far->bytes).first(3000));
}

TEST_F(FarMemoryUnderRc, WhatFollowsInHostMemoryWaits) {
    a.fill(0, 4096, 1);
    write_far(1, 0, 2000);
    a.send(request(SendOp::Write, 2, b.address(100), b.keys.rkey), a.sge(0, 8));
    exchange();
    EXPECT_EQ(b.bytes[100], std::byte{0}) << "the flag is not there before the data";
    b.far->finish_one();
    exchange();
    expect_same(ByteView(b.bytes).subspan(100, 8), ByteView(a.bytes).first(8));
    EXPECT_EQ(a.sent.list.size(), 2u);
}

TEST_F(FarMemoryUnderRc, LaterWritesAreCopiedBesideUnlessTheyOverlap) {
    a.fill(0, 8192, 1);
    write_far(1, 0, 1000);
    write_far(2, 2000, 1000);
    exchange();
    EXPECT_EQ(b.far->started.size(), 2u);
    a.fill(500, 100, 99);
    write_far(3, 500, 100);
    exchange();
    EXPECT_EQ(b.far->started.size(), 2u) << "the third writes what the first does";
    std::swap(b.far->started[0], b.far->started[1]);
    b.far->finish_one();
    exchange();
    EXPECT_TRUE(a.sent.list.empty()) << "the second overtook the first";
    b.far->finish_one();
    exchange();
    b.far->finish_one();
    exchange();
    EXPECT_EQ(a.sent.list.size(), 3u);
    expect_same(ByteView(b.far->bytes).subspan(500, 100), ByteView(a.bytes).subspan(500, 100));
}

TEST_F(FarMemoryUnderRc, AWriteToTheSameBytesIsStagedAndOnlyItsCopyWaits) {
    a.fill(0, 8192, 1);
    write_far(1, 0, 5000);
    write_far(2, 0, 5000);
    write_far(3, 5000, 1000);
    exchange();
    EXPECT_EQ(b.qp.machine().progress().expected, Psn(11)) << "no packet is kept";
    EXPECT_EQ(b.far->started.size(), 2u) << "the second waits, and the third does not";
    b.far->finish_one();
    exchange();
    EXPECT_EQ(a.sent.list.size(), 1u);
    EXPECT_EQ(b.far->started.size(), 2u) << "now the second is copied";
    while (!b.far->started.empty()) b.far->finish_one();
    exchange();
    EXPECT_EQ(a.sent.list.size(), 3u);
    expect_same(ByteView(b.far->bytes).first(5000), ByteView(a.bytes).first(5000));
}

// What benchmarks do: one buffer, written again and again. Only pieces that meet wait.
TEST_F(FarMemoryUnderRc, PiecesOfTheNextWriteWaitForThoseTheyMeet) {
    a.fill_far(3);
    for (std::uint64_t i = 0; i < 2; ++i)
        a.send(request(SendOp::Write, i, kBase, b.far_keys.rkey), a.far_sge(0, FarEnd::kFarBytes));
    for (int round = 0; round < 8; ++round) {
        exchange();
        while (!a.far->started.empty()) a.far->finish_one();
    }
    EXPECT_EQ(b.far->started.size(), 3u);
    b.far->finish_one();
    exchange();
    EXPECT_EQ(b.far->started.size(), 3u) << "the first piece again, beside the others";
    EXPECT_TRUE(a.sent.list.empty());
    while (!b.far->started.empty()) {
        b.far->finish_one();
        exchange();
    }
    EXPECT_EQ(a.sent.list.size(), 2u);
    expect_same(b.far->bytes, a.far->bytes);
}

TEST_F(FarMemoryUnderRc, ACopyThatWaitedFailsIfItsKeyIsGone) {
    const RKey key = b.bind_window();
    write_far(1, 0, 100);
    a.send(request(SendOp::Write, 2, kBase, key), a.sge(0, 100));
    write_far(3, 0, 100);
    exchange();
    EXPECT_EQ(b.far->started.size(), 1u);
    ASSERT_EQ(b.memory.invalidate_local(b.pd, b.qp.qpn(), key), mem::Fault::None);
    b.far->finish_one();
    exchange();
    ASSERT_EQ(a.sent.list.size(), 3u);
    EXPECT_EQ(a.sent.list[0].status, WcStatus::Success);
    EXPECT_EQ(a.sent.list[1].status, WcStatus::RemoteAccessError);
    EXPECT_EQ(a.sent.list[2].status, WcStatus::FlushError);
    EXPECT_EQ(b.copies.size(), 0u) << "the third never began";
}

TEST_F(FarMemoryUnderRc, AReceiveCompletesWhenItIsInMemory) {
    a.fill(0, 3000, 5);
    b.post_receive(9, b.far_sge(0, 4096));
    a.send(request(SendOp::Send, 1), a.sge(0, 3000));
    exchange();
    EXPECT_TRUE(b.received.list.empty());
    b.far->finish_one();
    exchange();
    ASSERT_EQ(b.received.list.size(), 1u);
    EXPECT_EQ(b.received.list[0].wr_id, 9u);
    EXPECT_EQ(b.received.list[0].byte_length, 3000u);
    expect_same(ByteView(b.far->bytes).first(3000), ByteView(a.bytes).first(3000));
}

TEST_F(FarMemoryUnderRc, ListsMixHostAndFarMemory) {
    a.fill(0, 1000, 5);
    a.fill_far(3);
    const mem::Sge from[] = {a.sge(0, 1000), a.far_sge(50, 3000), a.sge(1000, 200)};
    const mem::Sge to[] = {b.far_sge(10, 2500), b.sge(0, 1200), b.far_sge(9000, 500)};
    ASSERT_TRUE(b.qp.post_receive(Instant{}, {1, to}));
    SendWr wr = request(SendOp::Send, 2);
    wr.sges = from;
    ASSERT_TRUE(a.qp.post_send(Instant{}, wr));
    exchange();
    a.far->finish_one();
    exchange();
    while (!b.far->started.empty()) b.far->finish_one();
    exchange();
    ASSERT_EQ(b.received.list.size(), 1u);
    std::vector<std::byte> sent(a.bytes.begin(), a.bytes.begin() + 1000);
    sent.insert(sent.end(), a.far->bytes.begin() + 50, a.far->bytes.begin() + 3050);
    sent.insert(sent.end(), a.bytes.begin() + 1000, a.bytes.begin() + 1200);
    const ByteView all(sent);
    expect_same(ByteView(b.far->bytes).subspan(10, 2500), all.first(2500));
    expect_same(ByteView(b.bytes).first(1200), all.subspan(2500, 1200));
    expect_same(ByteView(b.far->bytes).subspan(9000, 500), all.subspan(3700, 500));
}

TEST_F(FarMemoryUnderRc, AMessageOfSeveralPiecesIsGatheredAhead) {
    a.fill_far(17);
    a.send(request(SendOp::Write, 1, kBase, b.far_keys.rkey), a.far_sge(0, FarEnd::kFarBytes));
    EXPECT_TRUE(a.pump().empty());
    EXPECT_EQ(a.far->started.size(), 3u);
    while (!a.far->started.empty()) a.far->finish_one();
    exchange();
    EXPECT_EQ(b.far->started.size(), 3u);
    while (!b.far->started.empty()) b.far->finish_one();
    exchange();
    ASSERT_EQ(a.sent.list.size(), 1u);
    expect_same(b.far->bytes, a.far->bytes);
}

TEST_F(FarMemoryUnderRc, AReadBringsFarBytesToFarMemory) {
    b.fill_far(23);
    a.send(request(SendOp::Read, 1, kBase + 5, b.far_keys.rkey), a.far_sge(100, 70'000));
    a.send(request(SendOp::Write, 2, b.address(0), b.keys.rkey), a.sge(0, 8));
    exchange();
    while (!b.far->started.empty()) {
        b.far->finish_one();
        exchange();
    }
    EXPECT_TRUE(a.sent.list.empty()) << "answered, but not in memory; the WRITE waits its turn";
    a.far->finish_one();
    exchange();
    ASSERT_EQ(a.sent.list.size(), 2u);
    expect_same(ByteView(a.far->bytes).subspan(100, 70'000),
                ByteView(b.far->bytes).subspan(5, 70'000));
}

TEST_F(FarMemoryUnderRc, AWriteWhoseCopyFailsIsRefused) {
    write_far(1, 0, 3000);
    exchange();
    b.far->finish_one(false);
    exchange();
    ASSERT_EQ(a.sent.list.size(), 1u);
    EXPECT_EQ(a.sent.list[0].status, WcStatus::RemoteOperationError);
    EXPECT_EQ(b.qp.state(), QpState::Err);
}

TEST_F(FarMemoryUnderRc, AReceiveWhoseCopyFailsIsAnError) {
    b.post_receive(4, b.far_sge(0, 4096));
    b.post_receive(5, b.far_sge(4096, 4096));
    a.send(request(SendOp::Send, 1), a.sge(0, 100));
    exchange();
    b.far->finish_one(false);
    exchange();
    ASSERT_EQ(b.received.list.size(), 2u);
    EXPECT_EQ(b.received.list[0].wr_id, 4u);
    EXPECT_EQ(b.received.list[0].status, WcStatus::LocalProtectionError);
    EXPECT_EQ(b.received.list[1].status, WcStatus::FlushError);
    EXPECT_EQ(a.sent.list[0].status, WcStatus::RemoteOperationError);
}

TEST_F(FarMemoryUnderRc, ASendWhoseCopyFailsIsAnError) {
    a.send(request(SendOp::Write, 1, b.address(0), b.keys.rkey), a.far_sge(0, 100));
    exchange();
    a.far->finish_one(false);
    exchange();
    ASSERT_EQ(a.sent.list.size(), 1u);
    EXPECT_EQ(a.sent.list[0].status, WcStatus::LocalProtectionError);
}

TEST_F(FarMemoryUnderRc, AReadWhoseCopyFailsIsAnErrorAtEitherEnd) {
    a.send(request(SendOp::Read, 1, kBase, b.far_keys.rkey), a.far_sge(0, 100));
    exchange();
    b.far->finish_one();
    exchange();
    a.far->finish_one(false);
    exchange();
    ASSERT_EQ(a.sent.list.size(), 1u);
    EXPECT_EQ(a.sent.list[0].status, WcStatus::LocalProtectionError);
}

TEST_F(FarMemoryUnderRc, AtomicsAreRefusedWithAReason) {
    SendWr wr = request(SendOp::FetchAdd, 1, kBase, b.far_keys.rkey);
    wr.compare_add = 1;
    a.send(wr, a.sge(0, 8));
    exchange();
    ASSERT_EQ(a.sent.list.size(), 1u);
    EXPECT_EQ(a.sent.list[0].status, WcStatus::RemoteOperationError);
    const Reason* const reason = b.reasons.find(b.qp.first_reason());
    ASSERT_NE(reason, nullptr);
    EXPECT_EQ(reason->fault, mem::Fault::Far);
    EXPECT_NE(describe(*reason).find("GPU"), std::string::npos) << describe(*reason);
}

TEST_F(FarMemoryUnderRc, InlineDataIsRefusedWithAReason) {
    SendWr wr = request(SendOp::Send, 1);
    wr.inlined = true;
    const mem::Sge sge{kBase + 8, 16, LKey{}};
    wr.sges = {&sge, 1};
    const Result<void> posted = a.qp.post_send(Instant{}, wr);
    ASSERT_FALSE(posted);
    EXPECT_EQ(posted.error().code, EFAULT);
    EXPECT_NE(std::string(posted.error().why).find("GPU"), std::string::npos);
    const mem::Sge nowhere{4096, 16, LKey{}};  // Below what the kernel lets anybody map.
    wr.sges = {&nowhere, 1};
    EXPECT_EQ(std::string(a.qp.post_send(Instant{}, wr).error().why).find("GPU"),
              std::string::npos);
    EXPECT_TRUE(a.qp.send_queue().empty());
}

TEST_F(FarMemoryUnderRc, AFailedQueuePairIsSilentUntilItsBuffersAreItsOwn) {
    b.post_receive(4, b.far_sge(0, 4096));
    a.send(request(SendOp::Send, 1), a.sge(0, 100));
    exchange();
    b.fail();
    EXPECT_TRUE(b.release());
    EXPECT_TRUE(b.received.list.empty()) << "bytes are still on their way into the buffer";
    b.far->finish_one();
    EXPECT_TRUE(b.release());
    ASSERT_EQ(b.received.list.size(), 1u);
    EXPECT_EQ(b.received.list[0].status, WcStatus::FlushError);
}

TEST_F(FarMemoryUnderRc, AFailedQueuePairFlushesInOrderWhenItsBuffersAreItsOwn) {
    for (std::uint64_t i = 0; i < 8; ++i) b.post_receive(i, b.far_sge(i * 4096, 4096));
    a.send(request(SendOp::Send, 1), a.sge(0, 100));
    exchange();
    b.send(request(SendOp::Send, 20), b.sge(0, 8));
    b.fail();
    b.send(request(SendOp::Send, 21), b.sge(0, 8));
    b.post_receive(8, b.far_sge(0, 4096));
    EXPECT_TRUE(b.release());
    EXPECT_TRUE(b.received.list.empty() && b.sent.list.empty());
    EXPECT_FALSE(b.held.has_work()) << "the end of the copy is waited for, not asked for";
    b.far->finish_one();
    ASSERT_EQ(b.received.list.size(), 9u);
    for (std::uint64_t i = 0; i < 9; ++i) EXPECT_EQ(b.received.list[i].wr_id, i);
    ASSERT_EQ(b.sent.list.size(), 2u);
    EXPECT_EQ(b.sent.list[0].wr_id, 20u);
    EXPECT_TRUE(b.held.empty());
}

TEST_F(FarMemoryUnderRc, AFailedQueuePairMayFindNoPlaceForItsCompletions) {
    b.post_receive(4, b.far_sge(0, 4096));
    b.post_receive(5, b.far_sge(0, 4096));
    a.send(request(SendOp::Send, 1), a.sge(0, 100));
    exchange();
    for (std::size_t i = 0; i < HeldCompletions::kPlaces; ++i)
        b.held.hold(a.qp, PacketNumber::first(Psn(0)) + (1u << 30), a.received, {});
    b.fail();
    b.far->finish_one();
    EXPECT_EQ(b.received.list.size(), 2u);
    b.held.drop(a.qp);
}

TEST_F(FarMemoryUnderRc, TheLastReceiveOfASharedQueueIsToldWhenTheBuffersAreTheProgramsAgain) {
    ReceiveQueue shared(b.pd, 4, 4);
    QpInit init = b.qp.init();
    init.srq = &shared;
    QueuePair user(Qpn{0x02'0033}, init, b.services);
    const auto group = std::make_shared<CopyGroup>();
    group->staging = mem::heap_staging(8);
    b.copies.start(user, group,
                   {{b.far, mem::CopyDirection::Deliver, kBase, group->bytes().first(8)}});
    user.fail(Instant{}, {});
    EXPECT_TRUE(b.recorder.events.empty());
    EXPECT_EQ(b.copies.finish(b.far->started.front().token, true), &user);
    user.finish_flush(Instant{});
    user.finish_flush(Instant{});  // Another copy ends.
    EXPECT_EQ(b.recorder.events, std::vector{AsyncEventType::QpLastWqeReached});
}

TEST_F(FarMemoryUnderRc, ACopyThatCannotBeStartedLeavesNothingBehind) {
    b.far->room = 0;
    write_far(1, 0, 100);
    exchange();
    EXPECT_EQ(b.copies.size(), 0u);
    EXPECT_FALSE(b.qp.delivers());
    ASSERT_EQ(a.sent.list.size(), 1u);
    EXPECT_EQ(a.sent.list[0].status, WcStatus::RemoteOperationError);
}

TEST_F(FarMemoryUnderRc, AGroupFailsIfSomeOfItsCopiesCannotBeStarted) {
    const mem::Sge to[] = {b.far_sge(0, 100), b.far_sge(9000, 500)};
    ASSERT_TRUE(b.qp.post_receive(Instant{}, {1, to}));
    b.far->room = 1;
    a.send(request(SendOp::Send, 2), a.sge(0, 300));
    exchange();
    EXPECT_EQ(b.copies.size(), 1u);
    EXPECT_TRUE(b.received.list.empty()) << "bytes are on their way into the buffer";
    b.far->finish_one();
    exchange();
    EXPECT_EQ(b.copies.size(), 0u);
    ASSERT_EQ(b.received.list.size(), 1u);
    EXPECT_EQ(b.received.list[0].status, WcStatus::LocalProtectionError);
}

TEST_F(FarMemoryUnderRc, AGapIsToldWhenThePiecesAreInMemory) {
    a.fill(0, 100, 1);
    write_far(1, 0, 100);
    exchange();
    write_far(2, 200, 100);
    a.pump();  // Lost.
    write_far(3, 400, 100);
    for (const SentPacket& packet : a.pump()) b.receive(packet);
    EXPECT_TRUE(b.pump().empty()) << "a NAK would acknowledge the first";
    b.far->finish_one();
    exchange();
    while (!b.far->started.empty()) b.far->finish_one();
    exchange();
    EXPECT_EQ(a.sent.list.size(), 3u);
    EXPECT_EQ(a.counters[Counter::ReceivedSequenceError], 1u);
}

TEST_F(FarMemoryUnderRc, AMessageThatHasNotEndedIsNotWaitedFor) {
    a.fill(0, 5000, 1);
    write_far(1, 0, 5000);
    std::vector<SentPacket> packets = a.pump();
    ASSERT_EQ(packets.size(), 5u);
    b.receive(packets[0]);
    b.receive(packets[2]);
    ASSERT_EQ(b.pump().size(), 1u) << "a NAK, though a piece is not in memory: it waits for more";
    b.receive(packets[0]);
    EXPECT_EQ(b.pump().size(), 1u) << "a duplicate is acknowledged";
    exchange();
}

TEST_F(FarMemoryUnderRc, AnImmediateWithoutAReceiveIsToldSo) {
    a.fill(0, 3000, 1);
    write_far(1, 0, 3000, SendOp::WriteImmediate);
    for (const SentPacket& packet : a.pump()) b.receive(packet);
    const std::vector<SentPacket> answers = b.pump();
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(answers[0].parsed().aeth().syndrome.kind(), wire::Syndrome::Kind::Rnr);
}

// The WRITE waits for its last packet, so what was kept behind that one must not wait for the
// WRITE.
TEST_F(FarMemoryUnderRc, WhatWasKeptBehindARefusalIsForgotten) {
    b.post_receive(9, b.far_sge(0, 4096));
    a.send(request(SendOp::Send, 1), a.sge(0, 100));
    write_far(2, 5000, 2000, SendOp::WriteImmediate);
    a.send(request(SendOp::Send, 3), a.sge(0, 8));
    const std::vector<SentPacket> packets = a.pump();
    ASSERT_EQ(packets.size(), 4u);
    for (const SentPacket& packet : packets) b.receive(packet);
    b.far->finish_one();
    const std::vector<SentPacket> answers = b.pump();
    ASSERT_FALSE(answers.empty());
    EXPECT_EQ(answers[0].parsed().aeth().syndrome.kind(), wire::Syndrome::Kind::Rnr);
    EXPECT_EQ(b.qp.machine().progress().expected, Psn(2));
    b.post_receive(10, b.sge(0, 100));
    b.post_receive(11, b.sge(0, 100));
    b.receive(packets[2]);
    b.receive(packets[3]);
    b.pump();
    b.far->finish_one();
    b.pump();
    EXPECT_EQ(b.qp.machine().progress().expected, Psn(4));
    EXPECT_TRUE(b.release());
    EXPECT_EQ(b.received.list.size(), 3u);
}

TEST_F(FarMemoryUnderRc, APacketThatDoesNotFitTheOpenMessageIsRefusedAtOnce) {
    forge(wire::Opcode::RcWriteFirst, 0, {kBase, b.far_keys.rkey, 5000}, 1024);
    forge(wire::Opcode::RcSendOnly, 1);
    const std::vector<SentPacket> answers = b.pump();
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(answers[0].parsed().aeth().syndrome,
              wire::Syndrome::nak(wire::NakCode::InvalidRequest));
    EXPECT_EQ(b.qp.state(), QpState::Err);
}

TEST_F(FarMemoryUnderRc, EmptyPacketsAreNotKeptWithoutEnd) {
    forge(wire::Opcode::RcWriteOnly, 0, {kBase, b.far_keys.rkey, 100}, 100);
    for (std::uint32_t psn = 1; psn < 20'000; ++psn) forge(wire::Opcode::RcSendOnly, psn);
    EXPECT_GT(b.drops(DropReason::OutOfSequence), 0u);
    EXPECT_EQ(b.qp.machine().check_invariants(), nullptr);
}

TEST_F(FarMemoryUnderRc, SmallWritesDoNotBecomePiecesWithoutEnd) {
    for (std::uint32_t psn = 0; psn < 5000; ++psn)
        forge(wire::Opcode::RcWriteOnly, psn, {kBase + psn, b.far_keys.rkey, 1}, 1);
    EXPECT_LT(b.far->started.size(), 2000u);
    for (int round = 0; round < 10; ++round) {
        while (!b.far->started.empty()) b.far->finish_one();
        b.pump();
    }
    EXPECT_EQ(b.qp.machine().progress().msn, 5000u) << "the rest waited as packets";
    EXPECT_EQ(b.qp.machine().check_invariants(), nullptr);
}

// More than is kept comes behind an open message, all of whose packets are kept.
TEST_F(FarMemoryUnderRc, AKeptMessageDoesNotWaitForItself) {
    const wire::Reth host{b.address(0), b.keys.rkey, 1024};
    forge(wire::Opcode::RcWriteOnly, 0, {kBase, b.far_keys.rkey, 100}, 100);
    forge(wire::Opcode::RcWriteOnly, 1, host, 1024);
    forge(wire::Opcode::RcWriteFirst, 2, {kBase + 1000, b.far_keys.rkey, 3072}, 1024);
    forge(wire::Opcode::RcWriteMiddle, 3, {}, 1024);
    forge(wire::Opcode::RcWriteLast, 4, {}, 1024);
    std::uint32_t psn = 5;
    while (b.drops(DropReason::OutOfSequence) == 0 && psn < 10'000)
        forge(wire::Opcode::RcWriteOnly, psn++, host, 1024);
    EXPECT_LT(psn, 10'000u) << "there is no more room";
    b.far->finish_one();
    b.pump();
    EXPECT_EQ(b.far->started.size(), 1u) << "the message goes on";
    EXPECT_EQ(b.qp.machine().check_invariants(), nullptr);
}

// Each READ is gathered ahead, then the program registers host memory under the same key.
TEST_F(FarMemoryUnderRc, AReadOfARegionThatBecameHostMemoryLeavesNoCopyBehind) {
    a.send(request(SendOp::Read, 1, kBase, b.far_keys.rkey), a.sge(0, 3000));
    for (const SentPacket& packet : a.pump()) b.receive(packet);
    b.pump();
    ASSERT_EQ(b.far->started.size(), 1u);
    b.exchange_memory(false);
    b.far->finish_one();
    exchange();
    ASSERT_EQ(a.sent.list.size(), 1u);
    b.exchange_memory(true);
    a.send(request(SendOp::Read, 2, kBase + 50, b.far_keys.rkey), a.sge(0, 3000));
    exchange();
    ASSERT_EQ(b.far->started.size(), 1u);
    b.far->finish_one();
    exchange();
    ASSERT_EQ(a.sent.list.size(), 2u);
    EXPECT_EQ(a.sent.list[1].status, WcStatus::Success);
}

TEST_F(FarMemoryUnderRc, AResponseDoesNotCountMessagesThatAreNotInMemory) {
    a.send(request(SendOp::Read, 1, b.address(0), b.keys.rkey), a.sge(0, 8));
    write_far(2, 0, 100);
    for (const SentPacket& packet : a.pump()) b.receive(packet);
    const std::vector<SentPacket> answers = b.pump();
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(answers[0].parsed().info->verb, wire::Verb::ReadResponse);
    EXPECT_EQ(answers[0].parsed().aeth().msn, 1u);
}

TEST_F(FarMemoryUnderRc, AnInvalidationWaitsForWhatIsWrittenThroughTheKey) {
    const RKey key = b.bind_window();
    a.fill(0, 100, 1);
    a.send(request(SendOp::Write, 1, kBase, key), a.sge(0, 100));
    exchange();
    SendWr wr = request(SendOp::LocalInvalidate, 2);
    wr.invalidate = key;
    ASSERT_TRUE(b.qp.post_send(Instant{}, wr));
    exchange();
    EXPECT_TRUE(b.sent.list.empty()) << "bytes are on their way through the window";
    write_far(3, 1000, 100);  // By another key, and started later.
    exchange();
    ASSERT_EQ(b.far->started.size(), 2u);
    b.far->finish_one();
    exchange();
    ASSERT_EQ(b.sent.list.size(), 1u);
    EXPECT_EQ(b.sent.list[0].status, WcStatus::Success);
    b.far->finish_one();
    exchange();
    EXPECT_EQ(a.sent.list.size(), 2u);
}

TEST_F(FarMemoryUnderRc, WithoutCopiesItIsRefused) {
    a.services.copies = nullptr;
    a.send(request(SendOp::Write, 1, b.address(0), b.keys.rkey), a.far_sge(0, 100));
    exchange();
    ASSERT_EQ(a.sent.list.size(), 1u);
    EXPECT_EQ(a.sent.list[0].status, WcStatus::LocalProtectionError);
}

}  // namespace
}  // namespace feroce::transport::rc
