// `feroce explain`: why work requests failed, in words. Where both ends are processes of this user
// the two reasons are put together: what the one saw, and why the other answered so.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/output.hpp"
#include "process/state_page.hpp"

namespace feroce::cli {

// `which` is a pid or a QPN. Returns 1 if there is nothing to explain, and 2 if there is nothing
// but something may be missing.
int explain(std::optional<std::uint32_t> which, const OutputOptions& options);

// The same as records, from one look at all processes.
Json explanations(const std::vector<process::StateReading>& readings,
                  std::optional<std::uint32_t> which);
void print_explanations(const Json& records);
// Why "nothing has failed" would be a guess, as a clause; empty if it would not.
std::string explanation_gap(std::optional<std::uint32_t> which);

}  // namespace feroce::cli
