// Report: where checkers say what they found. A run is good when nobody said anything.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "sim/scheduler.hpp"

namespace feroce::sim {

struct Finding {
    const char* checker = "";
    Instant when;
    std::string text;
};

class Report {
public:
    explicit Report(const Scheduler& scheduler) : scheduler_(scheduler) {}

    // Only the first findings are kept: what follows from a broken run says little.
    void fail(const char* checker, std::string text) {
        ++total_;
        if (findings_.size() < kKept)
            findings_.push_back({checker, scheduler_.now(), std::move(text)});
    }
    bool ok() const { return total_ == 0; }
    std::size_t total() const { return total_; }
    const std::vector<Finding>& findings() const { return findings_; }

private:
    static constexpr std::size_t kKept = 16;

    const Scheduler& scheduler_;
    std::size_t total_ = 0;
    std::vector<Finding> findings_;
};

}  // namespace feroce::sim
