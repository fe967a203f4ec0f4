#include "sim/gas_cluster.hpp"

#include "sim/cm_peer.hpp"
#include "sim/fiber.hpp"
#include "sim/sim_runtime.hpp"

namespace feroce::sim {
namespace {

GasCluster* current = nullptr;
double yields = 0;

// Others run here, for as long as a word's way between caches may take and longer.
void yield_sometimes() {
    if (current == nullptr || Fiber::current() == nullptr) return;
    if (!current->random().chance(yields)) return;
    // Not sleep_for: destructors come here too, and must not throw when their node goes away.
    Machine& machine = here().machine();
    machine.sleep_until(machine.now() +
                        Duration(static_cast<Duration::rep>(current->random().below(3000))));
}

std::string text_of(AbiNode& node) {
    const sockaddr_storage storage = socket_address(node.address(), 7474);
    return rdma::Address(reinterpret_cast<const sockaddr&>(storage)).text();
}

}  // namespace

GasCluster::GasCluster(std::uint64_t seed, const ClusterOptions& options)
    : options_(options),
      seed_(seed),
      world_(seed, {.nodes = options.nodes}),
      random_(seed ^ 0x9e37'79b9'7f4a'7c15) {
    world_.world().set_faults(options.faults);
    current = this;
    yields = options.yields;
    gas::detail::before_shared_access = yield_sometimes;
}

GasCluster::~GasCluster() {
    gas::detail::before_shared_access = nullptr;
    current = nullptr;
}

gas::NodeOptions GasCluster::options_of(std::size_t node) const {
    gas::NodeOptions out;
    out.placement.rank = static_cast<std::uint16_t>(node);
    out.placement.size = static_cast<std::uint16_t>(options_.nodes);
    out.placement.seed = text_of(const_cast<GasCluster*>(this)->world_.node(0));
    out.memory = node < options_.memory_nodes ? options_.memory : 0;
    out.threads = options_.threads;
    out.patience = options_.patience;
    out.trust_global_atomics = options_.trust_global_atomics;
    out.silence = options_.silence;
    out.lease = options_.lease;
    out.check_memory = options_.check_memory;
    out.runtime = [seed = seed_] { return std::make_unique<SimRuntime>(seed); };
    return out;
}

void GasCluster::join_and_run(std::size_t index, const Program& program) {
    auto node = gas::Node::join(options_of(index));
    ASSERT_TRUE(node) << node.error().why;
    std::size_t running = options_.threads - std::size_t{1};
    for (std::size_t thread = 1; thread < options_.threads; ++thread)
        world_.node(index).start("thread", [&, thread] {
            program(*node, thread);
            --running;
        });
    program(*node, 0);
    while (running > 0) pause();
    const auto left = node->leave();
    EXPECT_TRUE(left) << left.error().why;
}

void GasCluster::meet() {
    const std::size_t all = options_.nodes * options_.threads;
    const std::size_t until = met_ - met_ % all + all;
    ++met_;
    while (met_ < until) pause();
}

std::uint64_t GasCluster::run(const Program& program) {
    for (std::size_t i = 0; i < options_.nodes; ++i)
        world_.node(i).start("node " + std::to_string(i), [&, i] { join_and_run(i, program); });
    EXPECT_EQ(world_.run_all(options_.limit), "");
    return world_.trace_hash();
}

}  // namespace feroce::sim
