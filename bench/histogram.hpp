// Histogram of times: 16 steps a power of two, so that a percentile is right within 6 percent, and
// nothing is allocated when one is added. Printed as JSON, read by figures.py.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>

namespace feroce::bench {

class Histogram {
public:
    void add(std::uint64_t ns) { ++counts_[step_of(ns)]; }
    void merge(const Histogram& other) {
        for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
    }
    void clear() { counts_.fill(0); }
    // {"STEP": COUNT, ...}, of steps that have any.
    void print() const {
        std::printf("{");
        const char* between = "";
        for (std::size_t i = 0; i < counts_.size(); ++i) {
            if (counts_[i] == 0) continue;
            std::printf("%s\"%zu\": %lu", between, i, counts_[i]);
            between = ", ";
        }
        std::printf("}");
    }

private:
    static std::size_t step_of(std::uint64_t ns) {
        if (ns < 16) return ns;
        const auto doublings = static_cast<std::size_t>(std::bit_width(ns)) - 5;
        return 16 + doublings * 16 + ((ns >> doublings) - 16);
    }

    std::array<std::uint64_t, 1024> counts_{};
};

}  // namespace feroce::bench
