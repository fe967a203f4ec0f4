// Completions that wait for their acknowledgement have a bound, whatever the peer does.
#include "transport/held_completions.hpp"

#include <gtest/gtest.h>

#include <array>
#include <span>
#include <vector>

#include "transport/machine_fixture.hpp"

namespace feroce::transport::held_completions {
namespace {

constexpr std::size_t kOne = HeldCompletions::kPlacesOfOne;
constexpr std::size_t kAll = HeldCompletions::kPlaces;

class HeldCompletionsTest : public testing::Test {
protected:
    HeldCompletionsTest() {
        for (End* end : {&a, &b}) {
            end->change_attributes([](QpAttributes& attributes) {
                attributes.path_mtu = 256;
                attributes.send_psn = attributes.receive_psn = Psn(0xff'fffe);
                attributes.read_atomic_max = attributes.dest_read_atomic_max = 4;
                attributes.timeout = 14;
                attributes.retry_count = 7;
                attributes.access = mem::AccessSet(15);
            });
            end->qp.set_window(end == &a ? &window : &peers_window);
            end->run();
        }
    }
    // Completions of requests that are not acknowledged soon.
    void fill(QueuePair& qp, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i)
            b.held.hold(qp, PacketNumber::first(Psn(0)) + (1u << 30), b.received, {});
    }
    void post(SendOp op, std::uint32_t length) {
        SendWr wr;
        wr.op = op;
        wr.signaled = true;
        wr.remote_address = b.address(0);
        wr.rkey = b.keys.rkey;
        a.send(wr, a.sge(0, length));
    }

    SendWindow window;
    SendWindow peers_window;
    End a{QpType::Rc, Qpn{0x01'0011}};
    End b{QpType::Rc, Qpn{0x02'0022}};
    End c{QpType::Rc, Qpn{0x03'0033}}, d{QpType::Rc, Qpn{0x04'0044}};
    End e{QpType::Rc, Qpn{0x05'0055}}, f{QpType::Rc, Qpn{0x06'0066}};
};

TEST_F(HeldCompletionsTest, AMessageWithoutAPlaceIsLost) {
    fill(b.qp, kOne);
    b.post_receive(7, b.sge(0, 8));
    post(SendOp::Send, 8);
    const std::vector<SentPacket> sent = a.pump();
    ASSERT_EQ(sent.size(), 1u);
    b.receive(sent[0]);
    EXPECT_EQ(b.drops(DropReason::CompletionsHeld), 1u);
    EXPECT_EQ(b.qp.machine().check_invariants(), nullptr);
    EXPECT_TRUE(b.pump().empty());
    EXPECT_EQ(b.qp.receive_queue().available(), 1u);
    // The peer repeats it.
    b.held.drop(b.qp);
    b.receive(sent[0]);
    for (const SentPacket& answer : b.pump()) a.receive(answer);
    EXPECT_EQ(b.held.release(), nullptr);
    ASSERT_EQ(a.sent.list.size(), 1u);
    ASSERT_EQ(b.received.list.size(), 1u);
    EXPECT_EQ(b.received.list[0].wr_id, 7u);
}

TEST_F(HeldCompletionsTest, WhatIsNoReceiveNeedsNoPlace) {
    fill(b.qp, kOne);
    post(SendOp::Write, 8);
    for (const SentPacket& packet : a.pump()) b.receive(packet);
    for (const SentPacket& answer : b.pump()) a.receive(answer);
    EXPECT_EQ(a.sent.list.size(), 1u);
    EXPECT_EQ(b.drops(DropReason::CompletionsHeld), 0u);
}

// The responses that hold everything up end with the word that makes the peer repeat.
TEST_F(HeldCompletionsTest, AfterTheReadThePeerIsAskedForTheRest) {
    b.post_receive(7, b.sge(0, 8));
    fill(b.qp, kOne);
    post(SendOp::Read, 1000);
    post(SendOp::Send, 8);
    for (const SentPacket& packet : a.pump()) b.receive(packet);
    EXPECT_EQ(b.drops(DropReason::CompletionsHeld), 1u);
    const std::vector<SentPacket> answers = b.pump();
    ASSERT_FALSE(answers.empty());
    b.held.drop(b.qp);
    for (const SentPacket& answer : answers) a.receive(answer);
    for (const SentPacket& packet : a.pump()) b.receive(packet);
    for (const SentPacket& answer : b.pump()) a.receive(answer);
    EXPECT_EQ(b.held.release(), nullptr);
    ASSERT_EQ(a.sent.list.size(), 2u) << "without a timer";
    for (const Completion& sent : a.sent.list) EXPECT_EQ(sent.status, WcStatus::Success);
    EXPECT_EQ(b.received.list.size(), 1u);
}

TEST_F(HeldCompletionsTest, OneQueuePairDoesNotTakeThePlacesOfOthers) {
    fill(b.qp, kOne);
    EXPECT_TRUE(b.held.full_for(b.qp));
    EXPECT_FALSE(b.held.full_for(c.qp));
    for (End* end : {&c, &d, &e}) fill(end->qp, kOne);
    EXPECT_TRUE(b.held.full_for(f.qp));
    b.held.drop(d.qp);
    EXPECT_FALSE(b.held.full_for(f.qp));
    EXPECT_TRUE(b.held.full_for(c.qp));
}

class SmallSink final : public CompletionSink {
public:
    explicit SmallSink(std::size_t room) : room_(room) {}
    bool push(const Completion& completion) override {
        if (ids.size() == room_) return false;
        ids.push_back(completion.wr_id);
        return true;
    }
    std::size_t push_run(std::span<const Completion* const> run) override {
        ++runs;
        return CompletionSink::push_run(run);
    }
    std::vector<std::uint64_t> ids;
    int runs = 0;

private:
    const std::size_t room_;
};

Completion numbered(std::uint64_t id) {
    Completion completion;
    completion.wr_id = id;
    return completion;
}

TEST_F(HeldCompletionsTest, ThoseOfOneQueueLeaveTogetherAndTheOthersStay) {
    SmallSink first(100), second(100);
    const PacketNumber early = PacketNumber::first(Psn(0xff'fffe)) - 1;
    const PacketNumber late = early + (1u << 30);
    const std::array sinks{&first, &first, &second, &first, &first};
    for (std::uint64_t id = 0; id < sinks.size(); ++id)
        b.held.hold(b.qp, id == 3 ? late : early, *sinks[id], numbered(id));
    EXPECT_EQ(b.held.release(), nullptr);
    EXPECT_EQ(first.ids, (std::vector<std::uint64_t>{0, 1, 4}));
    EXPECT_EQ(first.runs, 2);
    EXPECT_EQ(second.ids, (std::vector<std::uint64_t>{2}));
    EXPECT_EQ(b.qp.completions_held(), 1u);
    EXPECT_FALSE(b.held.empty());
    b.held.drop(b.qp);
    EXPECT_TRUE(b.held.empty());
}

// The rest is tried again when its queue pair was seen to: it may be another's.
TEST_F(HeldCompletionsTest, ARunEndsAtTheOneThatIsLost) {
    SmallSink sink(2);
    const PacketNumber early = PacketNumber::first(Psn(0xff'fffe)) - 1;
    for (std::uint64_t id = 0; id < 4; ++id) b.held.hold(b.qp, early, sink, numbered(id));
    EXPECT_EQ(b.held.release(), &b.qp);
    EXPECT_TRUE(b.qp.lost_completion());
    EXPECT_EQ(sink.ids, (std::vector<std::uint64_t>{0, 1}));
    EXPECT_EQ(b.qp.completions_held(), 1u);
    EXPECT_EQ(b.held.release(), &b.qp);
    EXPECT_EQ(b.held.release(), nullptr);
    EXPECT_TRUE(b.held.empty());
    EXPECT_EQ(b.qp.completions_held(), 0u);
}

// A queue pair that fails flushes its receives; those that are held come before them.
TEST_F(HeldCompletionsTest, AFlushNeedsNoPlace) {
    static_assert(kAll == 4 * kOne);
    for (End* end : {&c, &d, &e}) fill(end->qp, kOne);
    fill(b.qp, kOne - 1);
    Completion last;
    last.wr_id = 12;
    b.held.hold(b.qp, PacketNumber::first(Psn(0)) + (1u << 30), b.received, last);
    for (std::uint64_t i = 0; i < 8; ++i) b.post_receive(100 + i, b.sge(0, 8));
    b.fail();
    EXPECT_EQ(b.qp.completions_held(), 0u);
    ASSERT_EQ(b.received.list.size(), kOne + 8);
    EXPECT_EQ(b.received.list[kOne - 1].wr_id, 12u);
    for (std::uint64_t i = 0; i < 8; ++i) {
        EXPECT_EQ(b.received.list[kOne + i].wr_id, 100 + i);
        EXPECT_EQ(b.received.list[kOne + i].status, WcStatus::FlushError);
    }
}

// Of several queue pairs in turn: those that wait stay in order, and so does what follows them.
TEST_F(HeldCompletionsTest, WhatWaitsStaysInOrder) {
    const PacketNumber later = PacketNumber::first(Psn(0)) + (1u << 30);
    const auto hold = [&](QueuePair& qp, CompletionList& sink, std::uint64_t wr_id) {
        Completion completion;
        completion.wr_id = wr_id;
        b.held.hold(qp, later, sink, completion);
    };
    hold(c.qp, c.received, 1);
    hold(b.qp, b.received, 2);
    hold(c.qp, c.received, 3);
    hold(b.qp, b.received, 4);
    c.fail();
    EXPECT_EQ(b.held.release(), nullptr);
    ASSERT_EQ(c.received.list.size(), 2u);
    EXPECT_EQ(c.received.list[1].wr_id, 3u);
    EXPECT_TRUE(b.received.list.empty());
    b.post_receive(5, b.sge(0, 8));
    b.fail();
    EXPECT_TRUE(b.received.list.empty()) << "a flush does not overtake";
    EXPECT_EQ(b.qp.completions_held(), 3u);
    EXPECT_EQ(b.held.release(), nullptr);
    ASSERT_EQ(b.received.list.size(), 3u);
    for (const std::size_t i : {0u, 1u}) {
        EXPECT_EQ(b.received.list[i].wr_id, 2 * i + 2);
        EXPECT_EQ(b.received.list[i].status, WcStatus::Success);
    }
    EXPECT_EQ(b.received.list[2].wr_id, 5u);
    EXPECT_EQ(b.received.list[2].status, WcStatus::FlushError);
    EXPECT_TRUE(b.held.empty());
}

// An XRC target completes into queues that it does not count as used.
TEST_F(HeldCompletionsTest, WhatIsHeldForAQueueThatGoesIsForgotten) {
    const PacketNumber later = PacketNumber::first(Psn(0)) + (1u << 30);
    CompletionList other;
    b.held.hold(b.qp, later, b.received, {});
    b.held.hold(b.qp, later, other, {});
    b.held.hold(b.qp, later, b.received, {});
    b.held.drop(b.received);
    EXPECT_EQ(b.qp.completions_held(), 1u);
    b.fail();
    EXPECT_EQ(b.held.release(), nullptr);
    EXPECT_TRUE(b.received.list.empty());
    EXPECT_EQ(other.list.size(), 1u);
    EXPECT_EQ(b.qp.completions_held(), 0u);
}

}  // namespace
}  // namespace feroce::transport::held_completions
