// Memory windows: bound and invalidated by the send queue, used and invalidated by the peer.
#include <utility>

#include "scripted_peer.hpp"

namespace feroce::script::local_work_test {
namespace {

using transport::Rule;
using transport::WcOpcode;

constexpr std::uint32_t kWindowBytes = 256;

class LocalWork : public ::testing::TestWithParam<QpType> {
protected:
    LocalWork() {
        mem::RegionSpec spec;
        spec.pd = peer.pd;
        spec.address = peer.memory.data();
        spec.length = peer.memory.size();
        spec.iova = peer.address();
        spec.access = mem::Access::LocalWrite | mem::Access::MwBind;
        ground = peer.table.register_region(spec)->lkey;
        window = *peer.table.allocate_window(peer.pd, mem::WindowType::Type2);
        key = mem::Memory::bound_key(window, RKey{window.raw + 1});
    }
    SendWr bind(std::uint64_t wr_id) const {
        SendWr wr;
        wr.wr_id = wr_id;
        wr.op = SendOp::BindWindow;
        wr.signaled = true;
        wr.bind.window = window;
        wr.bind.region = ground;
        wr.bind.address = peer.address();
        wr.bind.length = kWindowBytes;
        wr.bind.access = mem::Access::RemoteWrite;
        wr.bind.new_rkey = key;
        return wr;
    }
    SendWr invalidate(std::uint64_t wr_id) const {
        SendWr wr;
        wr.wr_id = wr_id;
        wr.op = SendOp::LocalInvalidate;
        wr.signaled = true;
        wr.invalidate = key;
        return wr;
    }
    void post(const SendWr& wr) {
        ASSERT_TRUE(peer.engine.post_send(peer.now, *peer.qp, wr));
        peer.run();
    }
    void expect_done(std::uint64_t wr_id, WcOpcode opcode) {
        const std::optional<Completion> completion = peer.poll();
        ASSERT_TRUE(completion.has_value());
        EXPECT_EQ(completion->wr_id, wr_id);
        EXPECT_EQ(static_cast<int>(completion->status), static_cast<int>(WcStatus::Success));
        EXPECT_EQ(static_cast<int>(completion->opcode), static_cast<int>(opcode));
    }
    mem::Fault use_window() const {
        return peer.table
            .remote(peer.pd, peer.qp->qpn(), key, peer.address(), 8, mem::Access::RemoteWrite)
            .fault;
    }

    ScriptedPeer peer{{.type = GetParam()}};
    LKey ground;
    RKey window;
    RKey key;
};

TEST_P(LocalWork, AWindowOpensWithItsBindAndClosesWithItsInvalidation) {
    EXPECT_EQ(use_window(), mem::Fault::NoSuchKey);
    post(bind(1));
    expect_done(1, WcOpcode::BindWindow);
    EXPECT_EQ(use_window(), mem::Fault::None);
    post(invalidate(2));
    expect_done(2, WcOpcode::LocalInvalidate);
    EXPECT_EQ(use_window(), mem::Fault::NoSuchKey);
    peer.expect_silence();
    EXPECT_EQ(static_cast<int>(peer.qp->state()), static_cast<int>(QpState::Rts));
}

TEST_P(LocalWork, ABindThatIsRefusedFailsAndNamesTheRule) {
    SendWr wr = bind(1);
    wr.bind.length = ScriptedPeer::kMemoryBytes + 1;
    post(wr);
    const std::optional<Completion> completion = peer.poll();
    ASSERT_TRUE(completion.has_value());
    EXPECT_EQ(static_cast<int>(completion->status), static_cast<int>(WcStatus::WindowBindError));
    const transport::Reason* reason = peer.engine.reasons().find(completion->reason);
    ASSERT_NE(reason, nullptr);
    EXPECT_EQ(static_cast<int>(reason->rule), static_cast<int>(Rule::BindRefused));
    EXPECT_EQ(use_window(), mem::Fault::NoSuchKey);
    const QpState after = GetParam() == QpType::Rc ? QpState::Err : QpState::Sqe;
    EXPECT_EQ(static_cast<int>(peer.qp->state()), static_cast<int>(after));
}

INSTANTIATE_TEST_SUITE_P(Types, LocalWork, ::testing::Values(QpType::Rc, QpType::Uc),
                         [](const auto& type) { return type.param == QpType::Rc ? "Rc" : "Uc"; });

class UcLocalWork : public LocalWork {};

// What went wrong is over then, and says nothing about the next failure.
TEST_P(UcLocalWork, GoesOnAfterARefusedBindWhenItIsToldTo) {
    SendWr wr = bind(1);
    wr.bind.length = ScriptedPeer::kMemoryBytes + 1;
    post(wr);
    peer.expect_completion(1, WcStatus::WindowBindError);
    EXPECT_NE(peer.qp->first_reason(), 0U);
    post(bind(2));
    peer.expect_completion(2, WcStatus::FlushError);
    ASSERT_TRUE(peer.modify(QpState::Rts));
    EXPECT_EQ(peer.qp->first_reason(), 0U);
    post(bind(3));
    expect_done(3, WcOpcode::BindWindow);
    EXPECT_EQ(use_window(), mem::Fault::None);
}

INSTANTIATE_TEST_SUITE_P(Types, UcLocalWork, ::testing::Values(QpType::Uc),
                         [](const auto&) { return "Uc"; });

class RcLocalWork : public LocalWork {};

// The peer may be using the old key until then.
TEST_P(RcLocalWork, WaitsUntilAllBeforeItIsAcknowledged) {
    post(bind(1));
    expect_done(1, WcOpcode::BindWindow);
    peer.post(SendOp::Write, 8, 2);
    post(invalidate(3));
    peer.post(SendOp::Write, 8, 4);
    peer.expect_sent(Opcode::RcWriteOnly, kSendPsn);
    peer.expect_silence();
    EXPECT_EQ(use_window(), mem::Fault::None);
    peer.peer_acks(kSendPsn);
    peer.expect_completion(2, WcStatus::Success);
    expect_done(3, WcOpcode::LocalInvalidate);
    EXPECT_EQ(use_window(), mem::Fault::NoSuchKey);
    peer.expect_sent(Opcode::RcWriteOnly, kSendPsn + 1);
}

TEST_P(RcLocalWork, TheMessageOfAPeerThatInvalidatesAWindowNamesItsKey) {
    post(bind(1));
    expect_done(1, WcOpcode::BindWindow);
    peer.post_receive(64, 2);
    ScriptedPeer::Spec spec{.payload_size = 8};
    spec.extensions.invalidate = key;
    peer.peer_sends(Opcode::RcSendOnlyInvalidate, kReceivePsn, spec);
    peer.expect_ack(kReceivePsn);
    const std::optional<Completion> completion = peer.poll();
    ASSERT_TRUE(completion.has_value());
    EXPECT_EQ(completion->wr_id, 2U);
    EXPECT_TRUE(completion->has_invalidate);
    EXPECT_FALSE(completion->has_immediate);
    EXPECT_EQ(completion->immediate, key.raw);
    EXPECT_EQ(use_window(), mem::Fault::NoSuchKey);
}

// Its number may be another's soon.
TEST_P(RcLocalWork, AQueuePairTakesItsWindowsWithIt) {
    post(bind(1));
    const Qpn qpn = peer.qp->qpn();
    peer.engine.destroy_qp(*std::exchange(peer.qp, nullptr));
    EXPECT_EQ(
        peer.table.remote(peer.pd, qpn, key, peer.address(), 8, mem::Access::RemoteWrite).fault,
        mem::Fault::NoSuchKey);
}

INSTANTIATE_TEST_SUITE_P(Types, RcLocalWork, ::testing::Values(QpType::Rc),
                         [](const auto&) { return "Rc"; });

}  // namespace
}  // namespace feroce::script::local_work_test
