// A program destroys each address handle right after it posted with it, and makes the next one for
// another node in its place. Whatever is still on its way goes where it was posted to.
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "sim/abi_world.hpp"

namespace feroce::sim {
namespace {

constexpr std::size_t kReceivers = 2;
constexpr std::size_t kBatches = 20;
constexpr std::size_t kBatch = 16;
constexpr std::uint32_t kQkey = 0x1111;
constexpr std::uint32_t kGrh = 40;
constexpr std::uint32_t kSlot = 64;

struct Receiver {
    std::uint32_t qpn = 0;
    ibv_gid gid{};
    bool ready = false;
    std::uint32_t got = 0, wrong = 0;
};

struct Run {
    std::array<Receiver, kReceivers> receivers;
    std::array<std::uint32_t, kReceivers> sent{};
    bool done = false;
};

struct Datagrams {
    Datagrams() : memory(2 * kBatch * kSlot, &here().memory()) {
        ibv_device** list = ibv_get_device_list(nullptr);
        context = ibv_open_device(list[0]);
        ibv_free_device_list(list);
        pd = ibv_alloc_pd(context);
        mr = ibv_reg_mr(pd, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
        cq = ibv_create_cq(context, 256, nullptr, nullptr, 0);
        ibv_qp_init_attr init{};
        init.send_cq = init.recv_cq = cq;
        init.qp_type = IBV_QPT_UD;
        init.cap = {kBatch, 2 * kBatch, 1, 1, 0};
        qp = ibv_create_qp(pd, &init);
        ibv_qp_attr a{};
        a.qp_state = IBV_QPS_INIT;
        a.port_num = 1;
        a.qkey = kQkey;
        EXPECT_EQ(
            ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
        a.qp_state = IBV_QPS_RTR;
        EXPECT_EQ(ibv_modify_qp(qp, &a, IBV_QP_STATE), 0);
        a.qp_state = IBV_QPS_RTS;
        EXPECT_EQ(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
    }
    ~Datagrams() {
        ibv_destroy_qp(qp);
        ibv_destroy_cq(cq);
        ibv_dereg_mr(mr);
        ibv_dealloc_pd(pd);
        ibv_close_device(context);
    }
    ibv_sge slot(std::size_t i, std::uint32_t length) {
        return {reinterpret_cast<std::uint64_t>(memory.data()) + i * kSlot, length, mr->lkey};
    }
    void receive(std::size_t i) {
        ibv_sge sge = slot(i, kSlot);
        ibv_recv_wr wr{};
        wr.wr_id = i;
        wr.sg_list = &sge;
        wr.num_sge = 1;
        ibv_recv_wr* bad = nullptr;
        ASSERT_EQ(ibv_post_recv(qp, &wr, &bad), 0);
    }
    ibv_ah* handle_for(const Receiver& to) {
        ibv_ah_attr a{};
        a.is_global = 1;
        a.port_num = 1;
        a.grh.dgid = to.gid;
        a.grh.hop_limit = 64;
        return ibv_create_ah(pd, &a);
    }

    std::pmr::vector<std::uint8_t> memory;
    ibv_context* context;
    ibv_pd* pd;
    ibv_mr* mr;
    ibv_cq* cq;
    ibv_qp* qp;
};

// Each datagram says to whom it was posted.
void receive(Run& run, std::uint8_t index) {
    Datagrams side;
    Receiver& own = run.receivers[index];
    for (std::size_t i = 0; i < 2 * kBatch; ++i) side.receive(i);
    ASSERT_EQ(ibv_query_gid(side.context, 1, 0, &own.gid), 0);
    own.qpn = side.qp->qp_num;
    own.ready = true;
    while (!run.done) {
        ibv_wc wc{};
        if (ibv_poll_cq(side.cq, 1, &wc) == 0) continue;
        ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
        ++own.got;
        if (side.memory[wc.wr_id * kSlot + kGrh] != index) ++own.wrong;
        side.receive(wc.wr_id);
    }
}

void send_batch(Run& run, Datagrams& side, Prng& random) {
    std::array<ibv_ah*, kBatch> handles{};
    for (std::size_t i = 0; i < kBatch; ++i) {
        const auto to = static_cast<std::uint8_t>(random.below(kReceivers));
        handles[i] = side.handle_for(run.receivers[to]);
        ASSERT_NE(handles[i], nullptr);
        side.memory[i * kSlot] = to;
        ibv_sge sge = side.slot(i, 1);
        ibv_send_wr wr{};
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.opcode = IBV_WR_SEND;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.wr.ud = {handles[i], run.receivers[to].qpn, kQkey};
        ibv_send_wr* bad = nullptr;
        ASSERT_EQ(ibv_post_send(side.qp, &wr, &bad), 0);
        ++run.sent[to];
        // Some live a little longer than what was posted with them takes.
        if (random.chance(0.8)) {
            ASSERT_EQ(ibv_destroy_ah(std::exchange(handles[i], nullptr)), 0);
        }
    }
    for (std::size_t done = 0; done < kBatch;) {
        ibv_wc wc{};
        if (ibv_poll_cq(side.cq, 1, &wc) == 0) continue;
        ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
        ++done;
    }
    for (ibv_ah* handle : handles) {
        if (handle == nullptr) continue;
        ASSERT_EQ(ibv_destroy_ah(handle), 0);
    }
}

std::uint64_t run_once(std::uint64_t seed) {
    AbiWorld world(seed, {.nodes = kReceivers + 1, .ipv6 = seed % 2 == 1});
    world.world().set_faults({.duplicate = 0.05, .reorder = 0.2});
    Run run;
    for (std::uint8_t i = 0; i < kReceivers; ++i)
        world.node(i).start("receiver", [&run, i] { receive(run, i); });
    world.node(kReceivers).start("sender", [&] {
        Datagrams side;
        Prng random(seed);
        for (const Receiver& receiver : run.receivers)
            while (!receiver.ready) pause();
        for (std::size_t i = 0; i < kBatches; ++i) {
            send_batch(run, side, random);
            sleep_for(std::chrono::milliseconds(1));
        }
        sleep_for(std::chrono::milliseconds(100));  // Until the last has arrived.
        run.done = true;
    });
    EXPECT_EQ(world.run_all(std::chrono::seconds(60)), "");
    for (std::size_t i = 0; i < kReceivers; ++i) {
        EXPECT_GE(run.receivers[i].got, run.sent[i]);  // Nothing is lost; some come twice.
        EXPECT_EQ(run.receivers[i].wrong, 0U);
    }
    for (std::size_t i = 0; i < world.size(); ++i) EXPECT_EQ(world.node(i).leaks(), "");
    return world.trace_hash();
}

TEST(AbiAddressHandles, DestroyedUnderTrafficMisleadNothing) {
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        const std::uint64_t first = run_once(seed);
        ASSERT_EQ(first, run_once(seed));
        if (HasFailure()) return;
    }
}

}  // namespace
}  // namespace feroce::sim
