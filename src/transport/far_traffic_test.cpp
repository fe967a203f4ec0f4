// Far memory under unreliable connections and datagrams, with copies that end when the test says
// so.
#include <gtest/gtest.h>

#include "transport/far_fixture.hpp"
#include "transport/landings.hpp"
#include "transport/ud/grh.hpp"

namespace feroce::transport {
namespace {

using far_test::FarEnd;
using far_test::kBase;

class UnreliableFar : public testing::Test {
protected:
    explicit UnreliableFar(QpType type) : a(type, Qpn{0x01'0011}), b(type, Qpn{0x02'0022}) {}
    void deliver(const std::vector<SentPacket>& packets, std::size_t skip = SIZE_MAX) {
        for (std::size_t i = 0; i < packets.size(); ++i)
            if (i != skip) b.receive(packets[i]);
        look();
    }
    void exchange() { deliver(a.pump()); }
    // What is over is seen to.
    void look() {
        b.pump();
        EXPECT_TRUE(b.release());
        EXPECT_EQ(a.qp.machine().check_invariants(), nullptr);
        EXPECT_EQ(b.qp.machine().check_invariants(), nullptr);
    }
    void finish_one(bool good = true) {
        b.far->finish_one(good);
        look();
    }
    SendWr request(SendOp op, std::uint64_t wr_id = 1, std::uint64_t offset = 0) const {
        SendWr wr;
        wr.wr_id = wr_id;
        wr.op = op;
        wr.signaled = true;
        wr.remote_address = kBase + offset;
        wr.rkey = b.far_keys.rkey;
        wr.path = {.source = Gid::from_v4(0x0a00'0001), .destination = Gid::from_v4(0x0a00'0002)};
        wr.destination_qpn = b.qp.qpn();
        wr.qkey = FarEnd::kQkey;
        return wr;
    }
    void expect_far(std::size_t at, ByteView bytes) const {
        const ByteView far = ByteView(b.far->bytes).subspan(at, bytes.size());
        EXPECT_TRUE(std::equal(far.begin(), far.end(), bytes.begin()));
    }
    ByteView sent(std::size_t offset, std::size_t size) const {
        return ByteView(a.bytes).subspan(offset, size);
    }
    std::string words_of(const FarEnd& end) const {
        const Reason* const reason = end.reasons.find(end.qp.first_reason());
        return reason == nullptr ? "" : describe(*reason);
    }

    FarEnd a, b;
};

class UcFar : public UnreliableFar {
protected:
    UcFar() : UnreliableFar(QpType::Uc) {}
};

class UdFar : public UnreliableFar {
protected:
    UdFar() : UnreliableFar(QpType::Ud) {}
};

TEST_F(UcFar, ASendLeavesWhenItsBytesAreThere) {
    a.fill_far(5);
    b.post_receive(7, b.sge(0, 4000));
    a.send(request(SendOp::Send, 1), a.far_sge(0, 3000));
    a.send(request(SendOp::Send, 2), a.sge(0, 8));
    EXPECT_TRUE(a.pump().empty()) << "the second waits its turn";
    ASSERT_EQ(a.far->started.size(), 1u);
    a.far->finish_one();
    exchange();
    ASSERT_EQ(a.sent.list.size(), 2u);
    ASSERT_EQ(b.received.list.size(), 1u);
    EXPECT_TRUE(std::equal(b.bytes.begin(), b.bytes.begin() + 3000, a.far->bytes.begin()));
}

TEST_F(UcFar, AReceiveCompletesWhenItIsInMemoryAndThoseBehindItToo) {
    a.fill(0, 5000, 3);
    b.post_receive(7, b.far_sge(100, 4000));
    b.post_receive(8, b.sge(0, 1000));
    a.send(request(SendOp::Send, 1), a.sge(0, 3000));
    a.send(request(SendOp::SendImmediate, 2), a.sge(3000, 500));
    exchange();
    EXPECT_TRUE(b.received.list.empty());
    EXPECT_EQ(b.bytes[0], std::byte{0}) << "host memory is not written before";
    ASSERT_EQ(b.far->started.size(), 1u);
    finish_one();
    ASSERT_EQ(b.received.list.size(), 2u);
    EXPECT_EQ(b.received.list[0].wr_id, 7u);
    EXPECT_EQ(b.received.list[0].byte_length, 3000u);
    EXPECT_EQ(b.received.list[1].byte_length, 500u);
    EXPECT_TRUE(b.received.list[1].has_immediate);
    expect_far(100, sent(0, 3000));
    EXPECT_TRUE(std::equal(b.bytes.begin(), b.bytes.begin() + 500, a.bytes.begin() + 3000));
    EXPECT_EQ(b.counters[Counter::RdmaReceives], 2u);
}

TEST_F(UcFar, ListsMixHostAndFarMemory) {
    a.fill(0, 4000, 9);
    const mem::Sge to[] = {b.sge(0, 1500), b.far_sge(50, 1000), b.sge(2000, 1500)};
    ASSERT_TRUE(b.qp.post_receive(Instant{}, {1, to}));
    a.send(request(SendOp::Send), a.sge(0, 4000));
    exchange();
    EXPECT_TRUE(b.received.list.empty());
    while (!b.far->started.empty()) finish_one();
    ASSERT_EQ(b.received.list.size(), 1u);
    EXPECT_TRUE(std::equal(b.bytes.begin(), b.bytes.begin() + 1500, a.bytes.begin()));
    expect_far(50, sent(1500, 1000));
    EXPECT_TRUE(std::equal(b.bytes.begin() + 2000, b.bytes.begin() + 3500, a.bytes.begin() + 2500));
}

TEST_F(UcFar, WritesOfSeveralPiecesArrive) {
    a.fill_far(11);
    b.post_receive(3, b.sge(0, 0));
    a.send(request(SendOp::WriteImmediate), a.far_sge(0, FarEnd::kFarBytes));
    EXPECT_TRUE(a.pump().empty());
    EXPECT_EQ(a.far->started.size(), 3u);
    while (!a.far->started.empty()) a.far->finish_one();
    exchange();
    EXPECT_EQ(b.far->started.size(), 3u);
    EXPECT_TRUE(b.received.list.empty());
    while (!b.far->started.empty()) finish_one();
    ASSERT_EQ(b.received.list.size(), 1u);
    EXPECT_EQ(b.received.list[0].opcode, WcOpcode::ReceiveWriteImmediate);
    expect_far(0, a.far->bytes);
}

TEST_F(UcFar, OnlyWritesToTheSameBytesWaitForEachOther) {
    a.fill(0, 4000, 1);
    a.send(request(SendOp::Write, 1, 0), a.sge(0, 1000));
    a.send(request(SendOp::Write, 2, 500), a.sge(1000, 1000));
    a.send(request(SendOp::Write, 3, 5000), a.sge(2000, 1000));
    exchange();
    EXPECT_EQ(b.far->started.size(), 2u) << "the second waits";
    finish_one();
    EXPECT_EQ(b.far->started.size(), 2u);
    while (!b.far->started.empty()) finish_one();
    expect_far(0, sent(0, 500));
    expect_far(500, sent(1000, 1000));
    expect_far(5000, sent(2000, 1000));
}

// The receive is filled again by the next message, whose copy must not be overtaken.
TEST_F(UcFar, ABrokenMessageLeavesItsReceiveToTheNext) {
    a.fill_far(1);
    b.post_receive(7, b.far_sge(0, FarEnd::kFarBytes));
    a.send(request(SendOp::Send, 1), a.far_sge(0, 500'000));
    a.pump();
    while (!a.far->started.empty()) a.far->finish_one();
    const auto packets = a.pump();
    deliver(packets, packets.size() - 1);
    EXPECT_EQ(b.far->started.size(), 1u) << "the first piece is on its way";
    a.fill(0, 2000, 77);
    a.send(request(SendOp::Send, 2), a.sge(0, 2000));
    exchange();
    EXPECT_EQ(b.far->started.size(), 1u) << "it goes where that piece goes";
    EXPECT_EQ(b.drops(DropReason::UcGap), 1u);
    finish_one();
    finish_one();
    ASSERT_EQ(b.received.list.size(), 1u);
    EXPECT_EQ(b.received.list[0].byte_length, 2000u);
    expect_far(0, sent(0, 2000));
}

TEST_F(UcFar, AReceiveWhoseCopyFailsIsAnErrorAndThoseBehindItAreFlushed) {
    b.post_receive(4, b.far_sge(0, 4096));
    b.post_receive(5, b.far_sge(4096, 4096));
    b.post_receive(6, b.sge(0, 100));
    for (std::uint64_t i = 0; i < 2; ++i) a.send(request(SendOp::Send, i), a.sge(0, 100));
    exchange();
    EXPECT_EQ(b.far->started.size(), 2u) << "receives are different buffers";
    finish_one(false);
    EXPECT_EQ(b.qp.state(), QpState::Err);
    EXPECT_TRUE(b.received.list.empty()) << "bytes are still on their way into the second";
    b.far->finish_one();
    EXPECT_TRUE(b.release());
    ASSERT_EQ(b.received.list.size(), 3u);
    EXPECT_EQ(b.received.list[0].wr_id, 4u);
    EXPECT_EQ(b.received.list[0].status, WcStatus::LocalProtectionError);
    EXPECT_EQ(b.received.list[1].wr_id, 5u);
    EXPECT_EQ(b.received.list[1].status, WcStatus::FlushError);
    EXPECT_EQ(b.received.list[2].wr_id, 6u);
    EXPECT_FALSE(words_of(b).empty());
}

// Its first piece has failed and is gone when the last packet comes, which is for host memory.
TEST_F(UcFar, AFailureIsNotForgottenBeforeTheMessageEnds) {
    constexpr std::uint32_t kPiece = mem::FarMemory::kPieceBytes;
    const mem::Sge to[] = {b.far_sge(0, kPiece), b.sge(0, 1024)};
    ASSERT_TRUE(b.qp.post_receive(Instant{}, {1, to}));
    a.send(request(SendOp::Send), a.far_sge(0, kPiece + 1024));
    a.pump();
    while (!a.far->started.empty()) a.far->finish_one();
    const auto packets = a.pump();
    deliver(packets, packets.size() - 1);
    ASSERT_EQ(b.far->started.size(), 1u);
    finish_one(false);
    EXPECT_TRUE(b.received.list.empty());
    b.receive(packets.back());
    look();
    ASSERT_EQ(b.received.list.size(), 1u);
    EXPECT_EQ(b.received.list[0].status, WcStatus::LocalProtectionError);
    EXPECT_EQ(b.bytes[0], std::byte{0});
}

TEST_F(UcFar, AWriteWhoseCopyFailsIsDropped) {
    a.send(request(SendOp::Write), a.sge(0, 100));
    exchange();
    finish_one(false);
    EXPECT_EQ(b.drops(DropReason::UcAccess), 1u);
    EXPECT_EQ(b.qp.state(), QpState::Rts);
    b.post_receive(1, b.far_sge(0, 100));
    a.send(request(SendOp::Send), a.sge(0, 100));
    exchange();
    finish_one();
    EXPECT_EQ(b.received.list.size(), 1u);
}

TEST_F(UcFar, ASendWhoseCopyFailsIsAnError) {
    a.send(request(SendOp::Send, 1), a.far_sge(0, 100));
    a.send(request(SendOp::Send, 2), a.sge(0, 100));
    EXPECT_TRUE(a.pump().empty());
    a.far->finish_one(false);
    EXPECT_TRUE(a.pump().empty());
    ASSERT_EQ(a.sent.list.size(), 2u);
    EXPECT_EQ(a.sent.list[0].status, WcStatus::LocalProtectionError);
    EXPECT_EQ(a.sent.list[1].status, WcStatus::FlushError);
    EXPECT_EQ(a.qp.state(), QpState::Sqe);
}

TEST_F(UcFar, AnInvalidationWaitsForWhatIsWrittenThroughTheKey) {
    const RKey key = b.bind_window();
    SendWr write = request(SendOp::Write);
    write.rkey = key;
    a.send(write, a.sge(0, 100));
    exchange();
    SendWr wr = request(SendOp::LocalInvalidate, 2);
    wr.invalidate = key;
    ASSERT_TRUE(b.qp.post_send(Instant{}, wr));
    look();
    EXPECT_TRUE(b.sent.list.empty());
    finish_one();
    ASSERT_EQ(b.sent.list.size(), 1u);
    EXPECT_EQ(b.sent.list[0].status, WcStatus::Success);
}

// It waited for an earlier WRITE to the same bytes.
TEST_F(UcFar, AnImmediateWhoseKeyGoesMeanwhileIsAnError) {
    const RKey key = b.bind_window();
    b.post_receive(4, b.sge(0, 100));
    a.send(request(SendOp::Write), a.sge(0, 100));
    SendWr write = request(SendOp::WriteImmediate, 2);
    write.rkey = key;
    a.send(write, a.sge(0, 100));
    exchange();
    ASSERT_EQ(b.far->started.size(), 1u);
    ASSERT_EQ(b.memory.invalidate_local(b.pd, b.qp.qpn(), key), mem::Fault::None);
    finish_one();
    EXPECT_EQ(b.copies.size(), 0u);
    ASSERT_EQ(b.received.list.size(), 1u);
    EXPECT_EQ(b.received.list[0].status, WcStatus::LocalAccessError);
    EXPECT_EQ(b.qp.state(), QpState::Err);
    EXPECT_NE(words_of(b).find("key"), std::string::npos) << words_of(b);
}

// It waited for a WRITE, since nobody knows where that one goes.
TEST_F(UcFar, AReceiveWhoseKeyGoesMeanwhileIsAnErrorThatNamesIt) {
    const LKey key = b.other_keys().lkey;
    b.post_receive(4, {kBase + 200, 100, key});
    a.send(request(SendOp::Write), a.sge(0, 100));
    a.send(request(SendOp::Send, 2), a.sge(0, 100));
    exchange();
    ASSERT_EQ(b.far->started.size(), 1u);
    ASSERT_TRUE(b.memory.deregister_region(key));
    finish_one();
    ASSERT_EQ(b.received.list.size(), 1u);
    EXPECT_EQ(b.received.list[0].status, WcStatus::LocalProtectionError);
    const Reason* const reason = b.reasons.find(b.qp.first_reason());
    ASSERT_NE(reason, nullptr);
    EXPECT_EQ(reason->attempt.key, key.raw);
}

TEST_F(UcFar, WithoutMemoryForItsCopyASendFails) {
    a.far->room = 0;
    a.send(request(SendOp::Send), a.far_sge(0, 100));
    EXPECT_TRUE(a.pump().empty());
    ASSERT_EQ(a.sent.list.size(), 1u);
    EXPECT_EQ(a.sent.list[0].status, WcStatus::LocalProtectionError);
    EXPECT_EQ(a.qp.state(), QpState::Sqe);
}

TEST_F(UcFar, MessagesThatFindNoRoomAreLost) {
    a.fill(0, 1024, 1);
    for (int i = 0; i < 2000; ++i) {
        a.send(request(SendOp::Write, 1, 0), a.sge(0, 1024));
        exchange();
        a.sent.list.clear();
    }
    EXPECT_GT(b.drops(DropReason::CopiesBehind), 0u);
    EXPECT_EQ(b.far->started.size(), 1u);
    for (std::size_t i = 0; i < Landings::kPiecesMax; ++i) finish_one();
    EXPECT_TRUE(b.far->started.empty());
    EXPECT_EQ(b.copies.size(), 0u);
}

TEST_F(UcFar, AResetForgetsWhatHasNotLanded) {
    b.post_receive(4, b.far_sge(0, 4096));
    a.send(request(SendOp::Send), a.sge(0, 100));
    exchange();
    b.move(QpState::Reset);
    b.far->finish_one();
    look();
    EXPECT_TRUE(b.received.list.empty());
}

TEST_F(UdFar, DatagramsComeAndGo) {
    a.fill_far(31);
    b.post_receive(7, b.far_sge(0, 600));
    b.post_receive(8, b.sge(0, 600));
    b.post_receive(9, b.far_sge(1000, 600));
    for (std::uint64_t i = 0; i < 3; ++i) a.send(request(SendOp::Send, i), a.far_sge(i * 500, 500));
    EXPECT_TRUE(a.pump().empty());
    EXPECT_EQ(a.far->started.size(), 3u) << "gathered ahead";
    while (!a.far->started.empty()) a.far->finish_one();
    exchange();
    EXPECT_EQ(a.sent.list.size(), 3u);
    EXPECT_EQ(b.far->started.size(), 2u);
    std::swap(b.far->started[0], b.far->started[1]);
    finish_one();
    EXPECT_TRUE(b.received.list.empty()) << "the third overtook the first";
    finish_one();
    ASSERT_EQ(b.received.list.size(), 3u);
    for (std::uint64_t i = 0; i < 3; ++i) {
        EXPECT_EQ(b.received.list[i].wr_id, 7 + i);
        EXPECT_EQ(b.received.list[i].byte_length, 540u);
        EXPECT_TRUE(b.received.list[i].has_grh);
    }
    const ByteView from(a.far->bytes);
    expect_far(kGrhBytes, from.first(500));
    EXPECT_TRUE(std::equal(b.bytes.begin() + kGrhBytes, b.bytes.begin() + kGrhBytes + 500,
                           from.begin() + 500));
    expect_far(1000 + kGrhBytes, from.subspan(1000, 500));
}

TEST_F(UdFar, TheHeaderMayBeInHostMemory) {
    a.fill(0, 500, 31);
    const mem::Sge to[] = {b.sge(0, kGrhBytes), b.far_sge(10, 600)};
    ASSERT_TRUE(b.qp.post_receive(Instant{}, {1, to}));
    a.send(request(SendOp::Send), a.sge(0, 500));
    exchange();
    finish_one();
    ASSERT_EQ(b.received.list.size(), 1u);
    expect_far(10, sent(0, 500));
    EXPECT_EQ(byte_at(ByteView(b.bytes), 20), 0x45u);
}

TEST_F(UdFar, AFailedQueuePairIsSilentUntilItsBuffersAreItsOwn) {
    b.post_receive(4, b.far_sge(0, 600));
    b.post_receive(5, b.sge(0, 600));
    a.send(request(SendOp::Send), a.sge(0, 100));
    exchange();
    b.fail();
    EXPECT_TRUE(b.release());
    EXPECT_TRUE(b.received.list.empty());
    b.far->finish_one();
    EXPECT_TRUE(b.release());
    ASSERT_EQ(b.received.list.size(), 2u);
    EXPECT_EQ(b.received.list[0].wr_id, 4u);
    EXPECT_EQ(b.received.list[0].status, WcStatus::FlushError);
}

TEST_F(UdFar, FailingSendsDoNotWaitForReceives) {
    b.post_receive(4, b.far_sge(0, 600));
    a.send(request(SendOp::Send), a.sge(0, 100));
    exchange();
    b.send(request(SendOp::Send, 9), {kBase, 8, LKey{0xdead}});
    look();
    ASSERT_EQ(b.sent.list.size(), 1u);
    EXPECT_EQ(b.sent.list[0].status, WcStatus::LocalProtectionError);
    EXPECT_EQ(b.qp.state(), QpState::Sqe);
    finish_one();
    EXPECT_EQ(b.received.list.size(), 1u);
}

TEST_F(UdFar, WithoutMemoryForACopyTheReceiveFails) {
    b.far->room = 0;
    b.post_receive(4, b.far_sge(0, 600));
    a.send(request(SendOp::Send), a.sge(0, 100));
    exchange();
    EXPECT_EQ(b.copies.size(), 0u);
    ASSERT_EQ(b.received.list.size(), 1u);
    EXPECT_EQ(b.received.list[0].status, WcStatus::LocalProtectionError);
}

TEST_F(UdFar, WithoutMemoryForStagingADatagramIsLostAndItsReceiveIsNot) {
    b.far->is_short = true;
    b.post_receive(4, b.far_sge(0, 600));
    a.send(request(SendOp::Send, 1), a.sge(0, 100));
    exchange();
    EXPECT_EQ(b.drops(DropReason::CopiesBehind), 1u);
    EXPECT_TRUE(b.received.list.empty());
    b.far->is_short = false;
    a.send(request(SendOp::Send, 2), a.sge(0, 50));
    exchange();
    finish_one();
    ASSERT_EQ(b.received.list.size(), 1u);
    EXPECT_EQ(b.received.list[0].wr_id, 4u);
    EXPECT_EQ(b.received.list[0].byte_length, 90u);
}

TEST_F(UdFar, WithoutCopiesItIsRefused) {
    a.services.copies = nullptr;
    a.send(request(SendOp::Send), a.far_sge(0, 100));
    EXPECT_TRUE(a.pump().empty());
    ASSERT_EQ(a.sent.list.size(), 1u);
    EXPECT_EQ(a.sent.list[0].status, WcStatus::LocalProtectionError);
    EXPECT_NE(words_of(a).find("GPU"), std::string::npos) << words_of(a);
}

}  // namespace
}  // namespace feroce::transport
