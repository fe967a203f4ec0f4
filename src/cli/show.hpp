// `feroce dev`, `link`, `res` and `stat`: iproute2's grammar and JSON for the devices of this
// machine and the live Feroce processes of this user. `words` is what follows the command's name.
#pragma once

#include <string>
#include <vector>

#include "cli/output.hpp"

namespace feroce::cli {

void show_devices(const std::vector<std::string>& words, const OutputOptions& options);
void show_links(const std::vector<std::string>& words, const OutputOptions& options);
void show_resources(const std::vector<std::string>& words, const OutputOptions& options);
void show_statistics(const std::vector<std::string>& words, const OutputOptions& options);

}  // namespace feroce::cli
