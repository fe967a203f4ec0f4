// Programs on <rdma/rdma_cma.h> over the simulator: connections in all the ways programs make them.
// abi_storm_test.cpp does it with many nodes and losses.
#include <gtest/gtest.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include <cstring>
#include <numeric>
#include <string>

#include "sim/abi_world.hpp"
#include "sim/cm_peer.hpp"
#include "sim/silent_peer.hpp"

namespace feroce::sim {
namespace {

using namespace std::chrono_literals;

constexpr std::uint16_t kPort = 7471;
constexpr char kGreeting[] = "across the simulated wire";

class AbiCm : public testing::Test {
protected:
    void run() {
        EXPECT_EQ(world.run_all(600s), "");
        world.run_for(120s);  // Timewait.
        for (std::size_t i = 0; i < world.size(); ++i) EXPECT_EQ(world.node(i).leaks(), "");
    }

    AbiWorld world{1, {.nodes = 2}};
    AbiNode& server = world.node(0);
    AbiNode& client = world.node(1);
};

// The calls that wait, as in rdma-core's example programs: nothing here knows of the simulator.
ibv_qp_init_attr small_qp() {
    ibv_qp_init_attr out{};
    out.qp_type = IBV_QPT_RC;
    out.cap = {4, 4, 1, 1, 0};
    out.sq_sig_all = 1;
    return out;
}

rdma_cm_id* make_endpoint(const std::string& host, int flags) {
    rdma_addrinfo hints{};
    hints.ai_port_space = RDMA_PS_TCP;
    hints.ai_flags = flags | RAI_NUMERICHOST;
    rdma_addrinfo* info = nullptr;
    EXPECT_EQ(rdma_getaddrinfo(host.c_str(), std::to_string(kPort).c_str(), &hints, &info), 0);
    ibv_qp_init_attr qp = small_qp();
    rdma_cm_id* id = nullptr;
    EXPECT_EQ(rdma_create_ep(&id, info, nullptr, &qp), 0) << std::strerror(errno);
    rdma_freeaddrinfo(info);
    return id;
}

void serve_synchronously() {
    rdma_cm_id* listener = make_endpoint("10.0.0.1", RAI_PASSIVE);
    ASSERT_EQ(rdma_listen(listener, 0), 0);
    rdma_cm_id* id = nullptr;
    ASSERT_EQ(rdma_get_request(listener, &id), 0);
    std::pmr::vector<char> buffer(64, &here().memory());
    ibv_mr* mr = rdma_reg_msgs(id, buffer.data(), buffer.size());
    ASSERT_EQ(rdma_post_recv(id, nullptr, buffer.data(), buffer.size(), mr), 0);
    ASSERT_EQ(rdma_accept(id, nullptr), 0);
    ibv_wc wc;
    ASSERT_EQ(rdma_get_recv_comp(id, &wc), 1);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_STREQ(buffer.data(), kGreeting);
    EXPECT_EQ(rdma_disconnect(id), 0);
    rdma_dereg_mr(mr);
    rdma_destroy_ep(id);
    rdma_destroy_ep(listener);
}

void ask_synchronously() {
    rdma_cm_id* id = make_endpoint("10.0.0.1", 0);
    std::pmr::vector<char> buffer(kGreeting, kGreeting + sizeof kGreeting, &here().memory());
    ibv_mr* mr = rdma_reg_msgs(id, buffer.data(), buffer.size());
    ASSERT_EQ(rdma_connect(id, nullptr), 0) << std::strerror(errno);
    ASSERT_EQ(rdma_post_send(id, nullptr, buffer.data(), buffer.size(), mr, 0), 0);
    ibv_wc wc;
    ASSERT_EQ(rdma_get_send_comp(id, &wc), 1);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(rdma_disconnect(id), 0);
    rdma_dereg_mr(mr);
    rdma_destroy_ep(id);
}

TEST_F(AbiCm, EndpointsThatWait) {
    server.start("server", serve_synchronously);
    client.start("client", ask_synchronously);
    run();
}

TEST_F(AbiCm, EndpointsThatWaitWhileHalfTheFramesAreLost) {
    world.world().set_faults({.loss = 0.5});
    server.start("server", serve_synchronously);
    client.start("client", ask_synchronously);
    EXPECT_EQ(world.run_all(6000s), "");
}

TEST_F(AbiCm, WhatProgramsHoldIsSeen) {
    client.start("client", [&] {
        CmPeer peer;
        EXPECT_EQ(client.leaks(), "");
        EXPECT_FALSE(peer.connect(server.address(), kPort, 1s).has_value());
        const std::string seen = client.leaks();
        for (const char* what : {"1 rdma_cm ids", "1 connections", "objects in a context",
                                 "1 queue pairs", "timer of the connection manager"})
            EXPECT_NE(seen.find(what), std::string::npos) << what << " is not in:" << seen;
    });
    run();
}

TEST_F(AbiCm, NobodyListens) {
    client.start("client", [] {
        CmPeer peer;
        EXPECT_FALSE(peer.connect(Gid::from_v4(0x0a00'0001), kPort, 1s).has_value());
        const std::optional<CmNews> news = peer.event(100s);
        ASSERT_TRUE(news.has_value());
        EXPECT_EQ(news->type, RDMA_CM_EVENT_UNREACHABLE) << "no connection manager runs there";
    });
    run();
}

// Accepts one request and waits for the end of the connection.
void serve_one(const Gid& own) {
    CmPeer listener;
    sockaddr_storage address = socket_address(own, kPort);
    ASSERT_EQ(rdma_bind_addr(listener.id(), reinterpret_cast<sockaddr*>(&address)), 0);
    ASSERT_EQ(rdma_listen(listener.id(), 0), 0);
    const std::optional<CmNews> request = listener.event(60s);
    ASSERT_TRUE(request.has_value());
    CmPeer peer(request->id);
    ASSERT_TRUE(peer.make_qp());
    ASSERT_EQ(peer.accept(), 0);
    EXPECT_EQ(peer.event(60s)->type, RDMA_CM_EVENT_ESTABLISHED);
    EXPECT_EQ(peer.event(600s)->type, RDMA_CM_EVENT_DISCONNECTED);
}

TEST_F(AbiCm, DisconnectFromAPeerThatWasKilled) {
    server.start("server", [] { serve_one(here().address()); });
    client.start("client", [&] {
        CmPeer peer;
        EXPECT_FALSE(peer.connect(server.address(), kPort, 1s).has_value());
        EXPECT_EQ(peer.event(60s)->type, RDMA_CM_EVENT_ESTABLISHED);
        server.crash();
        const Instant asked = world.now();
        ASSERT_EQ(rdma_disconnect(peer.id()), 0);
        const std::optional<CmNews> news = peer.event(100s);
        ASSERT_TRUE(news.has_value());
        EXPECT_EQ(news->type, RDMA_CM_EVENT_DISCONNECTED);
        EXPECT_EQ(news->status, -ETIMEDOUT);
        EXPECT_LT(world.now() - asked, 15s);
        EXPECT_EQ(peer.event(100s)->type, RDMA_CM_EVENT_TIMEWAIT_EXIT);
    });
    EXPECT_EQ(world.run_all(600s), "");
    EXPECT_EQ(client.leaks(), "");
}

// Nobody is left on its machine who could tell.
TEST(AbiCmKeepAlive, AnIdlePeerThatWasKilledIsNoticed) {
    AbiWorld world(1, {.keepalive = 15s});
    AbiNode& server = world.node(0);
    server.start("server", [] { serve_one(here().address()); });
    world.node(1).start("client", [&] {
        CmPeer peer;
        EXPECT_FALSE(peer.connect(server.address(), kPort, 1s).has_value());
        EXPECT_EQ(peer.event(60s)->type, RDMA_CM_EVENT_ESTABLISHED);
        expect_crash_is_noticed(world, server, peer);
        if (testing::Test::HasFatalFailure()) return;
        EXPECT_EQ(peer.event(100s)->type, RDMA_CM_EVENT_TIMEWAIT_EXIT);
    });
    EXPECT_EQ(world.run_all(600s), "");
    EXPECT_EQ(world.node(1).leaks(), "");
}

// The same with a peer that does not answer ALIVE: queue pairs ask each other, before and after
// they have sent something.
ibv_wc completion_of(CmPeer& peer, Duration patience) {
    const Instant end = here().machine().now() + patience;
    for (;;) {
        if (const std::optional<ibv_wc> wc = peer.completion_now()) return *wc;
        if (here().machine().now() >= end) return {};
        wait_for_news(end - here().machine().now());
    }
}

void be_idle_with_a_foreigner(AbiWorld& world, bool sends) {
    AbiNode& server = world.node(0);
    CmPeer peer;
    EXPECT_FALSE(peer.connect(server.address(), kPort, 1s).has_value());
    EXPECT_EQ(peer.event(60s)->type, RDMA_CM_EVENT_ESTABLISHED);
    if (sends) {
        peer.send(100);
        EXPECT_EQ(completion_of(peer, 10s).status, IBV_WC_SUCCESS);
    }
    expect_crash_is_noticed(world, server, peer);
    if (testing::Test::HasFatalFailure()) return;
    // Its receive is given back, so that whoever waits for completions alone hears of it.
    EXPECT_EQ(completion_of(peer, 1s).status, IBV_WC_WR_FLUSH_ERR);
    ibv_qp_attr attributes{};
    ibv_qp_init_attr init{};
    EXPECT_EQ(ibv_query_qp(peer.id()->qp, &attributes, IBV_QP_STATE, &init), 0);
    EXPECT_EQ(attributes.qp_state, IBV_QPS_ERR);
    EXPECT_EQ(peer.event(100s)->type, RDMA_CM_EVENT_TIMEWAIT_EXIT);
}

TEST(AbiCmKeepAlive, AnIdleForeignPeerIsAskedByItsQueuePair) {
    for (const bool sends : {false, true}) {
        AbiWorld world(1, {.keepalive = 15s, .foreign = true});
        world.node(0).start("server", [] { serve_one(here().address()); });
        world.node(1).start("client", [&] { be_idle_with_a_foreigner(world, sends); });
        EXPECT_EQ(world.run_all(600s), "");
        EXPECT_EQ(world.node(1).leaks(), "");
    }
}

// The address of an established connection goes away: the cause, then the end.
void lose_address(AbiNode& server, AbiNode& client, const std::vector<Gid>& left,
                  rdma_cm_event_type cause) {
    server.start("server", [] { serve_one(here().address()); });
    client.start("client", [&server, &client, left, cause] {
        CmPeer peer;
        EXPECT_FALSE(peer.connect(server.address(), kPort, 1s).has_value());
        EXPECT_EQ(peer.event(60s)->type, RDMA_CM_EVENT_ESTABLISHED);
        client.machine().set_addresses(left);
        EXPECT_EQ(peer.event(1s)->type, cause);
        EXPECT_EQ(peer.event(0s)->type, RDMA_CM_EVENT_DISCONNECTED);
        EXPECT_EQ(peer.event(0s)->type, RDMA_CM_EVENT_TIMEWAIT_EXIT);
        EXPECT_EQ(rdma_disconnect(peer.id()), 0);
        client.machine().set_addresses({client.address()});
    });
}

TEST_F(AbiCm, AddressThatGoesAway) {
    lose_address(server, client, {Gid::from_v4(0x0a00'0909)}, RDMA_CM_EVENT_ADDR_CHANGE);
    EXPECT_NE(world.run_all(100s), "") << "the peer has not heard of it";
    EXPECT_EQ(client.leaks(), "");
}

TEST_F(AbiCm, DeviceThatGoesAway) {
    lose_address(server, client, {}, RDMA_CM_EVENT_DEVICE_REMOVAL);
    EXPECT_NE(world.run_all(100s), "") << "the peer has not heard of it";
    EXPECT_EQ(client.leaks(), "");
}

TEST_F(AbiCm, ListenerHearsThatItsAddressIsGone) {
    server.start("server", [&] {
        CmPeer listener;
        sockaddr_storage address = socket_address(here().address(), kPort);
        ASSERT_EQ(rdma_bind_addr(listener.id(), reinterpret_cast<sockaddr*>(&address)), 0);
        ASSERT_EQ(rdma_listen(listener.id(), 0), 0);
        server.machine().set_addresses({});
        EXPECT_EQ(listener.event(1s)->type, RDMA_CM_EVENT_DEVICE_REMOVAL);
    });
    run();
}

TEST_F(AbiCm, ListenerThatWasToldToStop) {
    bool stop = false;
    server.start("server", [&] {
        rdma_event_channel* channel = rdma_create_event_channel();
        rdma_cm_id* id = nullptr;
        ASSERT_EQ(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP), 0);
        ASSERT_EQ(rdma_listen(id, 0), 0);
        while (!stop) wait_for_news(1000s);
        EXPECT_EQ(world.now().time_since_epoch(), 3s);
        rdma_destroy_id(id);
        rdma_destroy_event_channel(channel);
    });
    client.start("client", [&] {
        sleep_for(2s - 1us);  // Worlds begin at 1 s; a poke takes 1 us.
        stop = true;
        server.poke();
    });
    run();
}

// A node with two interfaces: a connection to an address of the second network uses its cable
// alone.
TEST(AbiRails, ACutOfOneNetworkLeavesTheOther) {
    AbiWorld world(1, {.nodes = 2, .rails = 2});
    world.node(0).start("server", [] { serve_one(here().address(1)); });
    for (std::size_t node = 0; node < 2; ++node) world.world().uplink(node).set_blocked(true);
    world.node(1).start("client", [&] {
        CmPeer peer;
        EXPECT_FALSE(peer.connect(world.node(0).address(1), kPort, 1s).has_value());
        EXPECT_STREQ(ibv_get_device_name(peer.id()->verbs->device), "feroce_eth1");
        EXPECT_EQ(peer.event(60s)->type, RDMA_CM_EVENT_ESTABLISHED);
        EXPECT_EQ(rdma_disconnect(peer.id()), 0);
        EXPECT_EQ(peer.event(60s)->type, RDMA_CM_EVENT_DISCONNECTED);
    });
    EXPECT_EQ(world.run_all(600s), "");
    EXPECT_EQ(world.world().uplink(1, 0).stats().frames, 0u);
    EXPECT_GT(world.world().uplink(1, 1).stats().frames, 0u);
}

}  // namespace
}  // namespace feroce::sim
