// `feroce metrics --listen`: GET /metrics.
#pragma once

#include "cli/metrics/metrics.hpp"

namespace feroce::cli {

// Until SIGTERM or SIGINT. The exit status.
int serve_metrics(const MetricsOptions& options);

}  // namespace feroce::cli
