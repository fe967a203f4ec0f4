#include "cli/metrics/exposition.hpp"

#include <fmt/format.h>

#include <array>

namespace feroce::cli {
namespace {

std::string_view kind_name(MetricKind kind, Exposition exposition) {
    switch (kind) {
        case MetricKind::Counter:
            return "counter";
        case MetricKind::Gauge:
            return "gauge";
        case MetricKind::Histogram:
            return "histogram";
        case MetricKind::Info:  // The older format does not know the kind.
            return exposition == Exposition::OpenMetrics ? "info" : "gauge";
    }
    return "unknown";
}

std::string_view suffix(MetricKind kind) {
    switch (kind) {
        case MetricKind::Counter:
            return "_total";
        case MetricKind::Info:
            return "_info";
        case MetricKind::Gauge:
        case MetricKind::Histogram:  // Its samples have their own.
            break;
    }
    return "";
}

// OpenMetrics has the unit again beside the name that ends in it.
std::string_view unit_of(std::string_view name) {
    for (const std::string_view unit : {"bytes", "seconds"})
        if (name.size() > unit.size() && name.substr(name.size() - unit.size() - 1, 1) == "_" &&
            name.substr(name.size() - unit.size()) == unit)
            return unit;
    return "";
}

std::string escaped(std::string_view text, bool quotes) {
    std::string out;
    for (const char c : text) {
        if (c == '\n') {
            out += "\\n";
            continue;
        }
        if (c == '\\' || (quotes && c == '"')) out += '\\';
        out += c;
    }
    return out;
}

std::string label_text(const Labels& labels) {
    if (labels.empty()) return "";
    std::string out;
    for (const auto& [name, value] : labels)
        out += fmt::format("{}{}=\"{}\"", out.empty() ? "{" : ",", name, escaped(value, true));
    return out + "}";
}

void render_family(const Family& family, Exposition exposition, std::string& out) {
    const bool open = exposition == Exposition::OpenMetrics;
    const std::string full = family.name + std::string(suffix(family.kind));
    const std::string& named = open ? family.name : full;
    out += fmt::format("# HELP {} {}\n", named, escaped(family.help, open));
    out += fmt::format("# TYPE {} {}\n", named, kind_name(family.kind, exposition));
    if (const std::string_view unit = unit_of(family.name); open && !unit.empty())
        out += fmt::format("# UNIT {} {}\n", named, unit);
    for (const MetricSample& sample : family.samples)
        out += fmt::format("{}{}{} {}\n", full, sample.suffix, label_text(sample.labels),
                           sample.value);
}

}  // namespace

void Family::add(Labels labels, std::uint64_t value) {
    samples.push_back({std::move(labels), std::to_string(value), ""});
}

void Family::add(Labels labels, double value) {
    samples.push_back({std::move(labels), fmt::format("{}", value), ""});
}

// Buckets have what all before them have too, as both formats want it.
void Family::add(const Labels& labels, const Histogram& histogram) {
    std::uint64_t count = 0;
    for (std::size_t i = 0; i < histogram.counts.size(); ++i) {
        count += histogram.counts[i];
        Labels bucket = labels;
        bucket.emplace_back(
            "le", i < histogram.bounds.size() ? fmt::format("{}", histogram.bounds[i]) : "+Inf");
        samples.push_back({std::move(bucket), std::to_string(count), "_bucket"});
    }
    samples.push_back({labels, std::to_string(count), "_count"});
    samples.push_back({labels, fmt::format("{}", histogram.sum), "_sum"});
}

std::string render(const std::vector<Family>& families, Exposition exposition) {
    std::string out;
    for (const Family& family : families)
        if (!family.samples.empty()) render_family(family, exposition, out);
    if (exposition == Exposition::OpenMetrics) out += "# EOF\n";
    return out;
}

std::string_view content_type(Exposition exposition) {
    return exposition == Exposition::OpenMetrics
               ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
               : "text/plain; version=0.0.4; charset=utf-8";
}

}  // namespace feroce::cli
