// Each invariant that can be broken from outside is, and is named; a connection at work keeps all.
#include <gtest/gtest.h>

#include "transport/machine_fixture.hpp"
#include "transport/rc/rc_machine.hpp"

namespace feroce::transport::rc {
namespace {

class RcInvariants : public testing::Test {
protected:
    RcInvariants() {
        for (End* end : {&a, &b}) {
            end->change_attributes([](QpAttributes& attributes) {
                attributes.path_mtu = 256;
                attributes.send_psn = attributes.receive_psn = Psn(0xff'fffe);
                attributes.read_atomic_max = attributes.dest_read_atomic_max = 4;
                attributes.timeout = 14;
                attributes.access = mem::AccessSet(15);
            });
        }
        a.qp.set_window(&window);
        b.qp.set_window(&peers_window);
        for (End* end : {&a, &b}) end->run();
        EXPECT_EQ(broken(a), nullptr);
    }
    static const char* broken(End& end) { return end.qp.machine().check_invariants(); }
    void write(std::uint32_t length) {
        SendWr wr;
        wr.op = SendOp::Write;
        wr.signaled = true;
        wr.remote_address = b.address(0);
        wr.rkey = b.keys.rkey;
        a.send(wr, a.sge(0, length));
    }

    SendWindow window;
    SendWindow peers_window;
    End a{QpType::Rc, Qpn{0x01'0011}};
    End b{QpType::Rc, Qpn{0x02'0022}};
};

TEST_F(RcInvariants, HoldWhileAMessageCrosses) {
    write(2000);
    while (a.sent.list.empty()) {
        std::vector<SentPacket> sent = a.pump(1);
        EXPECT_EQ(broken(a), nullptr);
        ASSERT_FALSE(sent.empty());
        b.receive(sent[0]);
        EXPECT_EQ(broken(b), nullptr);
        for (const SentPacket& answer : b.pump()) a.receive(answer);
        EXPECT_EQ(broken(a), nullptr);
        EXPECT_EQ(broken(b), nullptr);
    }
    EXPECT_EQ(a.sent.list[0].status, WcStatus::Success);
}

TEST_F(RcInvariants, ARequestThatVanishesIsNoticed) {
    write(8);
    a.qp.send_queue().retire();
    EXPECT_STREQ(broken(a), "the position is outside of the send queue");
}

TEST_F(RcInvariants, NumbersThatNobodyOwnsAreNoticed) {
    write(600);
    a.pump();
    a.qp.send_queue().retire();
    EXPECT_STREQ(broken(a), "numbers are owned by no request");
}

TEST_F(RcInvariants, AWindowThatForgotIsNoticed) {
    write(600);
    a.pump();
    window.on_forgotten(window.in_flight());
    EXPECT_STREQ(broken(a), "more bytes in flight than the window knows of");
}

TEST_F(RcInvariants, ARequestThatGrowsIsNoticed) {
    write(600);
    a.pump();
    a.qp.send_queue().at(a.qp.send_queue().head()).length = 700;
    EXPECT_STREQ(broken(a), "the bytes in flight are not those of the packets in flight");
}

TEST_F(RcInvariants, ARequestThatMovesIsNoticed) {
    write(600);
    write(8);
    a.pump();
    SendQueue& queue = a.qp.send_queue();
    SendWqe& second = queue.at(queue.head() + 1);
    second.first_packet = second.first_packet + 1;
    EXPECT_STREQ(broken(a), "there is a gap in the requests' numbers");
}

TEST_F(RcInvariants, AnAnsweredRequestThatStaysIsNoticed) {
    write(600);
    a.pump();
    SendWqe& wqe = a.qp.send_queue().at(a.qp.send_queue().head());
    wqe.first_packet = wqe.first_packet - wqe.packets;
    EXPECT_STREQ(broken(a), "an answered request is not retired");
}

TEST_F(RcInvariants, AFlightThatNobodyWatchesIsNoticed) {
    a.change_attributes([](QpAttributes& attributes) { attributes.timeout = 0; });
    write(600);
    a.pump();
    EXPECT_EQ(broken(a), nullptr) << "a timeout of 0 is for ever";
    a.change_attributes([](QpAttributes& attributes) { attributes.timeout = 14; });
    EXPECT_STREQ(broken(a), "packets in flight without a timer");
}

TEST_F(RcInvariants, HoldWhileAReadIsAnswered) {
    SendWr wr;
    wr.op = SendOp::Read;
    wr.signaled = true;
    wr.remote_address = b.address(0);
    wr.rkey = b.keys.rkey;
    a.send(wr, a.sge(0, 1000));
    for (const SentPacket& packet : a.pump()) b.receive(packet);
    for (int i = 0; i < 4; ++i) {
        EXPECT_EQ(broken(b), nullptr);
        for (const SentPacket& answer : b.pump(1)) a.receive(answer);
        EXPECT_EQ(broken(a), nullptr);
    }
    ASSERT_EQ(a.sent.list.size(), 1u);
    EXPECT_EQ(a.sent.list[0].status, WcStatus::Success);
}

TEST_F(RcInvariants, AnErrorThatStopsNothingIsNoticed) {
    write(600);
    a.pump();
    a.qp.set_state(QpState::Err);
    EXPECT_STREQ(broken(a), "stopped with packets in flight");
}

TEST_F(RcInvariants, AResponderThatStoppedOwesNothing) {
    write(8);
    for (const SentPacket& packet : a.pump()) b.receive(packet);
    b.qp.set_state(QpState::Err);
    EXPECT_STREQ(broken(b), "stopped with an answer owed or a receive held");
}

}  // namespace
}  // namespace feroce::transport::rc
