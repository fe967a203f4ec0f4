// The metrics of this user's processes and devices: names that dashboards know (names.hpp) and,
// under feroce_, what only we can tell.
#pragma once

#include <cstddef>
#include <vector>

#include "cli/devices.hpp"
#include "cli/metrics/exposition.hpp"
#include "cli/metrics/ledger.hpp"
#include "process/state_page.hpp"

namespace feroce::cli {

struct MetricSource {
    const std::vector<DeviceInfo>& devices;
    const std::vector<process::StateReading>& readings;
    const Ledger& ledger;
    std::size_t qps_max = 0;  // Queue pairs with series of their own.
};

std::vector<Family> make_families(const MetricSource& source);

}  // namespace feroce::cli
