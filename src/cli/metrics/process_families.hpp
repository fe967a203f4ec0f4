// Of metrics, those that come from what live processes have now: queue pairs, objects, and the
// series of single processes and queue pairs, whose number is bounded.
#pragma once

#include <vector>

#include "cli/metrics/families.hpp"

namespace feroce::cli {

void add_process_families(const MetricSource& source, std::vector<Family>& out);

}  // namespace feroce::cli
