// AbiWorld: simulated nodes for programs written on <infiniband/verbs.h> and <rdma/rdma_cma.h>.
// Each node has a process object of its own over sim::Machine, and its programs are fibers that
// call the C ABI as threads would: polling, waiting for events, or both. Everything runs in one
// thread and virtual time; same seed, same run. tests/sim/README.md shows a test in thirty lines.
//
// What a program registers must come from here().memory(), and what it decides must not depend on
// addresses of anything else, or runs of one seed differ.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <memory_resource>
#include <string>
#include <vector>

#include "process/waiting.hpp"
#include "sim/world.hpp"
#include "verbs/instance.hpp"

namespace feroce::sim {

class AbiNode {
public:
    AbiNode(Machine& machine, const verbs::Instance::Wishes& wishes);
    AbiNode(const AbiNode&) = delete;
    AbiNode& operator=(const AbiNode&) = delete;
    ~AbiNode();  // Ends programs that still run; what they opened must be closed by then.

    // Starts a program. The name is for messages of run_all().
    void start(std::string name, std::function<void()> program);
    // Calls something in the name of this node from outside of its programs; must not wait.
    void call(const std::function<void()>& body);
    // Wakes programs that wait, for what the simulator cannot see: a flag that was set.
    void poke() { machine_.make_news(); }

    // The power fails: nothing of it runs or sends any more.
    void crash();
    // Unwinds programs that still run or died. They may look at what they refer to for the last
    // time.
    void end_programs();
    bool idle();  // No program runs.

    Machine& machine() { return machine_; }
    const Gid& address() const { return machine_.address(); }
    const Gid& address(std::size_t rail) const {
        return rail == 0 ? address() : machine_.rail_addresses()[rail - 1];
    }
    std::pmr::memory_resource& memory() { return machine_.memory(); }
    verbs::Instance& instance() { return *instance_; }
    // What programs left behind, as a sentence; empty if nothing. Ask when all have ended and
    // timewait is over.
    std::string leaks();

private:
    friend class AbiWorld;
    struct Program {
        std::string name;
        std::shared_ptr<Machine::Strand> strand;
    };

    Machine& machine_;
    verbs::Instance* instance_;  // Owned; a unique_ptr would be null while fibers end with it.
    std::vector<Program> programs_;
    bool crashed_ = false;
};

class AbiWorld final : process::Waiter {
public:
    struct Options {
        std::size_t nodes = 2;
        std::uint32_t shards = 1;  // Engines of a node.
        Duration keepalive{};      // Of the connection managers; 0: none.
        bool foreign = false;      // Each takes the others for no Feroce.
        std::size_t rails = 1;     // Interfaces of a node, each on a network of its own.
        bool ipv6 = false;
        MachineConfig machine = {};
        LinkConfig link = {};  // Both ways.
    };

    AbiWorld(std::uint64_t seed, const Options& options);
    ~AbiWorld() override;

    AbiNode& node(std::size_t index) { return *nodes_[index]; }
    std::size_t size() const { return nodes_.size(); }
    World& world() { return world_; }
    Prng& random() { return world_.random(); }
    Instant now() const { return world_.now(); }
    std::uint64_t trace_hash() { return world_.trace().hash(); }

    // Runs until every program of a node that has not crashed has ended, at most so long. Says who
    // still runs; empty if nobody.
    std::string run_all(Duration limit);
    void run_for(Duration time) { world_.scheduler().run_until(now() + time); }

private:
    void on_event() override;
    void wait_for_event() override;
    void wait_a_while() override;

    World world_;
    std::vector<std::unique_ptr<AbiNode>> nodes_;
};

// For programs.
AbiNode& here();  // The node that runs now.
void pause();     // Lets others run: until something happens here, or a moment later.
void wait_for_news(Duration at_most);  // Frames or events; completions alone are none.
void sleep_for(Duration time);         // Virtual time.

}  // namespace feroce::sim
