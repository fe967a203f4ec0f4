// ShadowChecker: a second copy of every node's memory, changed only by what the rules allow to
// change it. The first must equal it byte for byte, except where a transfer is under way: such a
// range is "open", with the patterns that may land in it. GuardChecker looks at the bytes around
// regions.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "sim/check/pattern.hpp"
#include "sim/check/report.hpp"
#include "sim/world.hpp"

namespace feroce::sim {

class ShadowChecker {
public:
    static constexpr const char* kName = "shadow";

    ShadowChecker(World& world, Report& report) : world_(world), report_(report) {}

    void attach();  // Once all nodes have laid out their memory.

    // The application itself writes.
    void write(std::uint32_t node, Range range, const Pattern& pattern);

    // From now on a transfer may put `pattern` into `range`, which lies in `place`.
    void open(std::uint32_t node, Range place, Range range, const Pattern& pattern);
    void open_to_all(std::uint32_t node, Range place);  // Whatever arrives: a posted receive.
    // The transfer is over: `range` holds the pattern, the rest of the place is as it was.
    void close_exact(std::uint32_t node, Range place, Range range, const Pattern& pattern);
    // It failed: each byte is as it was or as a pattern that was open here says.
    void close_failed(std::uint32_t node, Range place);
    void close_unseen(std::uint32_t node, Range place);  // Takes what is there.
    // A receive of `length` bytes, judged by others; the rest of its place is as it was.
    void close_received(std::uint32_t node, Range place, std::uint64_t length);
    // Words that atomics change are judged by the atomic checkers.
    void exempt(std::uint32_t node, Range place);

    void check();  // All nodes, all bytes that are not open.

private:
    struct Candidate {
        Range range;
        Pattern pattern;
    };
    struct Open {
        std::uint64_t length = 0;
        bool to_all = false;
        std::vector<Candidate> candidates;
    };
    struct Copy {
        std::vector<std::byte> bytes;
        std::map<std::uint64_t, Open> open;  // By offset; never overlap.
    };

    bool explained(std::uint32_t node, const Open& open, std::uint64_t offset) const;
    void compare(std::uint32_t node, Range range);
    void take(std::uint32_t node, Range range);  // Into the shadow, as it is.

    World& world_;
    Report& report_;
    std::vector<Copy> copies_;
};

class GuardChecker {
public:
    static constexpr const char* kName = "guards";

    GuardChecker(World& world, Report& report) : world_(world), report_(report) {}

    void check();

private:
    World& world_;
    Report& report_;
};

}  // namespace feroce::sim
