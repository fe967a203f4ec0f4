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

Json failure(std::size_t pid, bool alive, std::size_t psn, Json because = Json::array()) {
    return {{"alive", alive}, {"pid", pid}, {"psn", psn}, {"because", std::move(because)}};
}

TEST(WebDocument, TellsOfLiveProcessesFirst) {
    WebFacts facts;
    for (std::size_t i = 0; i < kFailureRowsMax + 5; ++i)
        facts.failures.push_back(failure(i, i > kFailureRowsMax, 0));
    const Json document = document_of(std::move(facts));
    EXPECT_EQ(document["failures"].size(), kFailureRowsMax);
    EXPECT_EQ(document["failures_more"], 5);
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(document["failures"][i]["alive"], true);
    EXPECT_EQ(document["failures"][4]["alive"], false);
}

TEST(WebDocument, KeepsTheNewestFailures) {
    WebFacts facts;
    for (std::size_t psn = 0; psn < kFailureRowsMax + 7; ++psn)
        facts.failures.push_back(failure(1, true, psn));
    const Json document = document_of(std::move(facts));
    ASSERT_EQ(document["failures"].size(), kFailureRowsMax);
    EXPECT_EQ(document["failures"][0]["psn"], kFailureRowsMax + 6);
    EXPECT_EQ(document["failures"].back()["psn"], 7);
}

TEST(WebDocument, HidesNoProcessBehindAnothersFailures) {
    WebFacts facts;
    facts.failures.push_back(failure(1, true, 5));
    for (std::size_t psn = 0; psn < 2 * kFailureRowsMax; ++psn)
        facts.failures.push_back(failure(2, true, psn));
    const Json document = document_of(std::move(facts));
    EXPECT_EQ(document["failures"][0]["pid"], 2);
    EXPECT_EQ(document["failures"][1]["pid"], 1);
}

TEST(WebDocument, CountsWhatIsLeftOutForEachProcess) {
    WebFacts facts;
    const Json because = Json::array({{{"pid", 3}}, {{"pid", 3}}});
    for (std::size_t psn = 0; psn < kFailureRowsMax; ++psn)
        facts.failures.push_back(failure(1, true, psn));
    for (std::size_t psn = 0; psn < 4; ++psn)
        facts.failures.push_back(failure(2, false, psn, because));
    const Json document = document_of(std::move(facts));
    EXPECT_EQ(document["failures_more"], 4);
    EXPECT_EQ(document["failures_more_of"], Json({{"2", 4}, {"3", 4}}));
}

}  // namespace
}  // namespace feroce::cli::document_test
