// Which counter of ours is known to dashboards under which name: the files of sysfs, which
// rdma_exporter and node_exporter's infiniband collector read, and the metrics they make of them.
#pragma once

#include <cstdint>
#include <span>

#include "cli/metrics/ledger.hpp"

namespace feroce::cli {

struct KnownCounter {
    const char* file;    // In hw_counters; rdma_exporter's metric is rdma_FILE_total.
    const char* source;  // Our counter; with a slash at its end: all keys that begin so.
    const char* node;    // node_exporter's metric without node_infiniband_; null if it has none.
    const char* help;
};

// Names of rxe first, then mlx5's, which are those that dashboards know. Of both only what is
// really counted: a zero that means "unknown" would be a lie.
std::span<const KnownCounter> known_counters();
std::uint64_t value_of(const KnownCounter& counter, const Counts& counts);

// The files of `counters`, which count for the port as a whole.
struct PortCounter {
    const char* file;
    const char* node;
    std::uint64_t (*value)(const Counts&);
    std::uint64_t unit;  // Of the file: 4 for data, which it counts in words.
    const char* help;
};
std::span<const PortCounter> port_counters();

}  // namespace feroce::cli
