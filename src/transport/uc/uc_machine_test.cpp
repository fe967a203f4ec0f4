#include "transport/uc/uc_machine.hpp"

#include <gtest/gtest.h>

#include "transport/machine_fixture.hpp"

namespace feroce::transport {
namespace {

constexpr std::uint32_t kMtu = 256;

class UcMachineTest : public testing::Test {
protected:
    UcMachineTest() {
        connect(a, b);
        connect(b, a);
        for (End* end : {&a, &b}) end->run();
    }
    static void connect(End& end, const End& peer) {
        end.change_attributes([&peer](QpAttributes& attributes) {
            attributes.path_mtu = kMtu;
            attributes.destination_qpn = peer.qp.qpn();
            attributes.send_psn = attributes.receive_psn = Psn(0xff'fffe);
            attributes.access = mem::Access::RemoteWrite;
            attributes.address.source = Gid::from_v4(0x7f00'0001);
            attributes.address.destination = Gid::from_v4(0x7f00'0002);
        });
    }
    SendWr request(SendOp op, std::uint64_t wr_id = 1) const {
        SendWr wr;
        wr.wr_id = wr_id;
        wr.op = op;
        wr.signaled = true;
        wr.immediate = 0x1234'5678;
        wr.remote_address = b.address(1000);
        wr.rkey = b.keys.rkey;
        return wr;
    }
    std::vector<SentPacket> packets_of(const SendWr& wr, std::uint32_t length) {
        a.send(wr, a.sge(0, length));
        return a.pump();
    }
    std::vector<SentPacket> packets_of(SendOp op, std::uint32_t length) {
        return packets_of(request(op), length);
    }
    void deliver(const std::vector<SentPacket>& packets, std::size_t skip = SIZE_MAX) {
        for (std::size_t i = 0; i < packets.size(); ++i)
            if (i != skip) b.receive(packets[i]);
    }

    End a{QpType::Uc, Qpn{0x01'0011}};
    End b{QpType::Uc, Qpn{0x02'0022}};
};

TEST_F(UcMachineTest, SendOfEveryLengthArrives) {
    for (const std::uint32_t length : {0U, 1U, 255U, 256U, 257U, 511U, 512U, 513U, 2000U}) {
        a.fill(0, length, length);
        b.post_receive(length, b.sge(4000, 2000));
        const auto packets = packets_of(SendOp::Send, length);
        EXPECT_EQ(packets.size(), std::max(1U, (length + kMtu - 1) / kMtu));
        deliver(packets);
        const Completion& got = b.received.list.back();
        EXPECT_EQ(got.wr_id, length);
        EXPECT_EQ(got.byte_length, length);
        EXPECT_EQ(got.opcode, WcOpcode::Receive);
        EXPECT_EQ(got.source_qpn, a.qp.qpn());
        EXPECT_FALSE(got.has_immediate);
        EXPECT_EQ(std::memcmp(&b.bytes[4000], a.bytes.data(), length), 0) << length;
    }
    EXPECT_EQ(a.sent.list.size(), 9U);
    EXPECT_EQ(b.received.list.size(), 9U);
}

TEST_F(UcMachineTest, ImmediateAndSolicitedComeWithTheLastPacket) {
    for (const std::uint32_t length : {10U, 600U}) {
        b.post_receive(1, b.sge(4000, 600));
        SendWr wr = request(SendOp::SendImmediate);
        wr.solicited = true;
        const auto packets = packets_of(wr, length);
        for (const SentPacket& packet : packets)
            EXPECT_EQ(packet.parsed().bth.solicited, &packet == &packets.back());
        deliver(packets);
        EXPECT_TRUE(b.received.list.back().has_immediate && b.received.list.back().solicited);
        EXPECT_EQ(b.received.list.back().immediate, 0x1234'5678U);
    }
}

TEST_F(UcMachineTest, WriteArrivesWithoutAReceive) {
    for (const std::uint32_t length : {0U, 1U, 256U, 700U}) {
        a.fill(0, length, length + 1);
        deliver(packets_of(SendOp::Write, length));
        EXPECT_EQ(std::memcmp(&b.bytes[1000], a.bytes.data(), length), 0) << length;
    }
    EXPECT_TRUE(b.received.list.empty());
    EXPECT_EQ(a.sent.list.size(), 4U);
    EXPECT_EQ(a.sent.list[0].opcode, WcOpcode::Write);
}

TEST_F(UcMachineTest, WriteImmediateConsumesAReceive) {
    b.post_receive(8, b.sge(0, 0));
    deliver(packets_of(SendOp::WriteImmediate, 700));
    ASSERT_EQ(b.received.list.size(), 1U);
    EXPECT_EQ(b.received.list[0].opcode, WcOpcode::ReceiveWriteImmediate);
    EXPECT_EQ(b.received.list[0].byte_length, 700U);
    EXPECT_EQ(b.received.list[0].immediate, 0x1234'5678U);

    deliver(packets_of(SendOp::WriteImmediate, 700));
    EXPECT_EQ(b.drops(DropReason::NoReceive), 1U);
}

TEST_F(UcMachineTest, AnyLostPacketLosesItsMessageAndNoOther) {
    for (std::size_t lost = 0; lost < 4; ++lost) {
        b.received.list.clear();
        b.post_receive(1, b.sge(4000, 1000));
        deliver(packets_of(SendOp::Send, 1000), lost);
        EXPECT_TRUE(b.received.list.empty());
        EXPECT_EQ(b.qp.receive_queue().available(), lost == 0 ? 1U : 0U);

        // The receive was not completed: the next message gets it.
        a.fill(0, 300, static_cast<unsigned>(lost));
        deliver(packets_of(SendOp::Send, 300));
        ASSERT_EQ(b.received.list.size(), 1U) << lost;
        EXPECT_EQ(b.received.list[0].byte_length, 300U);
        EXPECT_EQ(std::memcmp(&b.bytes[4000], a.bytes.data(), 300), 0);
    }
    EXPECT_GT(b.drops(DropReason::UcGap), 0U);
}

TEST_F(UcMachineTest, NewMessageBeforeTheEndBreaksTheOldOne) {
    b.post_receive(1, b.sge(4000, 1000));
    auto packets = packets_of(SendOp::Send, 600);
    b.receive(packets[0]);
    // The same FIRST as if it were the next packet in sequence.
    SentPacket again = packets[0];
    store_be24(ByteSpan(again.bytes).subspan<9, 3>(), 0xff'ffff);
    b.receive(again);
    EXPECT_EQ(b.drops(DropReason::UcBroken), 1U);
    EXPECT_TRUE(b.received.list.empty());
}

TEST_F(UcMachineTest, MiddleWithoutAMessageIsDropped) {
    const auto packets = packets_of(SendOp::Send, 600);
    deliver(packets);  // No receive: the FIRST goes, and with it the rest.
    EXPECT_EQ(b.drops(DropReason::NoReceive), 1U);
    EXPECT_EQ(b.drops(DropReason::UcBroken), 2U);
}

TEST_F(UcMachineTest, WriteIsRefusedWithoutAccess) {
    b.fill(0, End::kBytes, 1);
    const std::vector<std::byte> before = b.bytes;
    SendWr wr = request(SendOp::Write);
    wr.rkey = RKey{wr.rkey.raw ^ 0x100};
    deliver(packets_of(wr, 100));
    EXPECT_EQ(b.drops(DropReason::UcAccess), 1U);

    wr = request(SendOp::Write);
    wr.remote_address = b.address(End::kBytes - 99);
    deliver(packets_of(wr, 100));
    EXPECT_EQ(b.drops(DropReason::UcAccess), 2U);

    b.change_attributes([](QpAttributes& its) { its.access = {}; });
    deliver(packets_of(SendOp::Write, 100));
    EXPECT_EQ(b.drops(DropReason::UcAccess), 3U);
    EXPECT_EQ(b.bytes, before);
    EXPECT_EQ(b.qp.state(), QpState::Rts);
}

TEST_F(UcMachineTest, RegionGoneInTheMiddleDropsTheRest) {
    const auto packets = packets_of(SendOp::Write, 700);
    b.receive(packets[0]);
    ASSERT_TRUE(b.memory.deregister_region(b.keys.lkey));
    b.receive(packets[1]);
    EXPECT_EQ(b.drops(DropReason::UcAccess), 1U);
}

TEST_F(UcMachineTest, LengthsMustAddUp) {
    const auto too_short = [this](std::size_t index, std::uint32_t dma_length) {
        auto packets = packets_of(SendOp::Write, 600);
        store_be32(ByteSpan(packets[0].bytes).subspan<24, 4>(), dma_length);
        for (std::size_t i = 0; i <= index; ++i) b.receive(packets[i]);
        return b.drops(DropReason::UcBroken);
    };
    EXPECT_EQ(too_short(0, 256), 1U);  // FIRST fills it already.
    EXPECT_EQ(too_short(1, 512), 2U);  // MIDDLE does.
    EXPECT_EQ(too_short(2, 601), 3U);  // LAST leaves a byte out.

    // Then a FIRST of 256 bytes is none.
    b.change_attributes([](QpAttributes& its) { its.path_mtu = 512; });
    deliver(packets_of(SendOp::Write, 600));
    EXPECT_EQ(b.drops(DropReason::UcBroken), 6U);
}

TEST_F(UcMachineTest, MessageLongerThanTheReceiveIsDroppedAndTheReceiveKept) {
    b.post_receive(1, b.sge(4000, 599));
    deliver(packets_of(SendOp::Send, 600));
    EXPECT_EQ(b.drops(DropReason::ReceiveTooSmall), 1U);
    EXPECT_TRUE(b.received.list.empty());
    deliver(packets_of(SendOp::Send, 599));
    EXPECT_EQ(b.received.list.size(), 1U);
}

TEST_F(UcMachineTest, AReceiveWhoseMemoryIsGoneSaysSo) {
    mem::test::Pages pages{1};
    const mem::Sge sge = b.sge_of(pages);
    b.post_receive(1, sge);
    pages.unmap(0, 1);
    deliver(packets_of(SendOp::Send, 8));
    EXPECT_EQ(b.qp.state(), QpState::Err);
    EXPECT_EQ(b.received.list.at(0).status, WcStatus::LocalProtectionError);
    const Reason* const reason = b.reasons.find(b.received.list[0].reason);
    ASSERT_NE(reason, nullptr);
    EXPECT_STREQ(text(reason->rule), text(Rule::LocalMemoryGone));
    EXPECT_EQ(reason->region.key, sge.lkey.raw);
}

TEST_F(UcMachineTest, BadReceiveKeyFailsTheQueuePair) {
    mem::Sge sge = b.sge(0, 100);
    sge.lkey = LKey{sge.lkey.raw ^ 0x100};
    b.post_receive(1, sge);
    deliver(packets_of(SendOp::Send, 8));
    EXPECT_EQ(b.qp.state(), QpState::Err);
    EXPECT_EQ(b.received.list.at(0).status, WcStatus::LocalProtectionError);
}

TEST_F(UcMachineTest, BadSendKeyGoesToSqeAndFlushes) {
    mem::Sge sge = a.sge(0, 600);
    sge.address += End::kBytes - 300;  // The second packet runs over the end.
    a.send(request(SendOp::Send, 1), sge);
    a.send(request(SendOp::Send, 2), a.sge(0, 8));
    EXPECT_EQ(a.pump().size(), 1U);
    EXPECT_EQ(a.qp.state(), QpState::Sqe);
    ASSERT_EQ(a.sent.list.size(), 2U);
    EXPECT_EQ(a.sent.list[0].status, WcStatus::LocalProtectionError);
    EXPECT_EQ(a.sent.list[1].status, WcStatus::FlushError);
    a.move(QpState::Rts);
    EXPECT_EQ(packets_of(SendOp::Send, 8).size(), 1U);
}

TEST_F(UcMachineTest, DrainFinishesWhatWasBegun) {
    a.change_attributes([](QpAttributes& its) { its.drain_notify = true; });
    a.send(request(SendOp::Send, 1), a.sge(0, 700));
    a.send(request(SendOp::Send, 2), a.sge(0, 700));
    EXPECT_EQ(a.pump(1).size(), 1U);
    a.move(QpState::Sqd);
    EXPECT_TRUE(a.recorder.events.empty());
    EXPECT_TRUE(a.qp.machine().progress().draining);
    EXPECT_EQ(a.pump().size(), 2U);
    EXPECT_FALSE(a.qp.machine().progress().draining);
    EXPECT_EQ(a.qp.machine().progress().next, Psn(0xff'fffe) + 3);
    EXPECT_EQ(a.recorder.events.size(), 1U);
    EXPECT_EQ(a.sent.list.size(), 1U);
    a.move(QpState::Rts);
    EXPECT_EQ(a.pump().size(), 3U);
}

TEST_F(UcMachineTest, ErrorFlushesTheReceiveInHandFirst) {
    b.post_receive(1, b.sge(4000, 1000));
    b.post_receive(2, b.sge(4000, 1000));
    deliver(packets_of(SendOp::Send, 600), 2);
    b.fail();
    ASSERT_EQ(b.received.list.size(), 2U);
    EXPECT_EQ(b.received.list[0].wr_id, 1U);
    EXPECT_EQ(b.received.list[1].status, WcStatus::FlushError);
}

TEST_F(UcMachineTest, ResetStartsAnew) {
    b.post_receive(1, b.sge(4000, 1000));
    deliver(packets_of(SendOp::Send, 600), 2);
    for (End* end : {&a, &b}) {
        end->qp.clear();
        end->move(QpState::Reset);
        end->run();
    }
    b.post_receive(2, b.sge(4000, 1000));
    const auto packets = packets_of(SendOp::Send, 8);
    EXPECT_EQ(packets.at(0).parsed().bth.psn, Psn(0xff'fffe));
    deliver(packets);
    EXPECT_EQ(b.received.list.at(0).wr_id, 2U);
}

TEST_F(UcMachineTest, FirstPacketInRtrTellsTheProgram) {
    End c(QpType::Uc, Qpn{0x03'0033});
    connect(c, a);
    c.move(QpState::Init);
    c.move(QpState::Rtr);
    const auto packets = packets_of(SendOp::Write, 700);
    for (const SentPacket& packet : packets) c.receive(packet);
    EXPECT_EQ(c.recorder.events.size(), 1U);
    EXPECT_EQ(c.recorder.events.at(0), AsyncEventType::CommunicationEstablished);
}

TEST_F(UcMachineTest, DropsWhatIsNotForItsTypeOrState) {
    const auto packets = packets_of(SendOp::Send, 8);
    End ud(QpType::Ud, Qpn{5});
    ud.run();
    ud.receive(packets[0]);
    EXPECT_EQ(ud.drops(DropReason::WrongQpType), 1U);
    for (const QpState state : {QpState::Reset, QpState::Init, QpState::Err}) {
        End c(QpType::Uc, Qpn{6});
        c.qp.set_state(state);
        c.receive(packets[0]);
        EXPECT_EQ(c.drops(DropReason::WrongQpState), 1U);
    }
}

TEST_F(UcMachineTest, LocalInvalidateOfAStrangersKeyGoesToSqe) {
    SendWr wr = request(SendOp::LocalInvalidate);
    wr.invalidate = RKey{0x1234};
    a.send(wr, a.sge(0, 0));
    EXPECT_TRUE(a.pump().empty());
    EXPECT_EQ(a.qp.state(), QpState::Sqe);
    EXPECT_EQ(a.sent.list.at(0).status, WcStatus::WindowBindError);
    EXPECT_EQ(a.reasons.find(a.sent.list[0].reason)->rule, Rule::InvalidateRefused);
}

TEST_F(UcMachineTest, AMessageThatVanishesHalfwayIsNoticed) {
    a.send(request(SendOp::Write), a.sge(0, 600));
    EXPECT_EQ(a.pump(1).size(), 1U);
    EXPECT_EQ(a.qp.machine().check_invariants(), nullptr);
    a.qp.send_queue().clear();
    EXPECT_STREQ(a.qp.machine().check_invariants(), "a message was begun that is gone");
}

TEST_F(UcMachineTest, ADrainThatIsWaitedForOutsideOfSqdIsNoticed) {
    a.send(request(SendOp::Write), a.sge(0, 600));
    EXPECT_EQ(a.pump(1).size(), 1U);
    a.change_attributes([](QpAttributes& attributes) { attributes.drain_notify = true; });
    a.move(QpState::Sqd);
    EXPECT_EQ(a.qp.machine().check_invariants(), nullptr);
    a.qp.set_state(QpState::Rts);
    EXPECT_STREQ(a.qp.machine().check_invariants(), "waits for a drain outside of SQD");
}

}  // namespace
}  // namespace feroce::transport
