// Checks: all checkers of a run. They are always on.
#pragma once

#include "sim/check/atomic_checker.hpp"
#include "sim/check/completion_checker.hpp"
#include "sim/check/invariant_checker.hpp"
#include "sim/check/message_checker.hpp"
#include "sim/check/report.hpp"
#include "sim/check/shadow_checker.hpp"
#include "sim/world.hpp"

namespace feroce::sim {

struct Checks {
    explicit Checks(World& world)
        : report(world.scheduler()),
          completions(report),
          flush(report),
          messages(report),
          statuses(report),
          shadow(world, report),
          guards(world, report),
          invariants(report),
          fetch_add(report),
          compare_swap(report) {}

    // These are reported by the workload itself, which alone knows when they are due.
    static constexpr const char* kProgress = "progress";
    static constexpr const char* kTeardown = "teardown";
    static constexpr const char* kDrain = "drain";          // Of a send queue in SQD.
    static constexpr const char* kDepth = "depth";          // Outstanding READs and atomics.
    static constexpr const char* kDestroyed = "destroyed";  // Completion and receive queues.

    Report report;
    CompletionChecker completions;
    FlushChecker flush;
    MessageChecker messages;
    StatusChecker statuses;
    ShadowChecker shadow;
    GuardChecker guards;
    InvariantChecker invariants;
    FetchAddChecker fetch_add;
    CompareSwapChecker compare_swap;
};

}  // namespace feroce::sim
