// What the programs of `./feroce bench rtrs` are asked for, and how they say what they found.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

#include "../verbs/measure.hpp"
#include "feroce/rtrs/histogram.hpp"

namespace feroce::bench {

struct Workload {
    bool write = false;
    std::uint32_t size = 4096;
    std::uint32_t depth = 1;
    double seconds = 1;
    int paths = 1;  // Of sessions.

    // PROGRAM read|write SIZE DEPTH SECONDS [PATHS]
    static Workload parse(int count, char** words) {
        require(count >= 5, "usage: read|write SIZE DEPTH SECONDS [PATHS]");
        return {std::string(words[1]) == "write", static_cast<std::uint32_t>(std::atoi(words[2])),
                static_cast<std::uint32_t>(std::atoi(words[3])), std::atof(words[4]),
                count > 5 ? std::atoi(words[5]) : 1};
    }
};

inline void print_requests(const Workload& load, double requests, double seconds,
                           const rtrs::Histogram& latency) {
    const auto us = [&](double share) {
        return static_cast<double>(latency.percentile(share).count()) / 1000;
    };
    std::printf(
        "{\"kIOPS\": %.3f, \"GB_per_s\": %.4f, \"us_p50\": %.2f, \"us_p99\": %.2f, "
        "\"us_p999\": %.2f}\n",
        requests / seconds / 1000, requests * load.size / seconds / 1e9, us(0.5), us(0.99),
        us(0.999));
}

}  // namespace feroce::bench
