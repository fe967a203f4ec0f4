#include "process/call_faults.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <vector>

namespace feroce::process {
namespace {

FaultPlan plan(const char* text) {
    Result<FaultPlan> parsed = plan_faults(text);
    EXPECT_TRUE(parsed.has_value()) << text;
    return parsed ? std::move(*parsed) : FaultPlan{};
}

// The errors of the first calls of that name.
std::vector<int> errors(CallFaults& faults, const char* call, int count) {
    std::vector<int> out;
    for (int i = 0; i < count; ++i) out.push_back(faults.next(call).error);
    return out;
}

TEST(CallFaultGrammar, TakesWhatTheManualSays) {
    struct Row {
        const char* text;
        int error;
        std::uint64_t first;
        bool onward;
        double rate;
    };
    const Row rows[] = {
        {"ibv_create_cq:ENOMEM@1", ENOMEM, 1, false, 0},
        {"ibv_create_cq_ex:ENOMEM@1", ENOMEM, 1, false, 0},  // Another name of the same.
        {"ibv_post_send:EAGAIN@100+", EAGAIN, 100, true, 0},
        {"ibv_reg_mr:ENOMEM=0.25", ENOMEM, 0, false, 0.25},
        {"rdma_connect:ECONNREFUSED@2", ECONNREFUSED, 2, false, 0},
        {"ibv_reg_mr:EOPNOTSUPP@1", EOPNOTSUPP, 1, false, 0},
        {"ibv_reg_mr:ENOTSUP@1", EOPNOTSUPP, 1, false, 0},
        {"ibv_reg_mr:EIO@18446744073709551615", EIO, ~std::uint64_t{0}, false, 0},
    };
    for (const Row& row : rows) {
        const FaultPlan got = plan(row.text);
        ASSERT_EQ(got.calls.size(), 1u) << row.text;
        EXPECT_EQ(got.calls[0].error, row.error) << row.text;
        EXPECT_EQ(got.calls[0].first, row.first) << row.text;
        EXPECT_EQ(got.calls[0].onward, row.onward) << row.text;
        EXPECT_EQ(got.calls[0].rate, row.rate) << row.text;
        EXPECT_FALSE(got.has_packets) << row.text;
    }
}

TEST(CallFaultGrammar, TakesEventsOfWhatACallHasAtHand) {
    for (const char* text :
         {"ibv_post_send:QP_FATAL@3", "ibv_post_recv:QP_ACCESS_ERR=0.5", "ibv_poll_cq:CQ_ERR@1",
          "ibv_post_srq_recv:SRQ_ERR@1", "ibv_create_qp:PORT_ERR@1", "ibv_poll_cq:DEVICE_FATAL@9",
          "ibv_poll_cq:LATE=0.9", "ibv_start_poll:LATE@1+", "PORT_ERR@500ms", "PORT_ACTIVE@0ms",
          "GID_CHANGE@86400000ms"})
        EXPECT_TRUE(plan_faults(text).has_value()) << text;
}

TEST(CallFaultGrammar, RefusesTheRestWithASentence) {
    for (const char* text : {"ibv_destroy_cq:EBUSY@1",
                             "create_cq:ENOMEM@1",
                             ":ENOMEM@1",
                             "ibv_create_cq:@1",
                             "ibv_create_cq:ENOMEM",
                             "ibv_create_cq:ENOMEM@",
                             "ibv_create_cq:ENOMEM@0",
                             "ibv_create_cq:ENOMEM@0+",
                             "ibv_create_cq:ENOMEM@-1",
                             "ibv_create_cq:ENOMEM@1x",
                             "ibv_create_cq:ENOMEM@+",
                             "ibv_create_cq:ENOMEM@18446744073709551616",
                             "ibv_create_cq:ENOMEM=1.1",
                             "ibv_create_cq:ENOMEM=",
                             "ibv_create_cq:ENOMEM=nan",
                             "ibv_create_cq:EWHAT@1",
                             "ibv_create_cq:enomem@1",
                             "ibv_create_cq:12@1",
                             "ibv_create_cq:CQ_ERR@1",
                             "ibv_post_send:CQ_ERR@1",
                             "ibv_post_send:LATE@1",
                             "rdma_connect:PORT_ERR@1",
                             "ibv_get_device_list:PORT_ERR@1",
                             "ibv_open_device:DEVICE_FATAL@1",
                             "ibv_import_device:GID_CHANGE=0.5",
                             "QP_FATAL@5ms",
                             "PORT_ERR@5",
                             "PORT_ERR@5s",
                             "PORT_ERR@ms",
                             "PORT_ERR@-1ms",
                             "PORT_ERR@86400001ms",
                             "PORT_ERR@99999999999ms",
                             "ENOMEM@1ms",
                             "@1ms",
                             ",",
                             ",ibv_create_cq:ENOMEM@1",
                             "ibv_create_cq:ENOMEM@1,",
                             "ibv_create_cq:ENOMEM@1,,",
                             "drop=0.1,,dup=0.1",
                             "seed=x,ibv_create_cq:ENOMEM@1"}) {
        const Result<FaultPlan> got = plan_faults(text);
        ASSERT_FALSE(got.has_value()) << text;
        EXPECT_EQ(got.error().code, EINVAL) << text;
        EXPECT_EQ(std::string_view(got.error().why).substr(0, 14), "FEROCE_FAULTS ") << text;
    }
}

TEST(CallFaultGrammar, LeavesFaultsOfPacketsToOthers) {
    const FaultPlan both = plan("drop=0.1,ibv_create_cq:ENOMEM@1,seed=7,dup=0.2");
    EXPECT_EQ(both.packets, "drop=0.1,seed=7,dup=0.2");
    EXPECT_TRUE(both.has_packets);
    EXPECT_EQ(both.seed, 7u);
    EXPECT_EQ(both.calls.size(), 1u);
    EXPECT_FALSE(plan("ibv_create_cq:ENOMEM@1,seed=7").has_packets);
}

TEST(CallFaultTable, NamesEachCallOnce) {
    std::set<std::string_view> seen;
    for (const FaultCall& call : fault_calls())
        for (const char* name : call.names)
            if (name != nullptr) {
                EXPECT_TRUE(seen.insert(name).second) << name;
            }
}

TEST(CallFaults, NthFails) {
    CallFaults faults(plan("ibv_create_cq:ENOMEM@2"));
    EXPECT_EQ(errors(faults, "ibv_create_cq", 4), (std::vector{0, ENOMEM, 0, 0}));
}

TEST(CallFaults, NthAndAllAfterItFail) {
    CallFaults faults(plan("ibv_create_cq:ENOMEM@3+,ibv_create_cq:EIO@1"));
    EXPECT_EQ(errors(faults, "ibv_create_cq", 4), (std::vector{EIO, 0, ENOMEM, ENOMEM}));
}

TEST(CallFaults, CallsAreCountedByThemselvesAndUnderAllTheirNames) {
    CallFaults faults(plan("ibv_create_cq:ENOMEM@2"));
    EXPECT_EQ(errors(faults, "ibv_create_qp", 3), (std::vector{0, 0, 0}));
    EXPECT_EQ(errors(faults, "ibv_create_cq_ex", 1), (std::vector{0}));
    const CallFaults::Verdict second = faults.next("ibv_create_cq");
    EXPECT_EQ(second.error, ENOMEM);
    EXPECT_STREQ(second.call, "ibv_create_cq");
}

TEST(CallFaults, UnknownCallsNeverFail) {
    CallFaults faults(plan("ibv_create_cq:ENOMEM@1+"));
    EXPECT_EQ(errors(faults, "feroce_cm_service", 2), (std::vector{0, 0}));
}

TEST(CallFaults, RatesAreAFunctionOfTheSeed) {
    const auto drawn = [](const char* text) {
        CallFaults faults(plan(text));
        return errors(faults, "ibv_reg_mr", 1000);
    };
    const std::vector<int> first = drawn("ibv_reg_mr:ENOMEM=0.3,seed=7");
    EXPECT_EQ(first, drawn("ibv_reg_mr:ENOMEM=0.3,seed=7"));
    EXPECT_NE(first, drawn("ibv_reg_mr:ENOMEM=0.3,seed=8"));
    const auto failures = std::count(first.begin(), first.end(), ENOMEM);
    EXPECT_GT(failures, 200);
    EXPECT_LT(failures, 400);
    EXPECT_EQ(drawn("ibv_reg_mr:ENOMEM=0"), std::vector<int>(1000, 0));
    EXPECT_EQ(drawn("ibv_reg_mr:ENOMEM=1"), std::vector<int>(1000, ENOMEM));
}

TEST(CallFaults, ACallMayFailAndComeWithAnEvent) {
    CallFaults faults(plan("ibv_post_send:QP_FATAL@1,ibv_post_send:EIO@1,PORT_ERR@1ms"));
    const CallFaults::Verdict first = faults.next("ibv_wr_complete");
    EXPECT_EQ(first.error, EIO);
    EXPECT_EQ(first.event, FaultEvent::QpFatal);
    EXPECT_FALSE(faults.next("ibv_post_send").event.has_value());
}

TEST(CallFaults, LatePollsAreNoErrors) {
    CallFaults faults(plan("ibv_poll_cq:LATE@1"));
    const CallFaults::Verdict first = faults.next("ibv_poll_cq");
    EXPECT_TRUE(first.late);
    EXPECT_EQ(first.error, 0);
    EXPECT_FALSE(faults.next("ibv_poll_cq").late);
}

TEST(CallFaults, AForkedChildCountsFromTheStart) {
    CallFaults faults(plan("ibv_create_cq:ENOMEM@2"));
    (void)faults.next("ibv_create_cq");
    faults.restart();
    EXPECT_EQ(errors(faults, "ibv_create_cq", 2), (std::vector{0, ENOMEM}));
}

}  // namespace
}  // namespace feroce::process
