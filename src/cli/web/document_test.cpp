#include "cli/web/document.hpp"

#include <gtest/gtest.h>

namespace feroce::cli::document_test {
namespace {

TEST(WebDocument, KeepsTheBusiestOfManyQueuePairs) {
    WebFacts facts;
    for (std::uint32_t i = 0; i < 10'000; ++i) {
        TopQp& qp = facts.sample.qps.emplace_back();
        qp.state.qpn = i;
        qp.sent_packets = i;
    }
    facts.sample.qps[5].last_error = "it failed";
    const Json document = document_of(std::move(facts));
    EXPECT_EQ(document["qps"].size(), kQpRowsMax);
    EXPECT_EQ(document["qps_all"], 10'000);
    EXPECT_EQ(document["qps_more"], 10'000 - kQpRowsMax);
    EXPECT_EQ(document["qps"][0]["lqpn"], 5);
    EXPECT_EQ(document["qps"][1]["lqpn"], 9'999);
}

TEST(WebDocument, TellsOfLiveProcessesFirst) {
    WebFacts facts;
    for (std::size_t i = 0; i < kFailureRowsMax + 5; ++i)
        facts.failures.push_back({{"alive", i > kFailureRowsMax}, {"pid", i}});
    const Json document = document_of(std::move(facts));
    EXPECT_EQ(document["failures"].size(), kFailureRowsMax);
    EXPECT_EQ(document["failures_more"], 5);
    EXPECT_EQ(document["failures"][0]["pid"], kFailureRowsMax + 1);
    EXPECT_EQ(document["failures"][4]["pid"], 0);
}

}  // namespace
}  // namespace feroce::cli::document_test
