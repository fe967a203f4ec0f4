// `feroce metrics --listen`: GET /metrics, one request a connection. A thread of libmicrohttpd
// serves all connections and never waits for one of them.
#pragma once

#include "cli/metrics/metrics.hpp"

namespace feroce::cli {

// Until SIGTERM or SIGINT. The exit status.
int serve_metrics(const MetricsOptions& options);

}  // namespace feroce::cli
