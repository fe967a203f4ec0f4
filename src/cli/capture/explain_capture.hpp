// `feroce explain --pcap FILE`: the story of a capture, in words or as records.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/output.hpp"

namespace feroce::cli {

// `which` is a QPN: only what concerns it. Returns 0 if something is explained, 1 if no failure is
// seen, and 2 if none is but not all of the file could be read. Throws UsageError.
int explain_capture(const std::string& path, std::optional<std::uint32_t> which,
                    const OutputOptions& options);

}  // namespace feroce::cli
