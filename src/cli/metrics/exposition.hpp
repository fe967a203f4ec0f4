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

enum class MetricKind { Counter, Gauge, Info };

using Labels = std::vector<std::pair<std::string, std::string>>;

struct MetricSample {
    Labels labels;
    std::string value;
};

struct Family {
    std::string name;  // Without _total or _info: the kind says which.
    MetricKind kind = MetricKind::Gauge;
    std::string help;
    std::vector<MetricSample> samples;

    void add(Labels labels, std::uint64_t value);
    void add(Labels labels, double value);
};

// A family without samples is left out.
std::string render(const std::vector<Family>& families, Exposition exposition);

std::string_view content_type(Exposition exposition);

}  // namespace feroce::cli
