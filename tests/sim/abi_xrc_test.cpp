// XRC by rdma_cm over the simulator: the initiator of an idle connection asks whether a peer that
// does not answer ALIVE is still there.
#include <gtest/gtest.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include "base/rollback.hpp"
#include "sim/abi_world.hpp"
#include "sim/cm_peer.hpp"
#include "sim/silent_peer.hpp"

namespace feroce::sim::xrc {
namespace {

using namespace std::chrono_literals;

constexpr std::uint16_t kPort = 7471;

rdma_conn_param parameters() {
    rdma_conn_param out{};
    out.retry_count = 7;
    out.rnr_retry_count = 7;
    return out;
}

// Of an XRC target with one receive; its number goes to `srq`.
bool make_srq(rdma_cm_id* id, std::uint32_t& srq) {
    ibv_srq_init_attr_ex wanted{};
    wanted.attr = {4, 1, 0};
    wanted.comp_mask = IBV_SRQ_INIT_ATTR_TYPE;
    wanted.srq_type = IBV_SRQT_XRC;
    ibv_recv_wr wr{};
    ibv_recv_wr* bad = nullptr;
    return rdma_create_srq_ex(id, &wanted) == 0 && ibv_get_srq_num(id->srq, &srq) == 0 &&
           ibv_post_srq_recv(id->srq, &wr, &bad) == 0;
}

bool make_qp(rdma_cm_id* id, ibv_qp_type type) {
    id->qp_type = type;
    ibv_qp_init_attr_ex wanted{};
    wanted.qp_type = type;
    wanted.cap = {4, 0, 1, 0, 0};
    return rdma_create_qp_ex(id, &wanted) == 0;
}

void serve(const Gid& own, std::uint32_t& srq) {
    CmPeer listener;
    sockaddr_storage address = socket_address(own, kPort);
    ASSERT_EQ(rdma_bind_addr(listener.id(), reinterpret_cast<sockaddr*>(&address)), 0);
    ASSERT_EQ(rdma_listen(listener.id(), 0), 0);
    const std::optional<CmNews> request = listener.event(60s);
    ASSERT_TRUE(request.has_value());
    CmPeer peer(request->id);
    const Rollback destroy_srq([&peer] { rdma_destroy_srq(peer.id()); });
    ASSERT_TRUE(make_srq(peer.id(), srq));
    ASSERT_TRUE(make_qp(peer.id(), IBV_QPT_XRC_RECV));
    ASSERT_EQ(peer.accept(), 0);
    EXPECT_EQ(peer.event(60s)->type, RDMA_CM_EVENT_ESTABLISHED);
    EXPECT_FALSE(peer.event(600s).has_value()) << "it ends by a crash";
}

void connect(CmPeer& peer, const Gid& to) {
    sockaddr_storage address = socket_address(to, kPort);
    rdma_cm_id* id = peer.id();
    ASSERT_EQ(rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&address), 1000), 0);
    ASSERT_EQ(peer.event(10s)->type, RDMA_CM_EVENT_ADDR_RESOLVED);
    ASSERT_EQ(rdma_resolve_route(id, 1000), 0);
    ASSERT_EQ(peer.event(10s)->type, RDMA_CM_EVENT_ROUTE_RESOLVED);
    ASSERT_TRUE(make_qp(id, IBV_QPT_XRC_SEND));
    rdma_conn_param p = parameters();
    ASSERT_EQ(rdma_connect(id, &p), 0);
    ASSERT_EQ(peer.event(60s)->type, RDMA_CM_EVENT_ESTABLISHED);
}

void send_nothing_to(rdma_cm_id* id, std::uint32_t srq) {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.qp_type.xrc.remote_srqn = srq;
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(id->qp, &wr, &bad), 0);
    ibv_wc wc{};
    for (int i = 0; i < 1000 && ibv_poll_cq(id->send_cq, 1, &wc) == 0; ++i) sleep_for(1ms);
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
    ASSERT_EQ(wc.opcode, IBV_WC_SEND);
}

TEST(AbiXrcKeepAlive, AnIdleForeignPeerIsAskedByTheInitiator) {
    AbiWorld world(1, {.keepalive = 15s, .foreign = true});
    AbiNode& server = world.node(0);
    std::uint32_t srq = 0;
    server.start("server", [&srq] { serve(here().address(), srq); });
    world.node(1).start("client", [&] {
        CmPeer peer;
        connect(peer, server.address());
        send_nothing_to(peer.id(), srq);
        expect_crash_is_noticed(world, server, peer);
        if (testing::Test::HasFatalFailure()) return;
        EXPECT_EQ(peer.event(100s)->type, RDMA_CM_EVENT_TIMEWAIT_EXIT);
    });
    EXPECT_EQ(world.run_all(600s), "");
    EXPECT_EQ(world.node(1).leaks(), "");
}

}  // namespace
}  // namespace feroce::sim::xrc
