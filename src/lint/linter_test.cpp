// The rules without a device: events in, findings out.
#include "lint/linter.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "base/random.hpp"
#include "lint/order_trial.hpp"

namespace feroce::lint {
namespace {

constexpr std::uint32_t kQpn = 0x112;

struct FakeMemory final : Memory {
    Fingerprint look(std::uint32_t, const Request&) override { return now; }
    Marks mark(std::uint32_t, const Request&) override {
        ++marked;
        Marks out;
        out.bytes = 8;
        return out;
    }
    void unmark(std::uint32_t, const Request&) override { --marked; }
    Fingerprint now;
    int marked = 0;
};

struct LinterTest : ::testing::Test {
    LinterTest() : linter(memory, [this](const Finding& f) { found.push_back(f); }) {
        memory.now.known = true;
        linter.cq_made(&cq, &channel, 8);
        linter.qp_made({.qpn = kQpn,
                        .type = QpType::Rc,
                        .pd = 1,
                        .send_max = 4,
                        .inline_max = 16,
                        .datagram_max = 1024,
                        .send_cq = &cq,
                        .receive_cq = &cq,
                        .srq = nullptr},
                       1);
        move(QpState::Connected);
    }

    void move(QpState to) {
        Modify modify;
        modify.qpn = kQpn;
        modify.to = to;
        linter.modified(modify);
    }
    Request request(Op op, std::uint64_t wr_id, bool signaled = true, Place place = 5) {
        Request out;
        out.wr_id = wr_id;
        out.op = op;
        out.bytes = 64;
        out.sges[0] = {0x1000, 64, 0x77};
        out.sge_count = 1;
        out.signaled = signaled;
        if (op != Op::Read) out.print = memory.now;
        out.place = place;
        return out;
    }
    void post(Request request) {
        const bool sends = request.op != Op::Receive;
        linter.posts(kQpn, {&request, 1});
        linter.posted(kQpn, request.place, sends);
    }
    void complete(std::uint64_t wr_id, bool receive = false, int status = 0) {
        linter.completed({.qpn = kQpn,
                          .wr_id = wr_id,
                          .receive = receive,
                          .status = status,
                          .status_name = "IBV_WC_TEST",
                          .why = "a test"});
    }
    std::vector<Kind> kinds() const {
        std::vector<Kind> out;
        for (const Finding& finding : found) out.push_back(finding.kind);
        return out;
    }
    bool told_once(Kind kind) const { return kinds() == std::vector{kind}; }

    FakeMemory memory;
    std::vector<Finding> found;
    Linter linter;
    int cq = 0, channel = 0, srq = 0;
};

TEST_F(LinterTest, TellsOfExchangedNumbersAndNotOfASilentPeer) {
    constexpr int kRetryExceeded = 12;
    Completion done{.qpn = kQpn,
                    .wr_id = 1,
                    .receive = false,
                    .status = kRetryExceeded,
                    .status_name = "IBV_WC_TEST",
                    .why = "they were exchanged",
                    .exchanged = true};
    post(request(Op::Send, 1));
    linter.completed(done);
    ASSERT_TRUE(told_once(Kind::Disagreement));
    EXPECT_NE(found[0].sentence.find("failed with IBV_WC_TEST: they were exchanged"),
              std::string::npos);
    found.clear();
    done.exchanged = false;
    done.wr_id = 2;
    post(request(Op::Send, 2));
    linter.completed(done);
    EXPECT_TRUE(found.empty());
}

TEST_F(LinterTest, SaysNothingOfAnExchange) {
    for (std::uint64_t i = 0; i < 1000; ++i) {
        post(request(Op::Receive, i));
        post(request(Op::Send, i));
        complete(i);
        complete(i, true);
    }
    EXPECT_TRUE(found.empty());
}

TEST_F(LinterTest, FindsAChangedBufferAndNamesTheBytes) {
    post(request(Op::Send, 7));
    memory.now.parts[2] = 1;
    complete(7);
    ASSERT_TRUE(told_once(Kind::BufferChanged));
    EXPECT_NE(found[0].sentence.find("bytes 8 to 11"), std::string::npos) << found[0].sentence;
    EXPECT_NE(found[0].sentence.find("WR 7 (SEND of 64 bytes on queue pair 0x000112)"),
              std::string::npos);
    EXPECT_EQ(found[0].place, 5U);
}

TEST_F(LinterTest, LooksAtUnsignaledSendsWhenALaterOneCompletes) {
    post(request(Op::Send, 1, false));
    post(request(Op::Send, 2));
    memory.now.parts[0] = 1;
    complete(2);
    EXPECT_TRUE(told_once(Kind::BufferChanged));  // One place, one report.
}

TEST_F(LinterTest, TakesBackWhatTheDeviceRefused) {
    for (std::uint64_t i = 0; i < 100; ++i) {
        Request refused = request(Op::Send, i);
        linter.posts(kQpn, {&refused, 1});
        linter.refused(kQpn, {&refused, 1});
    }
    post(request(Op::Send, 200));
    EXPECT_TRUE(found.empty());
}

TEST_F(LinterTest, CountsSendsThatNothingCanFree) {
    for (std::uint64_t i = 0; i < 4; ++i) post(request(Op::Write, i, false));
    EXPECT_TRUE(found.empty());
    post(request(Op::Write, 4, false));
    EXPECT_TRUE(told_once(Kind::Unsignaled));
}

TEST_F(LinterTest, LetsOneSignalFreeTheQueue) {
    for (std::uint64_t i = 0; i < 100; ++i) {
        post(request(Op::Write, i, i % 4 == 3));
        if (i % 4 == 3) complete(i);
    }
    EXPECT_TRUE(found.empty());
}

TEST_F(LinterTest, CountsWhatACompletionQueueMayGet) {
    for (std::uint64_t i = 0; i < 8; ++i) post(request(Op::Receive, i));
    EXPECT_TRUE(found.empty());
    post(request(Op::Send, 9));
    EXPECT_TRUE(told_once(Kind::CqTooSmall));
}

TEST_F(LinterTest, ForgetsWhatWasPostedBeforeReset) {
    for (std::uint64_t i = 0; i < 8; ++i) post(request(Op::Receive, i));
    move(QpState::Reset);
    move(QpState::Connected);
    for (std::uint64_t i = 0; i < 8; ++i) post(request(Op::Receive, i));
    EXPECT_TRUE(found.empty());
    linter.noticed({NoticeKind::NoReceive, kQpn, ""});
    EXPECT_TRUE(found.empty());
    move(QpState::Reset);
    move(QpState::Connected);
    linter.noticed({NoticeKind::NoReceive, kQpn, ""});
    EXPECT_TRUE(told_once(Kind::NoReceive));
}

TEST_F(LinterTest, FindsRegionsThatRequestsStillUse) {
    post(request(Op::Receive, 12));
    linter.deregisters(0x78, 9);
    EXPECT_TRUE(found.empty());
    linter.deregisters(0x77, 9);
    ASSERT_TRUE(told_once(Kind::RegionInUse));
    EXPECT_NE(found[0].sentence.find("WR 12"), std::string::npos);
    found.clear();
    move(QpState::Error);  // Flushed requests touch nothing.
    linter.deregisters(0x77, 10);
    EXPECT_TRUE(found.empty());
}

TEST_F(LinterTest, FollowsSharedReceives) {
    linter.qp_made({.qpn = 0x113,
                    .type = QpType::Rc,
                    .pd = 1,
                    .send_max = 4,
                    .inline_max = 0,
                    .datagram_max = 0,
                    .send_cq = &cq,
                    .receive_cq = &cq,
                    .srq = &srq},
                   1);
    Modify modify;
    modify.qpn = 0x113;
    modify.to = QpState::Connected;
    linter.modified(modify);
    Request shared = request(Op::Receive, 3);
    linter.posts_shared(&srq, {&shared, 1});
    linter.deregisters(0x77, 9);
    EXPECT_TRUE(told_once(Kind::RegionInUse));
    found.clear();
    linter.completed(
        {.qpn = 0x113, .wr_id = 3, .receive = true, .status = 0, .status_name = "", .why = ""});
    linter.deregisters(0x77, 10);
    EXPECT_TRUE(found.empty());
}

// Its messages name a shared queue each, maybe one of another process.
TEST_F(LinterTest, DoesNotJudgeAnXrcTargetByItsReceives) {
    linter.qp_made({.qpn = 0x114,
                    .type = QpType::Xrc,
                    .pd = 0,
                    .send_max = 0,
                    .inline_max = 0,
                    .datagram_max = 0,
                    .send_cq = nullptr,
                    .receive_cq = nullptr,
                    .srq = nullptr},
                   1);
    linter.noticed({NoticeKind::NoReceive, 0x114, ""});
    for (std::uint64_t i = 0; i < Ledger::kFollowed; ++i) {
        Request shared = request(Op::Receive, i);
        linter.posts_shared(&srq, {&shared, 1}, false);
    }
    EXPECT_TRUE(found.empty());
    for (std::uint64_t i = 0; i < 5; ++i) post(request(Op::Write, i, false));
    EXPECT_TRUE(told_once(Kind::Unsignaled)) << "the ledger has room for others";
}

TEST_F(LinterTest, FindsASleepOverCompletionsThatNoEventTellsOf) {
    linter.armed(&cq, 2, 6);
    linter.polled(&cq);
    linter.sleeps(&channel);
    EXPECT_TRUE(found.empty());
    linter.armed(&cq, 0, 6);
    linter.sleeps(&channel);
    EXPECT_TRUE(found.empty());
    linter.armed(&cq, 2, 6);
    linter.sleeps(&srq);  // Another channel.
    EXPECT_TRUE(found.empty());
    linter.sleeps(&channel);
    EXPECT_TRUE(told_once(Kind::MissedEvent));
}

TEST_F(LinterTest, CountsEventsAndAcknowledgements) {
    linter.event_taken(&cq, 4);
    linter.event_taken(&cq, 4);
    linter.events_acknowledged(&cq, 2);
    linter.cq_destroys(&cq);
    EXPECT_TRUE(found.empty());
    EXPECT_FALSE(linter.misses_acknowledgements(&cq));
    linter.event_taken(&cq, 4);
    EXPECT_TRUE(linter.misses_acknowledgements(&cq));
    linter.cq_destroys(&cq);
    EXPECT_TRUE(told_once(Kind::Unacknowledged));
}

TEST_F(LinterTest, KnowsWhichFailuresAreMistakes) {
    constexpr int kFlushed = 5, kRetryExceeded = 12, kRemoteAccess = 10;
    for (const int status : {kFlushed, kRetryExceeded}) {
        post(request(Op::Write, 1));
        complete(1, false, status);
    }
    EXPECT_TRUE(found.empty());
    post(request(Op::Write, 1));
    complete(1, false, kRemoteAccess);
    EXPECT_TRUE(told_once(Kind::AccessFlags));
}

TEST_F(LinterTest, WondersWhoPostsOnAfterAFailure) {
    constexpr int kFlushed = 5;
    for (std::uint64_t i = 0; i < 9; ++i) {
        post(request(Op::Write, i));
        complete(i, false, kFlushed);
    }
    EXPECT_TRUE(found.empty());
    post(request(Op::Write, 10));
    EXPECT_TRUE(told_once(Kind::ErrorIgnored));
}

TEST_F(LinterTest, TellsWhatAModifyLacks) {
    Modify modify;
    modify.qpn = kQpn;
    modify.refused = true;
    modify.from_name = "RESET";
    modify.to_name = "INIT";
    modify.missing = "IBV_QP_PORT";
    linter.modified(modify);
    ASSERT_TRUE(told_once(Kind::ModifyQp));
    EXPECT_NE(found[0].sentence.find("attr_mask lacks IBV_QP_PORT"), std::string::npos);
}

TEST_F(LinterTest, TellsAChildWhoseObjectsItUses) {
    linter.used_after_fork("ibv_post_send", 3);
    EXPECT_TRUE(told_once(Kind::ForkedObject));
}

// UCX frees the buffer of a datagram when the peer's library has answered it.
TEST_F(LinterTest, BelievesThatADatagramWasAnswered) {
    constexpr std::uint32_t kUd = 0x115;
    linter.qp_made({.qpn = kUd,
                    .type = QpType::Ud,
                    .pd = 1,
                    .send_max = 4,
                    .inline_max = 0,
                    .datagram_max = 1024,
                    .send_cq = &cq,
                    .receive_cq = &cq,
                    .srq = nullptr},
                   1);
    for (const bool answered : {true, false}) {
        Request sent = request(Op::Send, 1);
        sent.print.known = true;
        sent.print.parts[0] = 99;  // Not what is there now.
        linter.posts(kUd, {&sent, 1});
        Completion done{
            .qpn = kUd, .wr_id = 5, .receive = true, .status = 0, .status_name = "", .why = ""};
        if (answered) linter.completed(done);
        done.wr_id = 1;
        done.receive = false;
        linter.completed(done);
        EXPECT_EQ(found.empty(), answered);
    }
}

TEST_F(LinterTest, HoldsAProgramToACard) {
    const QpAsked asked{.type = QpType::Rc,
                        .sends = 16,
                        .receives = 16,
                        .send_sges = 31,
                        .receive_sges = 1,
                        .inline_max = 913};
    linter.asks_qp(asked, 1);
    linter.asks_cq(5'000'000, 2);
    EXPECT_TRUE(found.empty()) << "no card was named";
    linter.hold_to(find_card("mlx5"));
    linter.asks_qp(asked, 1);
    ASSERT_TRUE(told_once(Kind::CardLimit));
    EXPECT_NE(found[0].sentence.find("max_inline_data 913 (mlx5 has 912), max_send_sge 31"),
              std::string::npos);
    found.clear();
    QpAsked fits = asked;
    fits.send_sges = 30;
    fits.inline_max = 912;
    linter.asks_qp(fits, 3);
    linter.asks_cq(4'194'303, 4);
    linter.asks_srq(1024, 31, 5);
    EXPECT_TRUE(found.empty());
    linter.asks_cq(4'194'304, 6);
    EXPECT_TRUE(told_once(Kind::CardLimit));
}

TEST_F(LinterTest, KnowsWhatACardDoesNotHave) {
    linter.hold_to(find_card("efa"));
    linter.asks_qp({}, 1);
    ASSERT_TRUE(told_once(Kind::CardLimit));
    EXPECT_NE(found[0].sentence.find("type RC (efa has UD"), std::string::npos);
    found.clear();
    linter.asks_srq(1, 1, 2);
    EXPECT_TRUE(told_once(Kind::CardLimit));
    found.clear();
    post(request(Op::Atomic, 1));
    EXPECT_TRUE(told_once(Kind::CardLimit));
    EXPECT_EQ(find_card("none"), nullptr);
}

TEST_F(LinterTest, HoldsReadsToACard) {
    linter.hold_to(find_card("mlx5"));
    Modify modify;
    modify.qpn = kQpn;
    modify.to = QpState::Connected;
    modify.reads = modify.served = 16;
    linter.modified(modify);
    EXPECT_TRUE(found.empty());
    modify.reads = 17;
    linter.modified(modify);
    EXPECT_TRUE(told_once(Kind::CardLimit));
}

TEST_F(LinterTest, CountsEventsOfTheConnectionManager) {
    linter.cm_destroys({.fetched = 2, .acknowledged = 2}, 1);
    EXPECT_TRUE(found.empty());
    linter.cm_destroys({.fetched = 2, .acknowledged = 1}, 1);
    EXPECT_TRUE(told_once(Kind::Unacknowledged));
}

TEST_F(LinterTest, FindsBytesOfAReadThatIsNotComplete) {
    post(request(Op::Read, 1));
    EXPECT_EQ(memory.marked, 1);
    Request carrier = request(Op::Write, 2);
    carrier.sges[0].address = 0x2000;
    carrier.carries = true;
    post(carrier);
    ASSERT_TRUE(told_once(Kind::ReadEarly));
    EXPECT_NE(found[0].sentence.find("WR 2 (WRITE of 64 bytes"), std::string::npos);
    found.clear();
    memory.now.parts[0] = 1;  // The READ fills its target: that was said.
    complete(2);
    EXPECT_TRUE(found.empty());
    Request named = request(Op::Write, 3, true, 6);
    named.carries = true;
    post(named);
    EXPECT_TRUE(told_once(Kind::ReadEarly));
}

// A fence makes the device wait for the bytes.
TEST_F(LinterTest, LetsAFencedRequestSendWhatAReadBrings) {
    post(request(Op::Read, 1, false));
    Request fenced = request(Op::Send, 2);
    fenced.fenced = true;
    fenced.carries = true;
    post(fenced);
    memory.now.parts[0] = 1;
    complete(2);
    EXPECT_TRUE(found.empty());
}

TEST_F(LinterTest, MarksOnlyTargetsThatNothingElseUses) {
    post(request(Op::Send, 1));
    post(request(Op::Read, 2));
    EXPECT_EQ(memory.marked, 0) << "a send goes out of the same memory";
    complete(2);
    Request itself = request(Op::Read, 3);
    itself.remote = itself.sges[0].address + 8;
    post(itself);
    complete(3);
    Request small = request(Op::Read, 4);
    small.sges[0].length = 4;
    post(small);
    complete(4);
    EXPECT_EQ(memory.marked, 0);
    post(request(Op::Read, 5));
    EXPECT_EQ(memory.marked, 1);
}

// The peer may be this process: an earlier request would bring or change the mark.
TEST_F(LinterTest, MarksNoTargetThatAnEarlierRequestUsesRemotely) {
    for (const Op op : {Op::Read, Op::Atomic}) {
        Request earlier = request(op, 1);
        // Short, so that the READ gets no mark itself.
        earlier.sges[0] = {0x3000, op == Op::Read ? 4U : 8U, 0x77};
        earlier.bytes = earlier.sges[0].length;
        earlier.remote = 0x1000 + 60;
        post(earlier);
        Request later = request(Op::Read, 2);
        later.remote = 0x9000;
        post(later);
        EXPECT_EQ(memory.marked, 0) << name(op);
        later.wr_id = 3;
        later.sges[0].address = 0x1000 + 68;
        post(later);
        EXPECT_EQ(memory.marked, 1) << "what lies behind is not used";
        complete(3);
        memory.marked = 0;
    }
}

TEST_F(LinterTest, TakesMarksBackWhereNoReadWillComplete) {
    constexpr int kFlushed = 5;
    post(request(Op::Read, 1));
    complete(1, false, kFlushed);
    EXPECT_EQ(memory.marked, 0);
    Request refused = request(Op::Read, 2);
    linter.posts(kQpn, {&refused, 1});
    EXPECT_EQ(memory.marked, 1);
    linter.refused(kQpn, {&refused, 1});
    EXPECT_EQ(memory.marked, 0);
    post(request(Op::Read, 3));
    move(QpState::Reset);
    EXPECT_EQ(memory.marked, 0);
    move(QpState::Connected);
    post(request(Op::Read, 4));
    linter.qp_destroyed(kQpn);
    EXPECT_EQ(memory.marked, 0);
}

TEST_F(LinterTest, FindsImmediatesInTheByteOrderOfTheMachine) {
    const auto post_immediate = [&](std::uint32_t immediate) {
        Request sent = request(Op::Send, 1);
        sent.immediate = immediate;
        post(sent);
        complete(1);
    };
    for (std::uint32_t i = 0; i < 16; ++i) post_immediate(i);  // 0 tells nothing.
    for (int i = 0; i < 100; ++i) post_immediate(15);
    EXPECT_TRUE(found.empty());
    post_immediate(16);
    ASSERT_TRUE(told_once(Kind::ImmediateOrder));
    EXPECT_NE(found[0].sentence.find("is 268435456 for a peer"), std::string::npos);
}

TEST_F(LinterTest, DoesNotJudgeImmediatesThatUseTheirUpperHalf) {
    for (std::uint32_t i = 1; i < 100; ++i) {
        Request sent = request(Op::Send, 1);
        sent.immediate = i == 3 ? 0x0100'0000 : i;
        post(sent);
        complete(1);
    }
    EXPECT_TRUE(found.empty());
}

TEST_F(LinterTest, KnowsAnImmediateThatWasTakenForALength) {
    linter.completed({.qpn = kQpn,
                      .wr_id = 1,
                      .receive = true,
                      .status = 0,
                      .status_name = "",
                      .why = "",
                      .immediate = 0x4000'0000});
    Request answer = request(Op::Send, 2);
    answer.sges[0].length = 0x4000'0000;  // ntohl() of it is 64.
    answer.trouble = {SgeFault::OutOfBounds, 0, 0x1000, 4096, 0x77};
    post(answer);
    ASSERT_TRUE(told_once(Kind::ImmediateOrder));
    EXPECT_NE(found[0].sentence.find("it means 64"), std::string::npos);
    found.clear();
    answer.sges[0].length = 0x4100'0000;  // Another number is only too long.
    post(answer);
    EXPECT_TRUE(told_once(Kind::BadSge));
}

TEST_F(LinterTest, FindsThreadsThatMeetWhereOneWasPromised) {
    linter.cq_made(&cq, &channel, 8, true);
    const auto enter = [&](Thread thread) { return linter.enters(&cq, thread, "ibv_poll_cq", 3); };
    EXPECT_FALSE(enter(1));
    linter.leaves(&cq, 1);
    EXPECT_TRUE(enter(2)) << "two threads use it, so calls are made longer";
    linter.leaves(&cq, 2);
    EXPECT_TRUE(found.empty()) << "one after the other";
    (void)enter(1);
    (void)enter(2);
    linter.leaves(&cq, 2);
    EXPECT_TRUE(told_once(Kind::TwoThreads));
    found.clear();
    EXPECT_FALSE(linter.enters(kQpn, 1, "ibv_post_send", 4));
    (void)linter.enters(kQpn, 2, "ibv_post_send", 4);
    EXPECT_TRUE(found.empty()) << "nothing was promised of the queue pair";
}

TEST_F(LinterTest, WatchesListsThatTwoThreadsPost) {
    EXPECT_FALSE(linter.shares(&srq, 1));
    EXPECT_FALSE(linter.shares(&srq, 1));
    std::uint32_t watched = 0;
    for (Thread thread = 2; thread < 102; ++thread) watched += linter.shares(&srq, thread) ? 1 : 0;
    EXPECT_EQ(watched, 100U);
    // More lists than are remembered, each posted by two threads.
    std::vector<int> lists(SharedLists::kListsMax + 8);
    for (const int& list : lists)
        for (Thread thread = 1; thread < 3; ++thread)
            watched += linter.shares(&list, thread) ? 1 : 0;
    EXPECT_EQ(watched, SharedLists::kLongCallsMax) << "of all lists together";
    linter.list_changed("ibv_post_send", &srq, 3);
    EXPECT_TRUE(told_once(Kind::TwoThreads));
}

TEST(OrderTrial, IsConvincedByReactionsToLastBytesOnly) {
    OrderTrial trial;
    for (std::uint32_t i = 1; i < OrderTrial::kConvincing; ++i)
        EXPECT_FALSE(trial.reacted(OrderTrial::Hold::AllButLast));
    EXPECT_TRUE(trial.reacted(OrderTrial::Hold::AllButLast));
    EXPECT_FALSE(trial.reacted(OrderTrial::Hold::AllButLast)) << "it is said once";
    EXPECT_EQ(trial.next(1), OrderTrial::Hold::Nothing);
}

TEST(OrderTrial, IsNotConvincedByAProgramThatPostsAnyway) {
    OrderTrial trial;
    Prng random(1);
    std::uint32_t held = 0;
    for (OrderTrial::Hold hold{}; (hold = trial.next(random.next())) != OrderTrial::Hold::Nothing;
         ++held)
        EXPECT_FALSE(trial.reacted(hold));
    EXPECT_EQ(held, OrderTrial::kTrialsMax) << "and ends";
}

TEST_F(LinterTest, ReportsAPlaceOnceAndNoMoreThanItsLimit) {
    for (Place place = 1; place <= 3 * Reporter::kReportsMax; ++place) {
        linter.registration_refused(
            {.length = 8, .local_write = false, .remote_change = true, .why = "", .place = place});
        linter.registration_refused(
            {.length = 8, .local_write = false, .remote_change = true, .why = "", .place = place});
    }
    EXPECT_EQ(found.size(), Reporter::kReportsMax + 1);
    EXPECT_NE(found.back().sentence.find("no more are shown"), std::string::npos);
}

TEST_F(LinterTest, FollowsOnlySoManyRequests) {
    for (std::uint64_t i = 0; i < Ledger::kFollowed; ++i) {
        Request shared = request(Op::Receive, i);
        linter.posts_shared(&srq, {&shared, 1});
    }
    // A queue that lost one is not judged by its length.
    for (std::uint64_t i = 0; i < 20; ++i) post(request(Op::Write, i, false));
    EXPECT_TRUE(found.empty());
    linter.srq_destroyed(&srq);
    move(QpState::Reset);
    for (std::uint64_t i = 0; i < 5; ++i) post(request(Op::Write, i, false));
    EXPECT_TRUE(told_once(Kind::Unsignaled));
}

}  // namespace
}  // namespace feroce::lint
