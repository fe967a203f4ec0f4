// Scenario: one seeded run from an empty world to an empty world: set up, chaos, heal, drain, tear
// down, with all checkers on. Same seed, same trace hash.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "sim/check/checks.hpp"
#include "sim/workload/connection.hpp"
#include "sim/workload/station.hpp"
#include "sim/workload/swarm.hpp"
#include "sim/world.hpp"

namespace feroce::sim {

// Where a test can plant a bug, to show that the checker for it is awake.
struct Hooks {
    std::function<void(Node&, std::vector<transport::Completion>&)> on_polled;
    std::function<void(Node&, transport::QueuePair&, transport::AsyncEventType)> on_event;
    std::function<void(World&)> on_chaos_end;  // Before the network heals.
    std::function<void(World&)> on_healed;     // The network is good again.
    std::function<void(World&)> on_drained;    // All work is done, nothing is checked yet.
    std::function<void(World&)> on_torn_down;
    // A node's completion queues that were destroyed, as far as they are watched.
    std::function<void(const Station::Destroyed&)> on_destroyed;
};

class Scenario final : public Application {
public:
    explicit Scenario(const Swarm& swarm, Hooks hooks = {});

    World& world() { return world_; }
    const Report& report() const { return checks_.report; }
    // How many completions there were of each status.
    using StatusCounts = std::map<transport::WcStatus, std::uint64_t>;
    const StatusCounts& completions() const { return completions_; }

    bool run();  // True if no checker complained.

    // Application
    void on_turn(Node& node) override;
    void on_qp_event(Node& node, transport::QueuePair& qp, transport::AsyncEventType type) override;

private:
    void build();
    std::uint64_t arena_bytes() const;
    void run_chaos();
    void run_heal();
    void drain();
    void tear_down();
    void check_everything();
    void check_invariants();

    void poll_all();
    void drain_all();
    void poll(Station& station);
    void poll(Node& node, device::CompletionQueue& cq);
    void dispatch(Node& node, const transport::Completion& completion);
    void repair_later(Connection& connection, Duration delay);
    void repair(Connection& connection);
    void next_disaster();
    void cause_disaster();
    void partition();
    void pause_somebody();
    void destroy_something();
    void reset_something();
    void deregister_something();
    void drain_something();
    void lose_receives();
    Duration draw_time(Duration max);

    Swarm swarm_;
    Hooks hooks_;
    World world_;
    Checks checks_;
    Prng random_;  // For the workload, apart from the network's.
    Context context_;
    std::vector<std::unique_ptr<Station>> stations_;
    std::vector<std::unique_ptr<Connection>> connections_;
    bool chaos_ = false;
    StatusCounts completions_;
};

}  // namespace feroce::sim
