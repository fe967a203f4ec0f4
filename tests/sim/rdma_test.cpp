// The C++ library on simulated nodes: the programs of its own tests, with faults.
#include "rdma/test_programs.hpp"

#include "sim/abi_world.hpp"
#include "sim/cm_peer.hpp"
#include "sim/sim_runtime.hpp"

using namespace feroce;
using namespace feroce::sim;
using namespace std::chrono_literals;

namespace {

rdma::Address address_of(AbiNode& node, std::uint16_t port) {
    const sockaddr_storage storage = socket_address(node.address(), port);
    return rdma::Address(reinterpret_cast<const sockaddr&>(storage));
}

std::uint64_t run(std::uint64_t seed, const Faults& faults) {
    AbiWorld world(seed, {.nodes = 2});
    world.world().set_faults(faults);
    const rdma::Address server = address_of(world.node(0), rdma::test::kPort);
    world.node(0).start("server", [&] {
        SimRuntime runtime(seed);
        rdma::Loop loop(runtime);
        rdma::Listener listener = rdma::Listener::listen(loop, server).value();
        loop.run(rdma::test::serve(loop, listener, 2));
    });
    world.node(1).start("client", [&] {
        SimRuntime runtime(seed);
        rdma::Loop loop(runtime);
        sleep_for(1ms);
        loop.run(rdma::test::use(loop, server));
        loop.run(rdma::test::use_raw(loop, server));
    });
    EXPECT_EQ(world.run_all(600s), "");
    world.run_for(120s);
    for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(world.node(i).leaks(), "");
    return world.trace_hash();
}

}  // namespace

TEST(RdmaSim, EveryOperation) {
    EXPECT_EQ(run(1, {}), run(1, {}));
}
