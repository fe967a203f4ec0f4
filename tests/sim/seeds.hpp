// The seeds that a test runs: as many as it usually does, from 0 on, or those that FEROCE_SEEDS
// names: "2000" is the first two thousand, "500-999" those from 500 to 999, so that several
// processes can share the work.
#pragma once

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string_view>
#include <system_error>
#include <vector>

namespace feroce::sim {

// A text that is neither form ends the program.
inline std::vector<std::uint64_t> seeds(std::uint64_t usual) {
    std::uint64_t first = 0, end = usual;
    if (const char* const wanted = std::getenv("FEROCE_SEEDS"); wanted != nullptr) {
        const std::string_view text = wanted;
        const char* const last = text.data() + text.size();
        auto read = std::from_chars(text.data(), last, end);
        const bool is_range = read.ec == std::errc() && read.ptr != last && *read.ptr == '-';
        if (is_range) {
            first = end;
            read = std::from_chars(read.ptr + 1, last, end);
            ++end;
        }
        if (read.ec != std::errc() || read.ptr != last || first > end) {
            std::fprintf(stderr, "FEROCE_SEEDS=%s is neither a number nor FIRST-LAST\n", wanted);
            std::exit(2);
        }
    }
    std::vector<std::uint64_t> out(end - first);
    std::iota(out.begin(), out.end(), first);
    return out;
}

}  // namespace feroce::sim
