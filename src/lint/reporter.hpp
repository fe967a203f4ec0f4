// Reporter: lets each finding through once for a place, and only so many at all: a program with
// one mistake in a loop is told once, and one with a thousand mistakes can still be read.
#pragma once

#include <cstddef>
#include <functional>
#include <set>
#include <utility>

#include "lint/words.hpp"

namespace feroce::lint {

class Reporter {
public:
    static constexpr std::size_t kReportsMax = 100;
    using Tell = std::function<void(const Finding&)>;

    explicit Reporter(Tell tell) : tell_(std::move(tell)) {}
    void found(const Finding& finding);
    std::size_t count() const { return told_.size(); }

private:
    Tell tell_;
    std::set<std::pair<Kind, Place>> told_;
};

}  // namespace feroce::lint
