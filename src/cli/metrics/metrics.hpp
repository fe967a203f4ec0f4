// `feroce metrics`: what live processes count, for Prometheus and its kin.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cli/metrics/exposition.hpp"
#include "cli/metrics/ledger.hpp"

namespace feroce::cli {

// More series of one kind than this are of no use to anybody, and cost their database dearly.
inline constexpr std::size_t kLabelledMax = 1000;

struct MetricsOptions {
    std::string format;  // openmetrics (if empty) or text.
    std::size_t processes_max = 32;
    std::size_t qps_max = 0;
    std::string listen;              // [ADDRESS:]PORT: serve them there.
    std::vector<std::string> hosts;  // Names that clients may call us by, beyond our own.
    std::string sysfs;               // A folder: write them there as files.
    unsigned every = 0;              // Seconds between two times; 0: once.
};

int metrics(const MetricsOptions& options);  // The exit status.

// A look at all processes each time, and what it remembers in between.
class Collector {
public:
    explicit Collector(const MetricsOptions& options)
        : ledger_(options.processes_max), qps_max_(options.qps_max) {}

    std::vector<process::StateReading> look();
    std::vector<Family> families();  // Of a new look.
    const Ledger& ledger() const { return ledger_; }

private:
    Ledger ledger_;
    std::size_t qps_max_;
};

}  // namespace feroce::cli
