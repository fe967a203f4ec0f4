#include "transport/reason.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <set>
#include <string>

#include "transport/counters.hpp"

namespace feroce::transport {
namespace {

TEST(Reason, LogKeepsTheLastOnes) {
    ReasonLog log;
    EXPECT_EQ(log.find(0), nullptr);
    EXPECT_EQ(log.find(1), nullptr);
    Reason reason;
    for (std::uint64_t i = 1; i <= ReasonLog::kCapacity + 1; ++i) {
        reason.wr_id = i;
        EXPECT_EQ(log.record(reason), i);
    }
    EXPECT_EQ(log.find(1), nullptr);
    ASSERT_NE(log.find(2), nullptr);
    EXPECT_EQ(log.find(2)->wr_id, 2U);
    EXPECT_EQ(log.find(log.last_id())->wr_id, ReasonLog::kCapacity + 1);
}

TEST(Reason, OrderlyEndsPushNoFailureOut) {
    ReasonLog log;
    Reason failure;
    failure.rule = Rule::RetryLimit;
    const std::uint32_t failed = log.record(failure);
    Reason orderly;
    orderly.rule = Rule::MovedToError;
    const std::uint32_t first = log.record(orderly);
    for (std::size_t i = 0; i < 2 * ReasonLog::kCapacity; ++i) {
        orderly.wr_id = i;
        const std::uint32_t id = log.record(orderly);
        ASSERT_NE(log.find(id), nullptr);
        EXPECT_EQ(log.find(id)->wr_id, i);
    }
    EXPECT_EQ(log.find(first), nullptr);
    EXPECT_TRUE(log.was_overwritten(first));
    EXPECT_FALSE(log.was_overwritten(failed));
    ASSERT_NE(log.find(failed), nullptr);
    EXPECT_EQ(log.find(failed)->rule, Rule::RetryLimit);
    EXPECT_EQ(log.last_id(), failed);
}

TEST(Reason, SentenceNamesRequestPsnRuleAndSyndrome) {
    Reason reason;
    reason.rule = Rule::PeerRefused;
    reason.status = WcStatus::RemoteAccessError;
    reason.syndrome = 0x62;
    reason.qpn = Qpn{0x11};
    reason.psn = Psn(77);
    reason.wr_id = 0xab;
    EXPECT_EQ(describe(reason),
              "work request 0xab of QP 0x000011 failed at PSN 77 (IBV_WC_REM_ACCESS_ERR): the peer "
              "refused the request; the peer answered with NAK remote access error");

    reason.rule = Rule::RetryLimit;
    reason.status = WcStatus::RetryExceededError;
    reason.syndrome = 0;
    reason.retries = 7;
    EXPECT_EQ(describe(reason),
              "work request 0xab of QP 0x000011 failed at PSN 77 (IBV_WC_RETRY_EXC_ERR): the peer "
              "did not acknowledge (7 retries); nothing was ever heard from it");
    reason.peer_heard = true;
    EXPECT_NE(describe(reason).find("(7 retries); it was heard before"), std::string::npos);
    reason.destination = Gid::from_v4(0x0a00'0001);
    EXPECT_EQ(describe(reason).find("ping"), std::string::npos);
    reason.path_mtu = 1024;  // None of these was acknowledged.
    EXPECT_NE(describe(reason).find("if `ping -M do -s 1056 10.0.0.1` fails and `ping 10.0.0.1`"),
              std::string::npos);
    reason.send_error = ENETUNREACH;  // No ping tells more.
    EXPECT_EQ(describe(reason).find("ping"), std::string::npos);
    EXPECT_NE(describe(reason).find("it was sent nothing, because there is no route to 10.0.0.1"),
              std::string::npos);

    reason.rule = Rule::RemoteMemoryGone;
    reason.region = {.key = 0x1234, .address = 0x7f00'0000, .length = 8192, .access = {}};
    EXPECT_NE(describe(reason).find("no longer mapped (the region with key 0x00001234, 8192 bytes "
                                    "at 0x7f000000, is still registered)"),
              std::string::npos);
    reason.region = {};

    reason.destination = {};
    reason.rule = Rule::RemoteKey;
    reason.status = WcStatus::RemoteAccessError;
    reason.at_responder = true;
    reason.fault = mem::Fault::WrongPd;
    EXPECT_EQ(describe(reason), std::string("QP 0x000011 refused its peer at PSN 77 "
                                            "(IBV_WC_REM_ACCESS_ERR): the peer named memory that "
                                            "it may not use: ") +
                                    mem::to_string(mem::Fault::WrongPd));

    reason.rule = Rule::MtuMismatch;
    reason.fault = mem::Fault::None;
    reason.path_mtu = 1024;
    reason.length = 4096;
    EXPECT_NE(describe(reason).find("here it is 1024, and a packet with 4096 bytes came"),
              std::string::npos);
}

bool says(const Reason& reason, const char* words) {
    return describe(reason).find(words) != std::string::npos;
}

TEST(Reason, SentenceNamesWhatWasAskedOfMemory) {
    Reason reason;
    reason.rule = Rule::RemoteKey;
    reason.at_responder = true;
    reason.fault = mem::Fault::NoSuchKey;
    reason.attempt = {0x1234, mem::Access::RemoteRead, 0x7000, 64};
    EXPECT_TRUE(says(reason, "not bound (an RDMA READ of 64 bytes at 0x7000 with key 0x00001234)"));
    reason.had_key = true;
    EXPECT_TRUE(says(reason, "0x00001234; what had this key was deregistered or unbound)"));
    reason.fault = mem::Fault::NoPermission;
    reason.region = {0x1234, 0x7000, 4096, mem::Access::RemoteWrite};
    EXPECT_TRUE(says(reason, "; it lacks IBV_ACCESS_REMOTE_READ)"));
    reason.attempt.need = mem::Access::LocalWrite;
    EXPECT_TRUE(says(reason, "; it lacks IBV_ACCESS_LOCAL_WRITE)"));
    reason.fault = mem::Fault::OutOfBounds;
    EXPECT_TRUE(says(reason, "; the key is for 4096 bytes at 0x7000)"));
    reason.rule = Rule::OperationNotEnabled;
    reason.fault = mem::Fault::None;
    reason.attempt = {0, mem::Access::RemoteAtomic, 0, 0};
    EXPECT_TRUE(says(reason, "forbid the operation: they lack IBV_ACCESS_REMOTE_ATOMIC"));
}

TEST(Reason, SentenceNamesAPeerOfAnotherMachine) {
    Reason reason;
    reason.rule = Rule::RetryLimit;
    reason.peer = Qpn{0x22};
    reason.source = reason.destination = Gid::from_v4(0x0a00'0001);
    EXPECT_FALSE(says(reason, "the peer is QP"));
    reason.destination = Gid::from_v4(0x0a00'0002);
    EXPECT_TRUE(says(reason, "; the peer is QP 0x000022 at 10.0.0.2"));
    reason.rule = Rule::LocalKey;
    EXPECT_FALSE(says(reason, "the peer is QP"));
}

template <class Enum>
void expect_distinct_names(Enum end) {
    std::set<std::string> names;
    for (int i = 0; i < static_cast<int>(end); ++i) names.insert(name(static_cast<Enum>(i)));
    EXPECT_EQ(names.size(), static_cast<std::size_t>(end));
    EXPECT_EQ(names.count(""), 0U);
}

TEST(Reason, EveryRuleHasASentenceOfItsOwn) {
    std::set<std::string> sentences;
    for (int rule = 0; rule <= static_cast<int>(Rule::ProcessForked); ++rule)
        EXPECT_TRUE(sentences.insert(text(static_cast<Rule>(rule))).second) << rule;
}

TEST(Reason, EveryRuleHasAWordOfItsOwn) {
    std::set<std::string> words;
    for (std::size_t rule = 0; rule < ErrorCounts::kRules; ++rule)
        EXPECT_TRUE(words.insert(name(static_cast<Rule>(rule))).second) << rule;
}

TEST(Reason, LogCountsWhatItNoLongerRemembers) {
    ReasonLog log;
    Reason reason;
    reason.rule = Rule::RetryLimit;
    reason.status = WcStatus::RetryExceededError;
    for (std::size_t i = 0; i <= ReasonLog::kCapacity; ++i) log.record(reason);
    reason.at_responder = true;
    log.record(reason);
    const auto count = [&log](bool at_responder, Rule rule) {
        return log.counts().of(at_responder, rule, WcStatus::RetryExceededError);
    };
    EXPECT_EQ(count(false, Rule::RetryLimit), ReasonLog::kCapacity + 1);
    EXPECT_EQ(count(true, Rule::RetryLimit), 1U);
    EXPECT_EQ(count(false, Rule::RnrLimit), 0U);
}

TEST(Counters, EachHasItsOwnName) {
    expect_distinct_names(Counter::Count);
    expect_distinct_names(DropReason::Count);
}

TEST(Counters, CountSeparately) {
    Counters counters;
    counters.add(Counter::SentPackets, 3);
    counters.drop(DropReason::BadQkey);
    EXPECT_EQ(counters[Counter::SentPackets], 3U);
    EXPECT_EQ(counters[Counter::ReceivedPackets], 0U);
    EXPECT_EQ(counters[DropReason::BadQkey], 1U);
    EXPECT_EQ(counters[DropReason::BadPkey], 0U);
}

}  // namespace
}  // namespace feroce::transport
