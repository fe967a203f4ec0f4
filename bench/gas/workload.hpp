// What threads of `./feroce bench gas` do: operations again and again for a while, several at a
// time if wanted, with the time of each, round trips and allocations counted.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "counting_new.hpp"
#include "feroce/gas/node.hpp"
#include "feroce/task_group.hpp"
#include "histogram.hpp"

namespace feroce::bench {

using gas::Result;
using rdma::Task;
using Operation = std::function<Task<Result<>>()>;

struct Tally {
    Histogram times;
    std::uint64_t count = 0;
    std::optional<gas::Error> error;
};

inline Task<void> repeat(rdma::Loop& loop, Instant end, const Operation& operation, Tally& tally) {
    for (Instant start = loop.now(); start < end;) {
        const Result<> done = co_await operation();
        if (!done) {
            tally.error = done.error();
            co_return;
        }
        const Instant now = loop.now();
        tally.times.add(static_cast<std::uint64_t>((now - start).count()));
        ++tally.count;
        start = now;
    }
}

// Runs all operations beside each other for that long. Ends the program if one fails.
inline Tally run_for(rdma::Loop& loop, Duration time, const std::vector<Operation>& operations) {
    Tally tally;
    const Instant end = loop.now() + time;
    rdma::TaskGroup group(loop);
    for (const Operation& operation : operations) group.spawn(repeat(loop, end, operation, tally));
    loop.run(group.join()).value();
    if (tally.error) no_value(tally.error->why.c_str());
    return tally;
}

// A line of JSON: what these operations cost on this thread.
inline void measure(gas::Lanes& lanes, const std::string& name, Duration time,
                    const std::vector<Operation>& operations) {
    run_for(lanes.loop(), time / 10, operations);  // Warm.
    const std::uint64_t trips = lanes.traffic().round_trips;
    const std::uint64_t allocated = allocations();
    const Tally tally = run_for(lanes.loop(), time, operations);
    const auto each = [&](std::uint64_t count) {
        return static_cast<double>(count) /
               static_cast<double>(std::max<std::uint64_t>(tally.count, 1));
    };
    std::printf(
        "{\"row\": \"%s\", \"tasks\": %zu, \"per_s\": %f, \"round_trips\": %f, "
        "\"allocations\": %f, \"times\": ",
        name.c_str(), operations.size(),
        static_cast<double>(tally.count) / std::chrono::duration<double>(time).count(),
        each(lanes.traffic().round_trips - trips), each(allocations() - allocated));
    tally.times.print();
    std::printf("}\n");
    std::fflush(stdout);
}

// YCSB's skew: the k-th most popular of `count` keys comes in proportion to 1 / k^0.99. Popular
// keys are spread over all.
class Zipf {
public:
    explicit Zipf(std::uint64_t count) {
        double sum = 0;
        for (std::uint64_t k = 1; k <= count; ++k)
            below_.push_back(sum += 1 / std::pow(static_cast<double>(k), 0.99));
    }
    std::uint64_t draw(Prng& random) const {
        const double at = below_.back() * static_cast<double>(random.below(1 << 30)) /
                          static_cast<double>(1 << 30);
        const auto rank = static_cast<std::uint64_t>(
            std::lower_bound(below_.begin(), below_.end(), at) - below_.begin());
        return rank * 0x9e37'79b9'7f4a'7c15 % below_.size();
    }

private:
    std::vector<double> below_;
};

}  // namespace feroce::bench
