// What went wrong, in one sentence on stderr.
#pragma once

#include <fmt/format.h>

#include <string>

namespace feroce::cli {

// Returns the exit status of a command that failed.
inline int complain(const std::string& sentence) {
    fmt::print(stderr, "feroce: {}\n", sentence);
    return 1;
}

}  // namespace feroce::cli
