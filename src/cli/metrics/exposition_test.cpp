#include "cli/metrics/exposition.hpp"

#include <gtest/gtest.h>

namespace feroce::cli::exposition_test {
namespace {

std::vector<Family> example() {
    Family bytes{"x_sent_bytes", MetricKind::Counter, "Bytes \"sent\".", {}};
    bytes.add({{"device", "a\"b\\c\nd"}, {"port", "1"}},
              std::uint64_t{18'446'744'073'709'551'615U});
    Family rtt{"x_rtt_seconds", MetricKind::Gauge, "Time.", {}};
    rtt.add({}, 0.0000125);
    Family card{"x_card", MetricKind::Info, "What it is.", {}};
    card.add({{"version", "1"}}, std::uint64_t{1});
    const Family empty{"x_none", MetricKind::Gauge, "Nothing.", {}};
    return {bytes, rtt, card, empty};
}

TEST(Exposition, OpenMetricsNamesFamiliesWithoutSuffixAndEnds) {
    EXPECT_EQ(render(example(), Exposition::OpenMetrics),
              "# HELP x_sent_bytes Bytes \\\"sent\\\".\n"
              "# TYPE x_sent_bytes counter\n"
              "# UNIT x_sent_bytes bytes\n"
              "x_sent_bytes_total{device=\"a\\\"b\\\\c\\nd\",port=\"1\"} 18446744073709551615\n"
              "# HELP x_rtt_seconds Time.\n"
              "# TYPE x_rtt_seconds gauge\n"
              "# UNIT x_rtt_seconds seconds\n"
              "x_rtt_seconds 1.25e-05\n"
              "# HELP x_card What it is.\n"
              "# TYPE x_card info\n"
              "x_card_info{version=\"1\"} 1\n"
              "# EOF\n");
}

TEST(Exposition, TheOlderFormatNamesSamples) {
    EXPECT_EQ(render(example(), Exposition::Text),
              "# HELP x_sent_bytes_total Bytes \"sent\".\n"
              "# TYPE x_sent_bytes_total counter\n"
              "x_sent_bytes_total{device=\"a\\\"b\\\\c\\nd\",port=\"1\"} 18446744073709551615\n"
              "# HELP x_rtt_seconds Time.\n"
              "# TYPE x_rtt_seconds gauge\n"
              "x_rtt_seconds 1.25e-05\n"
              "# HELP x_card_info What it is.\n"
              "# TYPE x_card_info gauge\n"
              "x_card_info{version=\"1\"} 1\n");
}

TEST(Exposition, BucketsOfAHistogramAddUp) {
    Family family{"x_rtt_seconds", MetricKind::Histogram, "Time.", {}};
    family.add({{"device", "a"}}, Histogram{{1e-6, 0.001024}, {2, 0, 3}, 0.5});
    EXPECT_EQ(render({family}, Exposition::OpenMetrics),
              "# HELP x_rtt_seconds Time.\n"
              "# TYPE x_rtt_seconds histogram\n"
              "# UNIT x_rtt_seconds seconds\n"
              "x_rtt_seconds_bucket{device=\"a\",le=\"1e-06\"} 2\n"
              "x_rtt_seconds_bucket{device=\"a\",le=\"0.001024\"} 2\n"
              "x_rtt_seconds_bucket{device=\"a\",le=\"+Inf\"} 5\n"
              "x_rtt_seconds_count{device=\"a\"} 5\n"
              "x_rtt_seconds_sum{device=\"a\"} 0.5\n"
              "# EOF\n");
}

}  // namespace
}  // namespace feroce::cli::exposition_test
