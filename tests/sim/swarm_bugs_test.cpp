// Bugs of the kinds that the swarm draws: XRC, drained and reset queue pairs, queues that are
// destroyed. Each is planted in seeds as `simrun` runs them and found within the first few, which
// are clean without it.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include "planting.hpp"
#include "sim/workload/scenario.hpp"

namespace feroce::sim {
namespace {

using transport::Completion;
using transport::QpState;
using transport::QpType;
using transport::QueuePair;

constexpr std::uint64_t kSeeds = 20;

QueuePair* qp_of(Node& node, const Completion& completion) {
    return node.engine_of(completion.qpn).qps().find(completion.qpn);
}

// One life of one queue pair.
using Life = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;
Life life_of(Node& node, const QueuePair& qp) {
    return {node.id(), qp.qpn().raw, qp.attributes().send_psn.raw()};
}

// The first seed in which that checker finds the bug; every seed has hooks of its own.
template <class Plant>
std::optional<std::uint64_t> found_in(Plant plant, const std::string& checker) {
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
        Scenario scenario(Swarm::draw(seed), plant());
        scenario.run();
        const auto& findings = scenario.report().findings();
        const auto is_it = [&](const Finding& finding) { return finding.checker == checker; };
        if (std::any_of(findings.begin(), findings.end(), is_it)) {
            std::printf("found in seed %llu\n", static_cast<unsigned long long>(seed));
            return seed;
        }
    }
    return std::nullopt;
}

TEST(SwarmBugs, NoneIsClean) {
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
        Scenario scenario(Swarm::draw(seed));
        EXPECT_TRUE(scenario.run()) << "seed " << seed;
    }
}

Hooks xrc_receive_twice() {
    Hooks hooks;
    hooks.on_polled = [](Node& node, std::vector<Completion>& polled) {
        for (std::size_t i = 0; i < polled.size(); ++i) {
            const QueuePair* qp = qp_of(node, polled[i]);
            if (is_send(polled[i]) || qp == nullptr || qp->type() != QpType::XrcTarget) continue;
            const Completion twin = polled[i];
            polled.insert(polled.begin() + static_cast<std::ptrdiff_t>(i), twin);
            return;
        }
    };
    return hooks;
}

TEST(SwarmBugs, XrcReceiveCompletesTwice) {
    EXPECT_TRUE(found_in(xrc_receive_twice, CompletionChecker::kName));
}

Hooks drained_goes_on() {
    Hooks hooks;
    hooks.on_event = [](Node& node, QueuePair& qp, transport::AsyncEventType type) {
        if (type != transport::AsyncEventType::SendQueueDrained) return;
        qp.set_state(QpState::Rts);
        node.wake();
    };
    return hooks;
}

TEST(SwarmBugs, DrainedSendQueueGoesOn) {
    EXPECT_TRUE(found_in(drained_goes_on, Checks::kDrain));
}

// Modifying the queue pair has no effect on what its requester goes by.
Hooks depth_ignored() {
    auto first = std::make_shared<std::map<Life, std::uint8_t>>();
    Hooks hooks;
    hooks.on_polled = [first](Node& node, std::vector<Completion>& polled) {
        for (const Completion& completion : polled) {
            QueuePair* qp = qp_of(node, completion);
            if (qp == nullptr || qp->type() != QpType::Rc || qp->state() != QpState::Rts) continue;
            transport::QpAttributes changed = qp->attributes();
            const std::uint8_t depth = changed.read_atomic_max;
            const std::uint8_t old = first->emplace(life_of(node, *qp), depth).first->second;
            if (depth >= old) continue;
            changed.read_atomic_max = old;
            qp->set_attributes(changed);
            qp->machine().on_modify(node.now(), QpState::Sqd);
        }
    };
    return hooks;
}

TEST(SwarmBugs, ChangedDepthIsIgnored) {
    EXPECT_TRUE(found_in(depth_ignored, Checks::kDepth));
}

// RESET once leaves a completion of the queue pair in the completion queue.
Hooks reset_purges_nothing() {
    struct Last {
        Life life;
        Completion completion;
    };
    auto seen = std::make_shared<std::map<std::pair<std::uint32_t, std::uint32_t>, Last>>();
    Hooks hooks;
    hooks.on_polled = [seen, done = false](Node& node, std::vector<Completion>& polled) mutable {
        for (std::size_t i = 0; i < polled.size() && !done; ++i) {
            const QueuePair* qp = qp_of(node, polled[i]);
            if (qp == nullptr || !is_send(polled[i])) continue;
            const Last now{life_of(node, *qp), polled[i]};
            Last& last = seen->try_emplace({node.id(), qp->qpn().raw}, now).first->second;
            const Last before = std::exchange(last, now);
            if (before.life == now.life) continue;
            polled.insert(polled.begin() + static_cast<std::ptrdiff_t>(i), before.completion);
            done = true;
        }
    };
    return hooks;
}

TEST(SwarmBugs, ResetLeavesACompletionBehind) {
    EXPECT_TRUE(found_in(reset_purges_nothing, CompletionChecker::kName));
}

Hooks completes_in_a_destroyed_queue() {
    Hooks hooks;
    hooks.on_destroyed = [](const Station::Destroyed& queues) {
        if (!queues.empty()) queues.front()->push(Completion{});
    };
    return hooks;
}

TEST(SwarmBugs, CompletionGoesToADestroyedQueue) {
    EXPECT_TRUE(found_in(completes_in_a_destroyed_queue, Checks::kDestroyed));
}

}  // namespace
}  // namespace feroce::sim
