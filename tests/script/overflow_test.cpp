// A completion queue that is full: a queue pair that cannot report what it did goes to ERR.
#include <algorithm>

#include "scripted_peer.hpp"

namespace feroce::script::overflow_test {
namespace {

using transport::AsyncEventType;
using transport::Rule;

class Overflow : public ::testing::Test {
protected:
    Overflow() { EXPECT_TRUE(peer.cq.resize(1)); }

    void expect_ended() {
        EXPECT_EQ(peer.qp->state(), QpState::Err);
        const transport::Reason* reason = peer.engine.reasons().find(peer.qp->first_reason());
        ASSERT_NE(reason, nullptr);
        EXPECT_EQ(reason->rule, Rule::CompletionOverflow);
        const auto& events = peer.events.events;
        EXPECT_EQ(std::count(events.begin(), events.end(), AsyncEventType::QpFatal), 1);
        EXPECT_FALSE(peer.qp->lost_completion());
    }

    ScriptedPeer peer;
};

TEST_F(Overflow, OfSends) {
    for (std::uint64_t i = 1; i <= 3; ++i) peer.post(SendOp::Write, 8, i);
    peer.peer_acks(kSendPsn + 2);
    expect_ended();
    peer.expect_completion(1, WcStatus::Success);
    peer.expect_no_completion();
}

TEST_F(Overflow, OfReceives) {
    for (std::uint64_t i = 1; i <= 2; ++i) peer.post_receive(8, i);
    // Both wait for their acknowledgement, then become visible together.
    peer.peer_delivers(Opcode::RcSendOnly, kReceivePsn, {.payload_size = 8});
    peer.peer_delivers(Opcode::RcSendOnly, kReceivePsn + 1, {.payload_size = 8});
    peer.run();
    expect_ended();
    peer.expect_ack(kReceivePsn + 1);
    peer.expect_completion(1, WcStatus::Success);
    peer.expect_no_completion();
}

TEST_F(Overflow, OfWhatIsFlushedAtOnceEndsNothingAgain) {
    ASSERT_TRUE(peer.modify(QpState::Err));
    for (std::uint64_t i = 1; i <= 3; ++i) peer.post(SendOp::Write, 8, i);
    EXPECT_EQ(peer.qp->state(), QpState::Err);
    EXPECT_TRUE(peer.events.events.empty());
    EXPECT_FALSE(peer.qp->lost_completion());
    peer.expect_completion(1, WcStatus::FlushError);
    peer.expect_no_completion();
}

TEST_F(Overflow, IsNoticedByWhoLooks) {
    for (std::uint64_t i = 1; i <= 2; ++i) peer.post(SendOp::Write, 8, i);
    peer.peer_acks(kSendPsn + 1);
    peer.engine.observe(*peer.qp);
    const auto& notices = peer.engine.reasons().notices.all();
    const auto is_lost = [&](const transport::Notice& notice) {
        return notice.kind == transport::NoticeKind::CompletionsLost && notice.wanted == 1 &&
               notice.qpn == peer.qp->qpn();
    };
    EXPECT_TRUE(std::any_of(notices.begin(), notices.end(), is_lost));
}

}  // namespace
}  // namespace feroce::script::overflow_test
