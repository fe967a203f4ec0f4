// The C++ library on simulated nodes: the programs of its own tests, with faults.
#include "rdma/test_programs.hpp"

#include "sim/abi_world.hpp"
#include "sim/cm_peer.hpp"
#include "sim/rdma_ledger.hpp"
#include "sim/seeds.hpp"
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

// What one run of the ledger came to, for comparison.
struct Outcome {
    std::uint64_t trace = 0;
    Ledger ledger;
};

Outcome keep_ledger(std::uint64_t seed) {
    constexpr std::size_t kClients = 2;
    Outcome out;
    Ledger& ledger = out.ledger;
    ledger.clients = kClients;
    AbiWorld world(seed, {.nodes = 1 + kClients, .ipv6 = seed % 3 == 2});
    const double rate = 0.04 * static_cast<double>(seed % 4);
    world.world().set_faults(
        {.loss = rate, .duplicate = rate / 2, .reorder = rate, .corrupt = rate / 4});
    const rdma::Address server = address_of(world.node(0), Ledger::kPort);
    world.node(0).start("server", [&] {
        SimRuntime runtime(seed);
        rdma::Loop loop(runtime);
        rdma::Listener listener = rdma::Listener::listen(loop, server).value();
        loop.run(keep(loop, listener, ledger).with(ledger.over.get_token()));
    });
    std::size_t left = kClients;
    for (std::size_t client = 0; client < kClients; ++client)
        world.node(1 + client).start("client", [&, client] {
            SimRuntime runtime(seed);
            rdma::Loop loop(runtime);
            sleep_for(1ms);
            loop.run(work(loop, server, client, ledger));
            if (--left == 0) ledger.over.request_stop();
        });
    // In some runs the power of one client fails in the middle.
    const bool crash = seed % 5 == 4;
    if (crash) {
        world.run_for(1ms + std::chrono::microseconds(world.random().below(2000)));
        world.node(2).crash();
        if (--left == 0) ledger.over.request_stop();
    }
    EXPECT_EQ(world.run_all(3600s), "");
    world.run_for(300s);
    for (std::size_t i = 0; i < world.size(); ++i) {
        const bool crashed = crash && i == 2;
        EXPECT_EQ(crashed ? "" : world.node(i).leaks(), "") << i;
    }
    out.trace = world.trace_hash();
    return out;
}

}  // namespace

TEST(RdmaSim, EveryOperation) {
    EXPECT_EQ(run(1, {}), run(1, {}));
}

TEST(RdmaSim, EveryAddCountsOnceAndEveryPageIsAsWritten) {
    Ledger all;
    const auto all_seeds = seeds(20);
    for (const std::uint64_t seed : all_seeds) {
        const Outcome first = keep_ledger(seed);
        const Ledger& ledger = first.ledger;
        EXPECT_GE(ledger.counter, ledger.adds_done) << seed;
        EXPECT_LE(ledger.counter, ledger.adds_begun) << seed;
        ASSERT_EQ(first.trace, keep_ledger(seed).trace) << seed;
        if (HasFailure()) FAIL() << "seed " << seed;
        all.adds_done += ledger.adds_done;
        all.pages_verified += ledger.pages_verified;
        all.echoes += ledger.echoes;
        all.given_up += ledger.given_up;
        all.broken += ledger.broken;
    }
    // The runs did what they are for.
    EXPECT_GT(all.adds_done, 10 * all_seeds.size());
    EXPECT_GT(all.pages_verified, 10 * all_seeds.size());
    EXPECT_GT(all.echoes, all_seeds.size());
    EXPECT_GT(all.given_up, 0u);
    EXPECT_GT(all.broken, 0u);
}
