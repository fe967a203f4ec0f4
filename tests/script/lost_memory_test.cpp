// Memory that was there when it was registered, and is not when a request of the peer needs it: the
// peer is refused, and nobody gets a signal.
#include "mem/test_pages.hpp"
#include "scripted_peer.hpp"

namespace feroce::script::lost_memory_test {
namespace {

using transport::Rule;
using wire::NakCode;

class LostMemory : public ::testing::Test {
protected:
    LostMemory() {
        mem::RegionSpec spec;
        spec.pd = peer.pd;
        spec.address = pages.at(0);
        spec.length = pages.bytes();
        spec.iova = address();
        spec.access = mem::AccessSet(15);
        keys = *peer.table.register_region(spec);
    }

    std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(pages.at(0)); }
    ScriptedPeer::Spec by_reth(std::uint32_t length, std::size_t payload, std::size_t offset = 0) {
        ScriptedPeer::Spec spec{.payload_size = payload};
        spec.extensions.reth = {address() + offset, keys.rkey, length};
        return spec;
    }
    void expect_refused(NakCode code, Rule rule) {
        peer.expect_nak(kReceivePsn, code);
        peer.expect_silence();
        EXPECT_EQ(peer.qp->state(), QpState::Err);
        const transport::Reason* reason = peer.engine.reasons().find(peer.qp->first_reason());
        ASSERT_NE(reason, nullptr);
        EXPECT_STREQ(transport::text(reason->rule), transport::text(rule));
        EXPECT_TRUE(reason->at_responder);
    }
    void expect_gone() {
        expect_refused(NakCode::RemoteOperational, Rule::RemoteMemoryGone);
        const transport::Reason* reason = peer.engine.reasons().find(peer.qp->first_reason());
        ASSERT_NE(reason, nullptr);
        EXPECT_EQ(reason->region.key, keys.rkey.raw);
    }
    void expect_gone_for_atomic(Opcode opcode) {
        pages.unmap(0, 1);
        ScriptedPeer::Spec spec;
        spec.extensions.atomic = {address(), keys.rkey, 1, 0};
        peer.peer_sends(opcode, kReceivePsn, spec);
        expect_gone();
    }

    ScriptedPeer peer;
    mem::test::Pages pages{1};
    mem::RegionKeys keys;
};

TEST_F(LostMemory, OfAWrite) {
    pages.unmap(0, 1);
    peer.peer_sends(Opcode::RcWriteOnly, kReceivePsn, by_reth(8, 8));
    expect_gone();
}

TEST_F(LostMemory, OfARead) {
    pages.unmap(0, 1);
    peer.peer_sends(Opcode::RcReadRequest, kReceivePsn, by_reth(8, 0));
    expect_gone();
}

TEST_F(LostMemory, OfAnAtomicWrite) {
    pages.unmap(0, 1);
    peer.peer_sends(Opcode::RcAtomicWrite, kReceivePsn, by_reth(8, 8));
    expect_gone();
}

TEST_F(LostMemory, OfAFetchAndAdd) {
    expect_gone_for_atomic(Opcode::RcFetchAdd);
}

TEST_F(LostMemory, OfACompareAndSwap) {
    expect_gone_for_atomic(Opcode::RcCompareSwap);
}

// The request was good when it came. Its answer waits for its turn, and then is not.
TEST_F(LostMemory, ARegionThatGoesBeforeTheReadIsAnswered) {
    peer.peer_delivers(Opcode::RcReadRequest, kReceivePsn, by_reth(8, 0));
    ASSERT_TRUE(peer.table.deregister_region(keys.lkey));
    peer.run();
    expect_refused(NakCode::RemoteAccess, Rule::RemoteKey);
}

TEST_F(LostMemory, OfAReceive) {
    const mem::Sge sge{address(), 64, keys.lkey};
    ASSERT_TRUE(peer.engine.post_receive(peer.now, *peer.qp, {1, {&sge, 1}}));
    pages.unmap(0, 1);
    peer.peer_sends(Opcode::RcSendOnly, kReceivePsn, {.payload_size = 8});
    expect_refused(NakCode::RemoteOperational, Rule::LocalMemoryGone);
    peer.expect_completion(1, WcStatus::LocalProtectionError);
}

TEST_F(LostMemory, AReceiveThatNamesABadKey) {
    const mem::Sge sge{address(), 64, LKey{12345}};
    ASSERT_TRUE(peer.engine.post_receive(peer.now, *peer.qp, {1, {&sge, 1}}));
    peer.peer_sends(Opcode::RcSendOnly, kReceivePsn, {.payload_size = 8});
    expect_refused(NakCode::RemoteOperational, Rule::ReceiveKey);
    peer.expect_completion(1, WcStatus::LocalProtectionError);
}

TEST_F(LostMemory, AnAtomicWriteIsAWholeAlignedWord) {
    peer.peer_sends(Opcode::RcAtomicWrite, kReceivePsn, by_reth(8, 8, 4));
    expect_refused(NakCode::InvalidRequest, Rule::Misaligned);
    ScriptedPeer other;
    ScriptedPeer::Spec spec{.payload_size = 4};
    spec.extensions.reth = other.reth(8);
    other.peer_sends(Opcode::RcAtomicWrite, kReceivePsn, spec);
    other.expect_nak(kReceivePsn, NakCode::InvalidRequest);
}

TEST_F(LostMemory, NoRequestIsLongerThanAMessageMayBe) {
    for (const Opcode opcode : {Opcode::RcReadRequest, Opcode::RcWriteFirst}) {
        ScriptedPeer other;
        const std::size_t payload = opcode == Opcode::RcWriteFirst ? kMtu : 0;
        ScriptedPeer::Spec spec{.payload_size = payload};
        spec.extensions.reth = other.reth(0x8000'0001);
        other.peer_sends(opcode, kReceivePsn, spec);
        other.expect_nak(kReceivePsn, NakCode::InvalidRequest);
    }
}

}  // namespace
}  // namespace feroce::script::lost_memory_test
