// Places: where in the program calls are made. A backtrace of the calling thread gets a number;
// the same call by the same callers gets the same one. Bounded. Only while lint is on.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lint/words.hpp"

namespace feroce::verbs {

struct Trace {
    static constexpr int kFrames = 12;
    std::array<void*, kFrames> frames{};  // Return addresses, innermost first, without our own.
    int count = 0;

    // The innermost frames tell places apart: one mistake is reached by many ways.
    static constexpr std::size_t kTelling = 3;
    friend bool operator<(const Trace& a, const Trace& b) {
        return std::lexicographical_compare(a.frames.begin(), a.frames.begin() + kTelling,
                                            b.frames.begin(), b.frames.begin() + kTelling);
    }
};

Trace trace_here();

// Its owner holds a lock.
class Places {
public:
    static constexpr std::size_t kPlacesMax = 4096;

    lint::Place number(const Trace& trace);         // 0 if there are too many.
    std::string describe(lint::Place place) const;  // A line a frame, indented.

private:
    std::map<Trace, lint::Place> numbers_;
    std::vector<Trace> traces_;  // Place is the index + 1.
};

}  // namespace feroce::verbs
