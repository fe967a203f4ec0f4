// `feroce run` and `feroce env`: the environment in which an unmodified program uses Feroce.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace feroce::cli {

// The folder of libibverbs.so.1 and the shim, from where this program lies; empty if not found.
std::string library_folder();

// Becomes the command: stdio, signals and exit status are its own. Returns only if that fails: 126
// or 127 as a shell would, 2 for a bad command line.
int run(const std::vector<std::string>& command);

// Prints `export` lines for a shell that do what run() does.
int print_environment();

}  // namespace feroce::cli
