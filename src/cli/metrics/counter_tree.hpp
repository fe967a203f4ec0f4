// `feroce metrics --sysfs`: what /sys/class/infiniband would hold if the kernel had our devices,
// with `counters` and `hw_counters`, for exporters that read just that.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "cli/devices.hpp"
#include "cli/metrics/ledger.hpp"
#include "cli/metrics/metrics.hpp"
#include "cli/sysfs_tree.hpp"

namespace feroce::cli {

// Paths begin with class/.
Tree describe_counters(const std::vector<DeviceInfo>& devices,
                       const std::map<std::string, Counts>& counts);

// A folder that holds such a tree. A file is replaced as a whole: a reader sees an old value or a
// new one.
class CounterFolder {
public:
    explicit CounterFolder(std::string root) : root_(std::move(root)) {}
    ~CounterFolder();
    CounterFolder(const CounterFolder&) = delete;
    CounterFolder& operator=(const CounterFolder&) = delete;

    // The folder must be the user's own, and empty, or written by one of us before, which has
    // ended; it is made if it is not there.
    Result<void> claim();
    // What is there and not in the tree goes away.
    Result<void> write(const Tree& tree);

private:
    Result<void> make() const;

    std::string root_;
    int mark_ = -1;  // The file that says so, locked.
    Tree written_;
};

// Once, or every so many seconds until SIGTERM or SIGINT. The exit status.
int write_counters(const MetricsOptions& options);

}  // namespace feroce::cli
