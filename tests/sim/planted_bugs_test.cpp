// Checks that can fail: for each checker a bug is planted in an otherwise good run, and that
// checker must say so. The same run without the bug is clean.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "planting.hpp"
#include "sim/workload/scenario.hpp"

namespace feroce::sim {
namespace {

using transport::Completion;
using transport::QpType;
using transport::SendOp;
using transport::WcStatus;

// Two nodes, one connection, a calm network, every operation.
Swarm calm() {
    Swarm swarm;
    swarm.seed = 42;
    swarm.connections.resize(1);
    for (SendOp op : {SendOp::Send, SendOp::SendImmediate, SendOp::SendInvalidate, SendOp::Write,
                      SendOp::WriteImmediate, SendOp::Read, SendOp::CompareSwap, SendOp::FetchAdd})
        swarm.enable(op);
    return swarm;
}

bool found_by(const Scenario& scenario, const char* checker) {
    const auto& findings = scenario.report().findings();
    return std::any_of(findings.begin(), findings.end(), [&](const Finding& finding) {
        return std::string(finding.checker) == checker;
    });
}

void expect_found(Hooks hooks, const char* checker, Swarm swarm = calm()) {
    Scenario scenario(swarm, std::move(hooks));
    ASSERT_FALSE(scenario.run());
    EXPECT_TRUE(found_by(scenario, checker))
        << "only by " << scenario.report().findings()[0].checker;
}

// Calls `change` once, on the first completion for which `which` holds.
template <class Which, class Change>
Hooks once(Which which, Change change) {
    Hooks hooks;
    hooks.on_polled = [which, change, done = false](Node& node,
                                                    std::vector<Completion>& polled) mutable {
        for (std::size_t i = 0; i < polled.size() && !done; ++i) {
            if (!which(polled[i])) continue;
            done = true;
            change(node, polled, i);
        }
    };
    return hooks;
}

Hooks at_the_end(std::function<void(World&)> change) {
    Hooks hooks;
    hooks.on_drained = std::move(change);
    return hooks;
}

TEST(PlantedBugs, NoneIsClean) {
    Scenario scenario(calm());
    EXPECT_TRUE(scenario.run());
    EXPECT_GT(scenario.completions().at(WcStatus::Success), 200U);
}

TEST(PlantedBugs, CompletionTwice) {
    expect_found(once(is_send,
                      [](Node&, auto& polled, std::size_t i) {
                          const Completion twin = polled[i];
                          polled.insert(polled.begin() + static_cast<std::ptrdiff_t>(i), twin);
                      }),
                 CompletionChecker::kName);
}

TEST(PlantedBugs, CompletionSwallowed) {
    expect_found(once(is_send,
                      [](Node&, auto& polled, std::size_t i) {
                          polled.erase(polled.begin() + static_cast<std::ptrdiff_t>(i));
                      }),
                 CompletionChecker::kName);
}

TEST(PlantedBugs, SuccessAfterError) {
    // The queue pair is moved to error at the end; one flushed request claims success.
    Swarm swarm = calm();
    swarm.connections[0].shared_receives = false;
    bool seen = false;
    Hooks hooks;
    hooks.on_polled = [&seen](Node&, std::vector<Completion>& polled) {
        for (Completion& completion : polled) {
            if (completion.status != WcStatus::FlushError || is_send(completion)) continue;
            if (seen) completion.status = WcStatus::Success;
            seen = true;
        }
    };
    expect_found(hooks, FlushChecker::kName, swarm);
}

TEST(PlantedBugs, FailureWithoutCause) {
    expect_found(
        once(is_send, [](Node&, auto& polled,
                         std::size_t i) { polled[i].status = WcStatus::RemoteAccessError; }),
        StatusChecker::kName);
}

TEST(PlantedBugs, MessageAltered) {
    expect_found(once([](const Completion& c) { return c.has_immediate; },
                      [](Node&, auto& polled, std::size_t i) { polled[i].immediate ^= 1; }),
                 MessageChecker::kName);
}

TEST(PlantedBugs, MessageDeliveredTwice) {
    // The second receive hands out the first one's message again: equal length and immediate.
    Swarm swarm = calm();
    swarm.operations = 0;
    swarm.enable(SendOp::SendImmediate);
    Hooks hooks;
    hooks.on_polled = [last = 0u](Node& node, std::vector<Completion>& polled) mutable {
        for (Completion& completion : polled) {
            if (is_send(completion) || node.id() != 1) continue;
            if (last != 0) completion.immediate = last;
            last = completion.immediate;
        }
    };
    expect_found(hooks, MessageChecker::kName, swarm);
}

TEST(PlantedBugs, ByteFlippedInARegion) {
    // Behind the words and the library, at rest once everything is drained.
    expect_found(at_the_end([](World& world) {
                     Arena& arena = world.node(1).arena();
                     const Range guard = arena.guards()[2];
                     arena.bytes({guard.end() + 5, 1})[0] ^= std::byte{0x10};
                 }),
                 ShadowChecker::kName);
}

TEST(PlantedBugs, TransferWentWrong) {
    // One bit of the whole target memory is flipped just before a WRITE's completion is seen.
    Swarm swarm = calm();
    swarm.operations = 0;
    swarm.enable(SendOp::Send);
    swarm.enable(SendOp::Write);
    swarm.depth = 1;
    Scenario* running = nullptr;
    Hooks hooks = once(
        [](const Completion& c) {
            return c.opcode == transport::WcOpcode::Write && c.byte_length > 1000;
        },
        [&running](Node& node, auto&, std::size_t) {
            Arena& arena = running->world().node(1 - node.id()).arena();
            // Words, library, shared receives of both kinds, locals, targets: two guards around
            // each.
            const Range before = arena.guards()[10];
            const Range after = arena.guards()[11];
            for (auto at = before.end(); at < after.offset; ++at)
                arena.bytes({at, 1})[0] ^= std::byte{1};
        });
    Scenario scenario(swarm, hooks);
    running = &scenario;
    EXPECT_FALSE(scenario.run());
    ASSERT_TRUE(found_by(scenario, ShadowChecker::kName));
    EXPECT_NE(scenario.report().findings()[0].text.find("of a transfer that succeeded is wrong"),
              std::string::npos);
}

TEST(PlantedBugs, WritePastTheEnd) {
    expect_found(at_the_end([](World& world) {
                     Arena& arena = world.node(0).arena();
                     arena.bytes({arena.guards().back().offset, 1})[0] = std::byte{0};
                 }),
                 GuardChecker::kName);
}

TEST(PlantedBugs, FetchAddAppliedTwice) {
    expect_found(at_the_end([](World& world) {
                     Arena& arena = world.node(1).arena();
                     const std::uint64_t word = arena.guards()[0].end();
                     std::uint64_t value = 0;
                     std::memcpy(&value, arena.bytes({word, 8}).data(), 8);
                     ++value;
                     std::memcpy(arena.bytes({word, 8}).data(), &value, 8);
                 }),
                 FetchAddChecker::kName);
}

TEST(PlantedBugs, CompareSwapLost) {
    expect_found(at_the_end([](World& world) {
                     Arena& arena = world.node(1).arena();
                     const std::uint64_t word = arena.guards()[0].end() + 8 * Station::kFetchWords;
                     const std::uint64_t nonsense = ~std::uint64_t{0};
                     std::memcpy(arena.bytes({word, 8}).data(), &nonsense, 8);
                 }),
                 CompareSwapChecker::kName);
}

// Behind the machine's back, the timeout is no longer infinite: packets in flight have no timer.
TEST(PlantedBugs, InvariantBroken) {
    Hooks hooks;
    hooks.on_healed = [](World& world) {
        const auto plant = [&world] {
            world.node(0).engine(0).qps().for_each([](transport::QueuePair& qp) {
                if (qp.machine().progress().in_flight_bytes == 0) return;
                transport::QpAttributes changed = qp.attributes();
                changed.timeout = 14;
                qp.set_attributes(changed);
            });
        };
        // Events of their own: in a turn the node may send more, which starts the timer.
        for (int i = 1; i <= 100; ++i)
            world.scheduler().after(std::chrono::microseconds(2 * i), plant);
    };
    Swarm swarm = calm();
    swarm.connections[0].options.timeout = 0;
    expect_found(hooks, InvariantChecker::kName, swarm);
}

TEST(PlantedBugs, NoProgressAfterHeal) {
    Hooks hooks;
    hooks.on_healed = [](World& world) { world.uplink(0).set_blocked(true); };
    Swarm swarm = calm();
    swarm.connections[0].options.timeout = 0;  // Waits for ever, so nothing fails either.
    expect_found(hooks, Checks::kProgress, swarm);
}

TEST(PlantedBugs, QueuePairLeftBehind) {
    Hooks hooks;
    hooks.on_torn_down = [](World& world) {
        transport::QpInit init;
        static device::CompletionQueue cq(16, nullptr, nullptr);
        init.send_cq = init.receive_cq = &cq;
        init.pd = *world.node(0).memory().alloc_pd();
        ASSERT_TRUE(world.node(0).engine(0).create_qp(init).has_value());
    };
    expect_found(hooks, Checks::kTeardown);
}

// As calm(), with one kind of trouble that happens often.
Swarm troubled(bool Swarm::*trouble) {
    Swarm swarm = calm();
    swarm.*trouble = true;
    swarm.chaos = std::chrono::milliseconds(500);
    swarm.connections[0].options.timeout = 12;  // Retries do not run out by themselves.
    return swarm;
}

Swarm with_xrc(Swarm swarm) {
    swarm.connections[0].type = QpType::XrcInitiator;
    return swarm;
}

bool clean(const Swarm& swarm) {
    Scenario scenario(swarm);
    return scenario.run();
}

TEST(PlantedBugs, NoneOfTheTroublesIsOne) {
    EXPECT_TRUE(clean(with_xrc(calm())));
    EXPECT_TRUE(clean(troubled(&Swarm::drains)));
    EXPECT_TRUE(clean(troubled(&Swarm::resets)));
    EXPECT_TRUE(clean(with_xrc(troubled(&Swarm::receive_losses))));
}

TEST(PlantedBugs, XrcReceiveTwice) {
    expect_found(once([](const Completion& c) { return !is_send(c); },
                      [](Node&, auto& polled, std::size_t i) {
                          const Completion twin = polled[i];
                          polled.insert(polled.begin() + static_cast<std::ptrdiff_t>(i), twin);
                      }),
                 CompletionChecker::kName, with_xrc(calm()));
}

// A completion from before something was destroyed or reset comes out long after.
Hooks late_completion(bool send) {
    auto old = std::make_shared<std::optional<Completion>>();
    auto healed = std::make_shared<bool>(false);
    Hooks hooks;
    hooks.on_healed = [healed](World&) { *healed = true; };
    hooks.on_polled = [old, healed, send](Node&, std::vector<Completion>& polled) {
        for (std::size_t i = 0; i < polled.size(); ++i) {
            if (is_send(polled[i]) != send) continue;
            if (!*old) *old = polled[i];
            if (!*healed) continue;
            (*old)->qpn = polled[i].qpn;
            polled.insert(polled.begin() + static_cast<std::ptrdiff_t>(i), **old);
            *healed = false;
            return;
        }
    };
    return hooks;
}

TEST(PlantedBugs, ReceiveOfADestroyedQueue) {
    expect_found(late_completion(false), CompletionChecker::kName,
                 with_xrc(troubled(&Swarm::receive_losses)));
}

TEST(PlantedBugs, CompletionOfAnEarlierLife) {
    Swarm swarm = troubled(&Swarm::resets);
    swarm.destructions = true;
    expect_found(late_completion(true), CompletionChecker::kName, swarm);
}

TEST(PlantedBugs, DrainedQueueGoesOn) {
    Hooks hooks;
    hooks.on_event = [](Node& node, transport::QueuePair& qp, transport::AsyncEventType type) {
        if (type != transport::AsyncEventType::SendQueueDrained) return;
        qp.set_state(transport::QpState::Rts);
        node.wake();
    };
    expect_found(hooks, Checks::kDrain, troubled(&Swarm::drains));
}

TEST(PlantedBugs, NewAddressForgotten) {
    Hooks hooks;
    hooks.on_polled = [](Node& node, std::vector<Completion>&) {
        for_each_qp(node, [&node](transport::QueuePair& qp) {
            transport::QpAttributes changed = qp.attributes();
            changed.address.source = node.address();
            qp.set_attributes(changed);
        });
    };
    expect_found(hooks, StatusChecker::kName, troubled(&Swarm::drains));
}

}  // namespace
}  // namespace feroce::sim
