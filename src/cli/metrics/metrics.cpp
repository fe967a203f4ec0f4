#include "cli/metrics/metrics.hpp"

#include <fmt/format.h>

#include <cstdio>

#include "cli/complain.hpp"
#include "cli/devices.hpp"
#include "cli/metrics/counter_tree.hpp"
#include "cli/metrics/families.hpp"
#include "cli/metrics/metrics_site.hpp"
#include "cli/output.hpp"
#include "cli/state.hpp"

namespace feroce::cli {
namespace {

constexpr unsigned kEveryMax = 3600;

Exposition exposition_of(const std::string& format) {
    if (format.empty() || format == "openmetrics") return Exposition::OpenMetrics;
    if (format == "text") return Exposition::Text;
    throw UsageError(fmt::format("metrics has no format {}: openmetrics and text", format));
}

void check(const MetricsOptions& options) {
    if (options.processes_max > kLabelledMax || options.qps_max > kLabelledMax)
        throw UsageError(fmt::format(
            "metrics has series of at most {} processes and as many queue pairs", kLabelledMax));
    if (!options.listen.empty() && !options.format.empty())
        throw UsageError("metrics has no --format with --listen: each client says what it takes");
    if (options.listen.empty() && !options.hosts.empty())
        throw UsageError("metrics has --host only with --listen");
    if (!options.sysfs.empty() && (!options.listen.empty() || !options.format.empty()))
        throw UsageError("metrics has neither --listen nor --format with --sysfs");
    if (options.every > kEveryMax || (options.every != 0 && options.sysfs.empty()))
        throw UsageError(
            fmt::format("metrics has --every only with --sysfs, up to {} seconds", kEveryMax));
}

int print(const MetricsOptions& options) {
    const Exposition exposition = exposition_of(options.format);
    Collector collector(options);
    const std::string text = render(collector.families(), exposition);
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
        return complain("the metrics cannot be written");
    return 0;
}

}  // namespace

std::vector<process::StateReading> Collector::look() {
    std::vector<process::StateReading> readings = all_processes();
    ledger_.take(readings);
    return readings;
}

std::vector<Family> Collector::families() {
    const std::vector<process::StateReading> readings = look();
    const std::vector<DeviceInfo> devices = list_devices();
    return make_families({devices, readings, ledger_, qps_max_});
}

int metrics(const MetricsOptions& options) {
    check(options);
    if (!options.listen.empty()) return serve_metrics(options);
    if (!options.sysfs.empty()) return write_counters(options);
    return print(options);
}

}  // namespace feroce::cli
