// Operations that are given up: stopped, or their coroutine destroyed, at each of their suspension
// points in turn. For containers: what node 1 gives up is judged by node 2, while node 0 changes
// something else all the while.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "sim/cancel_points.hpp"
#include "sim/gas_cluster.hpp"

namespace feroce::sim {

using namespace std::chrono_literals;

inline constexpr std::size_t kPoints = 120;

inline constexpr gas::Lease kLease{.time = 2s, .grace = 2s};
inline constexpr std::uint64_t kOther = 1000;  // The key of who disturbs.

struct Trial {
    bool given_up = false, last = false;
    std::optional<bool> done;  // What the operation said; nothing if it was destroyed before.
    std::size_t ended = 0, visited = 0;
};

// Everything is on node 0, which makes it and changes another key of it all the while. Node 1 gives
// up an operation at its k-th point. Node 2 says whether it was done, and has to meet no lock.
template <class Handle>
struct Scene {
    using Root = typename Handle::Root;
    const char* name;
    gas::ptr<Root> (*create)(gas::Node&);
    Handle (*open)(gas::Node&, gas::ptr<Root>);
    void (*disturb)(Handle&, std::uint64_t count);
};

template <class Handle, class Operate, class Done>
void play(gas::Node& node, const Scene<Handle>& scene, Handle handle, Trial& trial, std::size_t k,
          How how, Operate operate, Done done) {
    rdma::Loop& loop = node.loop();
    const auto id = static_cast<std::size_t>(node.id());
    for (std::uint64_t i = 0; id == 0 && !trial.given_up; ++i) {
        scene.disturb(handle, i);
        loop.run(nap(loop, 3us));
    }
    if (id == 1) {
        std::optional<Handle> own(std::move(handle));
        bool reached = false;
        const auto outcome = run_until(loop, operate(*own), k, how, reached);
        expect_cancelled(outcome);
        if (outcome) trial.done = bool(*outcome);
        own.reset();  // What goes on needs nothing of it.
        EXPECT_TRUE(wait_for(loop, [&] {
            return node.lanes().shelter().empty() && node.epochs().shelter().empty();
        })) << "never ends";
        trial.visited = reached ? 1 : 0;
        trial.last = !reached;
        trial.given_up = true;
    }
    if (id == 2) {
        ASSERT_TRUE(wait_for(loop, [&] { return trial.given_up; }));
        const Instant start = loop.now();
        const bool was_done = done(handle);
        EXPECT_LT(loop.now() - start, kLease.time) << "a lock was left, point " << k;
        if (trial.done) {
            EXPECT_EQ(was_done, *trial.done) << "point " << k;
        }
    }
}

template <class Handle, class Operate, class Done>
std::size_t visit(const Scene<Handle>& scene, How how, Operate operate, Done done) {
    GasCluster cluster(11, {.nodes = 3, .memory = 4 << 20, .memory_nodes = 1, .lease = kLease});
    std::vector<gas::ptr<typename Handle::Root>> roots(kPoints + 1);
    std::vector<Trial> trials(kPoints + 1);
    cluster.run([&](gas::Node& node, std::size_t) {
        for (std::size_t k = 1; k <= kPoints && !testing::Test::HasFailure(); ++k) {
            Trial& trial = trials[k];
            if (node.id() == gas::NodeId{0}) roots[k] = scene.create(node);
            ASSERT_TRUE(wait_for(node.loop(), [&] { return bool(roots[k]); }));
            play(node, scene, scene.open(node, roots[k]), trial, k, how, operate, done);
            ++trial.ended;
            ASSERT_TRUE(wait_for(node.loop(),
                                 [&] { return trial.ended == 3 || testing::Test::HasFailure(); }));
            if (trial.last) break;
        }
    });
    std::size_t visited = 0;
    bool all = false;
    for (const Trial& trial : trials) visited += trial.visited, all |= trial.last;
    EXPECT_TRUE(all) << "there are more points";
    return visited;
}

// For what only reads: sets `seen` if it gives what is right.
template <class T, class Right>
rdma::Task<gas::Result<T>> look(rdma::Task<gas::Result<T>> call, Right right, bool& seen) {
    seen = false;
    auto got = co_await std::move(call);
    seen = got && right(*got);
    co_return got;
}

// `done` says whether the operation was, after a look at all that it could have harmed.
template <class Handle, class Operate, class Done>
void expect_whole(const Scene<Handle>& scene, const char* operation, Operate operate, Done done) {
    for (const How how : {How::Stop, How::Destroy}) {
        const char* const given_up = how == How::Stop ? "stopped" : "destroyed";
        SCOPED_TRACE(std::string(scene.name) + " " + operation + " " + given_up);
        const std::size_t points = visit(scene, how, operate, done);
        std::printf("%-10s %-8s %-9s %4zu points\n", scene.name, operation, given_up, points);
        EXPECT_GT(points, 0u);
        if (testing::Test::HasFailure()) return;
    }
}

}  // namespace feroce::sim
