// `feroce trace`: the packets of a capture, one line each, with what a person would remark on them;
// or how far the queue pairs of live processes are, a line whenever one has moved. Either can be
// written as a trace for Perfetto's UI instead.
#pragma once

#include <cstdint>
#include <string>

#include "cli/output.hpp"

namespace feroce::cli {

struct TraceOptions {
    std::string what;          // A capture, or a pid or QPN.
    std::string commented;     // A copy of the capture with the remarks; empty: none.
    std::string perfetto;      // Where a trace for Perfetto is written; empty: none.
    std::uint32_t lines = 0;   // Of a live trace; 0: until the queue pairs are gone.
    std::uint32_t every = 50;  // Milliseconds between looks.
};

int trace(const TraceOptions& trace, const OutputOptions& options);
// trace_live.cpp. Ends when there is no such queue pair (any more).
int trace_live(std::uint32_t which, const TraceOptions& trace, const OutputOptions& options);

}  // namespace feroce::cli
