// Families of metrics as text: OpenMetrics 1.0, or the older text format of Prometheus. The two
// differ in where `_total` and `_info` are written and in what ends the text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace feroce::cli {

enum class Exposition { OpenMetrics, Text };

enum class MetricKind { Counter, Gauge, Info, Histogram };

using Labels = std::vector<std::pair<std::string, std::string>>;

struct MetricSample {
    Labels labels;
    std::string value;
    std::string_view suffix;  // Of a histogram's sample: _bucket, _count or _sum.
};

// Durations by bounds that grow, each with those that are no longer than it and longer than the one
// before; the last count has no bound.
struct Histogram {
    std::vector<double> bounds;
    std::vector<std::uint64_t> counts;
    double sum = 0;
};

struct Family {
    std::string name;  // Without _total, _info or _bucket: the kind says which.
    MetricKind kind = MetricKind::Gauge;
    std::string help;
    std::vector<MetricSample> samples;

    void add(Labels labels, std::uint64_t value);
    void add(Labels labels, double value);
    void add(const Labels& labels, const Histogram& histogram);
};

// A family without samples is left out.
std::string render(const std::vector<Family>& families, Exposition exposition);

std::string_view content_type(Exposition exposition);

}  // namespace feroce::cli
