// How requests with far memory end under a reliable connection when something is refused, a key
// goes or memory is wanting.
#include <gtest/gtest.h>

#include "transport/rc/far_rc_fixture.hpp"

namespace feroce::transport::rc {
namespace {

using far_test::FarEnd;
using far_test::kBase;

class FarEndings : public far_test::FarMemoryUnderRc {
protected:
    void read_host(std::uint64_t wr_id, std::span<const mem::Sge> to) {
        SendWr wr = request(SendOp::Read, wr_id, b.address(0), b.keys.rkey);
        wr.sges = to;
        ASSERT_TRUE(a.qp.post_send(Instant{}, wr));
    }
    // So many packets of the answer.
    void answer(std::uint32_t packets) {
        pass(a, b);
        for (const SentPacket& packet : b.pump(packets)) a.receive(packet);
    }
    void expect_sent(std::size_t place, std::uint64_t wr_id, WcStatus status) const {
        ASSERT_LT(place, a.sent.list.size());
        EXPECT_EQ(a.sent.list[place].wr_id, wr_id);
        EXPECT_EQ(a.sent.list[place].status, status);
    }
};

TEST_F(FarEndings, AReadIntoAMixedListLandsInPieces) {
    b.fill(0, 4000, 3);
    const mem::Sge to[] = {a.far_sge(0, 1024), a.sge(0, 1024), a.far_sge(5000, 1000),
                           a.sge(2000, 100)};
    read_host(1, to);
    exchange();
    EXPECT_EQ(a.far->started.size(), 2u) << "host memory came in between, and at the end";
    EXPECT_TRUE(a.sent.list.empty());
    a.far->finish_one();
    a.far->finish_one();
    exchange();
    expect_sent(0, 1, WcStatus::Success);
    expect_same(ByteView(a.far->bytes).first(1024), ByteView(b.bytes).first(1024));
    expect_same(ByteView(a.bytes).first(1024), ByteView(b.bytes).subspan(1024, 1024));
    expect_same(ByteView(a.far->bytes).subspan(5000, 1000), ByteView(b.bytes).subspan(2048, 1000));
    expect_same(ByteView(a.bytes).subspan(2000, 100), ByteView(b.bytes).subspan(3048, 100));
}

TEST_F(FarEndings, AReadThatIsRefusedHalfwayLandsNowhere) {
    const mem::Sge to[] = {a.far_sge(0, 3000)};
    read_host(1, to);
    answer(1);
    ASSERT_TRUE(b.memory.deregister_region(b.keys.lkey));
    exchange();
    expect_sent(0, 1, WcStatus::RemoteAccessError);
    EXPECT_TRUE(a.far->started.empty());
}

TEST_F(FarEndings, AFailureWaitsForTheAnswersBeforeIt) {
    const mem::Sge to[] = {a.far_sge(0, 8)};
    read_host(1, to);
    a.send(request(SendOp::Write, 2, b.address(0), RKey{}), a.sge(0, 8));
    exchange();
    EXPECT_TRUE(a.sent.list.empty()) << "the READ is answered, and on its way to memory";
    a.far->finish_one();
    exchange();
    expect_sent(0, 1, WcStatus::Success);
    expect_sent(1, 2, WcStatus::RemoteAccessError);
}

TEST_F(FarEndings, AReadWhoseKeyGoesHalfwayFails) {
    const LKey key = a.other_keys().lkey;
    const mem::Sge to[] = {{kBase, 1024, key}, a.sge(0, 1024), a.far_sge(5000, 1024)};
    read_host(1, to);
    answer(1);
    ASSERT_TRUE(a.memory.deregister_region(key));
    exchange();
    expect_sent(0, 1, WcStatus::LocalProtectionError);
    EXPECT_EQ(a.copies.size(), 0u);
}

TEST_F(FarEndings, AReceiveWhoseKeyGoesHalfwayFails) {
    const LKey key = b.other_keys().lkey;
    const mem::Sge to[] = {{kBase, 1024, key}, b.sge(0, 1024), b.far_sge(5000, 1024)};
    ASSERT_TRUE(b.qp.post_receive(Instant{}, {7, to}));
    a.send(request(SendOp::Send, 1), a.sge(0, 3000));
    const std::vector<SentPacket> packets = a.pump();
    ASSERT_EQ(packets.size(), 3u);
    b.receive(packets[0]);
    ASSERT_TRUE(b.memory.deregister_region(key));
    b.receive(packets[1]);
    b.receive(packets[2]);
    exchange();
    expect_sent(0, 1, WcStatus::RemoteOperationError);
    ASSERT_EQ(b.received.list.size(), 1u);
    EXPECT_EQ(b.received.list[0].status, WcStatus::LocalProtectionError);
    EXPECT_EQ(b.copies.size(), 0u);
}

TEST_F(FarEndings, AMixedSendWhoseHostPartIsUnmappedFails) {
    mem::test::Pages pages{1};
    const mem::Sge from[] = {a.far_sge(0, 100), a.sge_of(pages)};
    pages.unmap(0, 1);
    SendWr wr = request(SendOp::Write, 1, b.address(0), b.keys.rkey);
    wr.sges = from;
    ASSERT_TRUE(a.qp.post_send(Instant{}, wr));
    exchange();
    expect_sent(0, 1, WcStatus::LocalProtectionError);
    EXPECT_EQ(a.reasons.find(a.qp.first_reason())->rule, Rule::LocalMemoryGone);
}

TEST_F(FarEndings, AMixedReceiveWhoseHostPartIsUnmappedFails) {
    mem::test::Pages pages{1};
    const mem::Sge to[] = {b.far_sge(0, 100), b.sge_of(pages)};
    ASSERT_TRUE(b.qp.post_receive(Instant{}, {7, to}));
    a.send(request(SendOp::Send, 1), a.sge(0, 500));
    exchange();
    pages.unmap(0, 1);
    b.far->finish_one();
    exchange();
    expect_sent(0, 1, WcStatus::RemoteOperationError);
    EXPECT_EQ(b.reasons.find(b.qp.first_reason())->rule, Rule::LocalMemoryGone);
}

// Both were gathered ahead.
TEST_F(FarEndings, AReadBehindOneOfARegionThatBecameHostMemoryIsGatheredAgain) {
    b.fill_far(3);
    const RKey key = b.other_keys().rkey;
    a.send(request(SendOp::Read, 1, kBase, b.far_keys.rkey), a.sge(0, 100));
    a.send(request(SendOp::Read, 2, kBase + 50, key), a.sge(200, 100));
    pass(a, b);
    b.pump();
    ASSERT_EQ(b.far->started.size(), 2u);
    b.exchange_memory(false);
    while (!b.far->started.empty()) {
        b.far->finish_one();
        exchange();
    }
    expect_sent(0, 1, WcStatus::Success);
    expect_sent(1, 2, WcStatus::Success);
    expect_same(ByteView(a.bytes).first(100), ByteView(b.instead).first(100));
    expect_same(ByteView(a.bytes).subspan(200, 100), ByteView(b.far->bytes).subspan(50, 100));
}

TEST_F(FarEndings, AMixedReceiveWhoseHostPartGoesFails) {
    const LKey key = b.memory
                         .register_region({.pd = b.pd,
                                           .address = b.bytes.data(),
                                           .length = 1024,
                                           .iova = b.address(0),
                                           .access = mem::Access::LocalWrite})
                         ->lkey;
    const mem::Sge to[] = {b.far_sge(0, 100), {b.address(0), 1024, key}};
    ASSERT_TRUE(b.qp.post_receive(Instant{}, {7, to}));
    a.send(request(SendOp::Send, 1), a.sge(0, 500));
    exchange();
    ASSERT_EQ(b.far->started.size(), 1u);
    ASSERT_TRUE(b.memory.deregister_region(key));
    b.far->finish_one();
    exchange();
    expect_sent(0, 1, WcStatus::RemoteOperationError);
    ASSERT_EQ(b.received.list.size(), 1u);
    EXPECT_EQ(b.received.list[0].status, WcStatus::LocalProtectionError);
}

// All of them wait for the first, and the refusal for the answer.
TEST_F(FarEndings, WhatWasKeptBehindABadKeyIsForgotten) {
    a.fill(8, 8, 1);
    write_far(1, 0, 100);
    a.send(request(SendOp::Read, 2, b.address(100), b.keys.rkey), a.sge(16, 8));
    a.send(request(SendOp::Write, 3, b.address(0), RKey{}), a.sge(0, 8));
    a.send(request(SendOp::Write, 4, b.address(0), b.keys.rkey), a.sge(8, 8));
    exchange();
    b.far->finish_one();
    exchange();
    expect_sent(0, 1, WcStatus::Success);
    expect_sent(1, 2, WcStatus::Success);
    expect_sent(2, 3, WcStatus::RemoteAccessError);
    expect_sent(3, 4, WcStatus::FlushError);
    EXPECT_EQ(b.bytes[0], std::byte{0}) << "it came before the refusal, and is not executed";
}

TEST_F(FarEndings, WithoutMemoryForItsCopyASendFails) {
    a.far->room = 0;
    a.send(request(SendOp::Write, 1, b.address(0), b.keys.rkey), a.far_sge(0, 100));
    exchange();
    expect_sent(0, 1, WcStatus::LocalProtectionError);
    EXPECT_EQ(a.copies.size(), 0u);
}

TEST_F(FarEndings, WithoutMemoryForItsCopyAReadFails) {
    a.far->room = 0;
    const mem::Sge to[] = {a.far_sge(0, 100)};
    read_host(1, to);
    exchange();
    expect_sent(0, 1, WcStatus::LocalProtectionError);
    EXPECT_EQ(a.copies.size(), 0u);
}

// The copy begins with the last packet, which is for host memory.
TEST_F(FarEndings, WithoutMemoryForItsCopyAMixedReadFails) {
    a.far->room = 0;
    const mem::Sge to[] = {a.far_sge(0, 1024), a.sge(0, 100)};
    read_host(1, to);
    exchange();
    expect_sent(0, 1, WcStatus::LocalProtectionError);
    EXPECT_EQ(a.copies.size(), 0u);
}

TEST_F(FarEndings, WithoutMemoryForItsCopyAShortReceiveFails) {
    b.far->room = 0;
    b.post_receive(7, b.far_sge(0, 4096));
    a.send(request(SendOp::Send, 1), a.sge(0, 2000));
    exchange();
    expect_sent(0, 1, WcStatus::RemoteOperationError);
    ASSERT_EQ(b.received.list.size(), 1u);
    EXPECT_EQ(b.received.list[0].status, WcStatus::LocalProtectionError);
}

TEST_F(FarEndings, WithoutMemoryForStagingARequestFails) {
    b.far->is_short = true;
    a.send(request(SendOp::Read, 1, kBase, b.far_keys.rkey), a.sge(0, 100));
    exchange();
    expect_sent(0, 1, WcStatus::RemoteOperationError);
    EXPECT_EQ(b.copies.size(), 0u);
}

}  // namespace
}  // namespace feroce::transport::rc
