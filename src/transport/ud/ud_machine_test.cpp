#include "transport/ud/ud_machine.hpp"

#include <gtest/gtest.h>

#include "transport/machine_fixture.hpp"
#include "transport/ud/grh.hpp"

namespace feroce::transport {
namespace {

constexpr Qkey kQkey{0x1111'1111};

class UdMachineTest : public testing::Test {
protected:
    UdMachineTest() {
        for (End* end : {&a, &b}) {
            end->change_attributes([](QpAttributes& attributes) {
                attributes.qkey = kQkey;
                attributes.path_mtu = 1024;
                attributes.send_psn = Psn(0xff'ffff);
            });
            end->run();
        }
    }
    SendWr datagram(std::uint64_t wr_id) const {
        SendWr wr;
        wr.wr_id = wr_id;
        wr.signaled = true;
        wr.path = {.source = Gid::from_v4(0x0a00'0001), .destination = Gid::from_v4(0x0a00'0002)};
        wr.destination_qpn = b.qp.qpn();
        wr.qkey = kQkey;
        return wr;
    }
    SentPacket send_one(const SendWr& wr, std::uint32_t length) {
        a.send(wr, a.sge(0, length));
        const std::vector<SentPacket> sent = a.pump();
        EXPECT_EQ(sent.size(), 1U);
        return sent.at(0);
    }

    End a{QpType::Ud, Qpn{0x01'0011}};
    End b{QpType::Ud, Qpn{0x02'0022}};
};

TEST_F(UdMachineTest, DeliversBehindTheGrh) {
    a.fill(0, 501, 3);
    b.post_receive(7, b.sge(100, 600));
    SendWr wr = datagram(5);
    wr.op = SendOp::SendImmediate;
    wr.immediate = 0xdead'beef;
    wr.solicited = true;
    b.receive(send_one(wr, 501));

    EXPECT_EQ(a.counters[Counter::RdmaSends], 1U);
    EXPECT_EQ(b.counters[Counter::RdmaReceives], 1U);
    ASSERT_EQ(a.sent.list.size(), 1U);
    EXPECT_EQ(a.sent.list[0].wr_id, 5U);
    EXPECT_EQ(a.sent.list[0].status, WcStatus::Success);
    ASSERT_EQ(b.received.list.size(), 1U);
    const Completion& got = b.received.list[0];
    EXPECT_EQ(got.wr_id, 7U);
    EXPECT_EQ(got.byte_length, 541U);
    EXPECT_EQ(got.source_qpn, a.qp.qpn());
    EXPECT_EQ(got.immediate, 0xdead'beefU);
    EXPECT_TRUE(got.has_immediate && got.has_grh && got.solicited && !got.over_ipv6);
    EXPECT_EQ(std::memcmp(&b.bytes[140], &a.bytes[0], 501), 0);
    EXPECT_EQ(b.bytes[99], std::byte{0});
    EXPECT_EQ(b.bytes[641], std::byte{0});
}

TEST_F(UdMachineTest, NumbersPacketsAndOnlySignalledOnesComplete) {
    SendWr wr = datagram(1);
    wr.signaled = false;
    EXPECT_EQ(send_one(wr, 8).parsed().bth.psn, Psn(0xff'ffff));
    EXPECT_EQ(send_one(datagram(2), 0).parsed().bth.psn, Psn(0));
    ASSERT_EQ(a.sent.list.size(), 1U);
    EXPECT_EQ(a.sent.list[0].wr_id, 2U);
    EXPECT_TRUE(a.qp.send_queue().empty());
}

TEST_F(UdMachineTest, GrhOfIpv4HasACorrectChecksum) {
    b.post_receive(1, b.sge(0, 100));
    SendWr wr = datagram(1);
    wr.path.traffic_class = 0x12;
    wr.path.hop_limit = 33;
    b.receive(send_one(wr, 10));
    const ByteView grh = ByteView(b.bytes).first(kGrhBytes);
    for (std::size_t i = 0; i < 20; ++i) EXPECT_EQ(grh[i], std::byte{0}) << i;
    std::uint32_t sum = 0;
    for (std::size_t i = 20; i < 40; i += 2) sum += load_be16(grh.subspan(i).first<2>());
    EXPECT_EQ((sum & 0xffff) + (sum >> 16), 0xffffU);
    EXPECT_EQ(byte_at(grh, 20), 0x45U);
    EXPECT_EQ(byte_at(grh, 21), 0x12U);
    // IPv4, UDP, BTH, DETH, ten bytes of payload, two of pad, ICRC.
    EXPECT_EQ(load_be16(grh.subspan<22, 2>()), 20 + 8 + 12 + 8 + 12 + 4);
    EXPECT_EQ(load_be16(grh.subspan<26, 2>()), 0x4000);
    EXPECT_EQ(byte_at(grh, 28), 33U);
    EXPECT_EQ(byte_at(grh, 29), 17U);
    EXPECT_EQ(load_be32(grh.subspan<32, 4>()), 0x0a00'0001U);
    EXPECT_EQ(load_be32(grh.subspan<36, 4>()), 0x0a00'0002U);
    const GrhAddresses read = read_grh(grh.first<kGrhBytes>());
    EXPECT_EQ(read.source, wr.path.source);
    EXPECT_EQ(read.destination, wr.path.destination);
    EXPECT_EQ(read.traffic_class, 0x12);
}

TEST_F(UdMachineTest, GrhOfIpv6IsTheHeader) {
    b.post_receive(1, b.sge(0, 100));
    SendWr wr = datagram(1);
    wr.path.source.raw = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
    wr.path.destination.raw = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2};
    wr.path.traffic_class = 0x12;
    b.receive(send_one(wr, 10));
    const ByteView grh = ByteView(b.bytes).first(kGrhBytes);
    EXPECT_EQ(load_be32(grh.first<4>()), 0x6120'0000U);
    EXPECT_EQ(load_be16(grh.subspan<4, 2>()), 8 + 12 + 8 + 12 + 4);
    EXPECT_EQ(byte_at(grh, 6), 17U);
    EXPECT_EQ(byte_at(grh, 23), 1U);
    EXPECT_EQ(byte_at(grh, 39), 2U);
    EXPECT_TRUE(b.received.list.at(0).over_ipv6);
    const GrhAddresses read = read_grh(grh.first<kGrhBytes>());
    EXPECT_EQ(read.source, wr.path.source);
    EXPECT_EQ(read.destination, wr.path.destination);
    EXPECT_EQ(read.traffic_class, 0x12);
}

TEST_F(UdMachineTest, ControlledQkeyMeansTheQueuePairsOwn) {
    SendWr wr = datagram(1);
    wr.qkey = Qkey{0x8000'0000};
    EXPECT_EQ(send_one(wr, 1).parsed().deth().qkey, kQkey);
    wr.qkey = Qkey{0x7fff'ffff};
    EXPECT_EQ(send_one(wr, 1).parsed().deth().qkey, Qkey{0x7fff'ffff});
}

TEST_F(UdMachineTest, DropsAreCountedAndConsumeNoReceive) {
    b.receive(send_one(datagram(1), 8));
    EXPECT_EQ(b.drops(DropReason::NoReceive), 1U);

    b.post_receive(1, b.sge(0, 100));
    SendWr wr = datagram(2);
    wr.qkey = Qkey{5};
    b.receive(send_one(wr, 8));
    EXPECT_EQ(b.drops(DropReason::BadQkey), 1U);

    b.receive(send_one(datagram(3), 61));
    EXPECT_EQ(b.drops(DropReason::ReceiveTooSmall), 1U);
    EXPECT_TRUE(b.received.list.empty());

    b.receive(send_one(datagram(4), 60));
    ASSERT_EQ(b.received.list.size(), 1U);
    EXPECT_EQ(b.received.list[0].wr_id, 1U);
}

TEST_F(UdMachineTest, DropsAreNoticed) {
    const auto sentence_of = [this](NoticeKind kind) {
        for (const Notice& notice : b.reasons.notices.all())
            if (notice.kind == kind) return describe(notice);
        return std::string();
    };
    b.receive(send_one(datagram(1), 8));
    b.receive(send_one(datagram(2), 8));
    EXPECT_NE(sentence_of(NoticeKind::UnreceivedDatagram).find("dropped 2 datagrams of QP"),
              std::string::npos);
    b.post_receive(1, b.sge(0, 100));
    b.receive(send_one(datagram(3), 61));
    EXPECT_NE(
        sentence_of(NoticeKind::LongDatagram)
            .find("the receive of 100 bytes has no room for the GRH of 40 bytes and 61 bytes"),
        std::string::npos);
}

TEST_F(UdMachineTest, DropsInStatesThatDoNotReceive) {
    const SentPacket packet = send_one(datagram(1), 8);
    for (const QpState state : {QpState::Reset, QpState::Init, QpState::Err}) {
        End c(QpType::Ud, Qpn{3});
        c.qp.set_state(state);
        c.receive(packet);
        EXPECT_EQ(c.drops(DropReason::WrongQpState), 1U);
    }
    End uc(QpType::Uc, Qpn{4});
    uc.run();
    uc.receive(packet);
    EXPECT_EQ(uc.drops(DropReason::WrongQpType), 1U);
}

TEST_F(UdMachineTest, TooLongGoesToSqeAndReceivesGoOn) {
    a.send(datagram(1), a.sge(0, 1025));
    a.send(datagram(2), a.sge(0, 8));
    EXPECT_TRUE(a.pump().empty());
    EXPECT_EQ(a.qp.state(), QpState::Sqe);
    ASSERT_EQ(a.sent.list.size(), 2U);
    EXPECT_EQ(a.sent.list[0].status, WcStatus::LocalLengthError);
    EXPECT_EQ(a.sent.list[1].status, WcStatus::FlushError);
    EXPECT_EQ(a.sent.list[0].reason, a.sent.list[1].reason);
    EXPECT_EQ(a.reasons.find(a.sent.list[0].reason)->rule, Rule::MessageTooLong);

    a.post_receive(9, a.sge(0, 100));
    SendWr wr = datagram(3);
    wr.destination_qpn = a.qp.qpn();
    b.send(wr, b.sge(0, 4));
    a.receive(b.pump().at(0));
    EXPECT_EQ(a.received.list.size(), 1U);

    a.move(QpState::Rts);
    EXPECT_EQ(send_one(datagram(4), 1024).parsed().payload.size(), 1024U);
}

TEST_F(UdMachineTest, BadLocalKeyGoesToSqeWithoutAPacket) {
    mem::Sge sge = a.sge(0, 8);
    sge.lkey = LKey{sge.lkey.raw ^ 0x100};
    a.send(datagram(1), sge);
    EXPECT_TRUE(a.pump().empty());
    EXPECT_EQ(a.qp.state(), QpState::Sqe);
    EXPECT_EQ(a.sent.list.at(0).status, WcStatus::LocalProtectionError);
    EXPECT_EQ(a.reasons.find(a.sent.list[0].reason)->rule, Rule::LocalKey);
}

TEST_F(UdMachineTest, AReceiveWhoseMemoryIsGoneSaysSo) {
    mem::test::Pages pages{1};
    const mem::Sge sge = b.sge_of(pages);
    b.post_receive(1, sge);
    pages.unmap(0, 1);
    b.receive(send_one(datagram(1), 8));
    EXPECT_EQ(b.qp.state(), QpState::Err);
    EXPECT_EQ(b.received.list.at(0).status, WcStatus::LocalProtectionError);
    const Reason* const reason = b.reasons.find(b.received.list[0].reason);
    ASSERT_NE(reason, nullptr);
    EXPECT_STREQ(text(reason->rule), text(Rule::LocalMemoryGone));
    EXPECT_EQ(reason->region.key, sge.lkey.raw);
}

TEST_F(UdMachineTest, BadReceiveKeyFailsTheQueuePair) {
    mem::Sge sge = b.sge(0, 100);
    sge.lkey = LKey{sge.lkey.raw ^ 0x100};
    b.post_receive(1, sge);
    b.post_receive(2, b.sge(0, 100));
    b.receive(send_one(datagram(1), 8));
    EXPECT_EQ(b.qp.state(), QpState::Err);
    ASSERT_EQ(b.received.list.size(), 2U);
    EXPECT_EQ(b.received.list[0].status, WcStatus::LocalProtectionError);
    EXPECT_EQ(b.received.list[1].status, WcStatus::FlushError);
    EXPECT_EQ(b.received.list[1].reason, b.received.list[0].reason);
}

TEST_F(UdMachineTest, ErrorFlushesTheReceiveInHandFirst) {
    b.post_receive(1, b.sge(0, 40));
    b.post_receive(2, b.sge(0, 100));
    b.receive(send_one(datagram(1), 8));  // Too long for receive 1, which is kept in hand.
    b.fail();
    ASSERT_EQ(b.received.list.size(), 2U);
    EXPECT_EQ(b.received.list[0].wr_id, 1U);
    EXPECT_EQ(b.received.list[1].wr_id, 2U);
    EXPECT_EQ(b.received.list[0].status, WcStatus::FlushError);
}

TEST_F(UdMachineTest, ResetForgetsTheReceiveInHand) {
    b.post_receive(1, b.sge(0, 40));
    b.receive(send_one(datagram(1), 8));
    b.qp.clear();
    b.move(QpState::Reset);
    b.run();
    b.post_receive(2, b.sge(0, 100));
    b.receive(send_one(datagram(2), 8));
    ASSERT_EQ(b.received.list.size(), 1U);
    EXPECT_EQ(b.received.list[0].wr_id, 2U);
}

TEST_F(UdMachineTest, DrainedQueueSendsNothingNew) {
    a.change_attributes([](QpAttributes& its) { its.drain_notify = true; });
    a.move(QpState::Sqd);
    EXPECT_EQ(a.recorder.events.size(), 1U);
    EXPECT_EQ(a.recorder.events.at(0), AsyncEventType::SendQueueDrained);
    a.send(datagram(1), a.sge(0, 8));
    EXPECT_TRUE(a.pump().empty());
    a.move(QpState::Rts);
    EXPECT_EQ(a.pump().size(), 1U);
}

TEST_F(UdMachineTest, InlineDataNeedsNoKeyAndIsTakenWhenPosted) {
    a.fill(0, 13, 9);
    mem::Sge sge = a.sge(0, 13);
    sge.lkey = LKey{0};
    SendWr wr = datagram(1);
    wr.inlined = true;
    a.send(wr, sge);
    const std::byte first = std::exchange(a.bytes[0], std::byte{0xee});
    const SentPacket sent = a.pump().at(0);
    EXPECT_EQ(sent.parsed().payload.size(), 13U);
    EXPECT_EQ(sent.parsed().payload[0], first);
    // Three bytes of pad, zeroed, before the ICRC.
    for (std::size_t i = sent.bytes.size() - 7; i < sent.bytes.size() - 4; ++i)
        EXPECT_EQ(sent.bytes[i], std::byte{0});
}

}  // namespace
}  // namespace feroce::transport
