// Two programs on <infiniband/verbs.h>, each on a node of its own, poll their way through sends,
// writes, reads and atomics over a network that loses, repeats and reorders. Every seed runs twice.
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "sim/abi_world.hpp"
#include "sim/seeds.hpp"

namespace feroce::sim::abi_verbs_test {
namespace {

constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                        IBV_ACCESS_REMOTE_ATOMIC;
constexpr std::uint32_t kBytes = 20'000;  // Several packets.
constexpr std::uint64_t kAdds = 10;

// What programs tell each other by other means than RDMA.
struct Card {
    bool written = false;
    bool done = false;
    std::uint32_t qpn = 0, psn = 0, rkey = 0;
    std::uint64_t address = 0;
    ibv_gid gid{};
};

struct Run {
    explicit Run(std::uint64_t run_seed) : seed(run_seed) {}
    std::uint64_t seed;
    Card client, server;
    bool client_happy = false, server_happy = false;
};

struct Side {
    Side() : memory(2 * kBytes + 8, &here().memory()) {
        ibv_device** list = ibv_get_device_list(nullptr);
        context = ibv_open_device(list[0]);
        ibv_free_device_list(list);
        pd = ibv_alloc_pd(context);
        mr = ibv_reg_mr(pd, memory.data(), memory.size(), kAccess);
        cq = ibv_create_cq(context, 64, nullptr, nullptr, 0);
        ibv_qp_init_attr init{};
        init.send_cq = init.recv_cq = cq;
        init.qp_type = IBV_QPT_RC;
        init.cap = {16, 16, 1, 1, 0};
        qp = ibv_create_qp(pd, &init);
        ibv_qp_attr a{};
        a.qp_state = IBV_QPS_INIT;
        a.port_num = 1;
        a.qp_access_flags = kAccess;
        EXPECT_EQ(ibv_modify_qp(
                      qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
                  0);
    }
    ~Side() {
        ibv_destroy_qp(qp);
        ibv_destroy_cq(cq);
        ibv_dereg_mr(mr);
        ibv_dealloc_pd(pd);
        ibv_close_device(context);
    }

    void introduce(Card& own, std::uint32_t psn) const {
        own = {true, false, qp->qp_num, psn, mr->rkey, reinterpret_cast<std::uint64_t>(mr->addr),
               {}};
        ASSERT_EQ(ibv_query_gid(context, 1, 0, &own.gid), 0);
    }

    void connect(const Card& own, const Card& peer) const {
        while (!peer.written) pause();
        ibv_qp_attr a{};
        a.qp_state = IBV_QPS_RTR;
        a.path_mtu = IBV_MTU_1024;
        a.dest_qp_num = peer.qpn;
        a.rq_psn = peer.psn;
        a.max_dest_rd_atomic = 4;
        a.min_rnr_timer = 5;
        a.ah_attr.is_global = 1;
        a.ah_attr.port_num = 1;
        a.ah_attr.grh.dgid = peer.gid;
        a.ah_attr.grh.hop_limit = 64;
        ASSERT_EQ(
            ibv_modify_qp(qp, &a,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                              IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
            0);
        a.qp_state = IBV_QPS_RTS;
        a.sq_psn = own.psn;
        a.timeout = 10;
        a.retry_cnt = 7;
        a.rnr_retry = 7;
        a.max_rd_atomic = 4;
        ASSERT_EQ(ibv_modify_qp(qp, &a,
                                IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                    IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC),
                  0);
    }

    ibv_sge piece(std::size_t offset, std::uint32_t length) const {
        return {reinterpret_cast<std::uint64_t>(memory.data()) + offset, length, mr->lkey};
    }
    void receive(std::size_t offset) const {
        ibv_sge sge = piece(offset, kBytes);
        ibv_recv_wr wr{};
        wr.sg_list = &sge;
        wr.num_sge = 1;
        ibv_recv_wr* bad = nullptr;
        ASSERT_EQ(ibv_post_recv(qp, &wr, &bad), 0);
    }
    // The poll loop of any program: in a simulation an empty poll lets time pass.
    ibv_wc wait() const {
        ibv_wc wc{};
        while (ibv_poll_cq(cq, 1, &wc) == 0) continue;
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << ibv_wc_status_str(wc.status);
        return wc;
    }
    void perform(ibv_send_wr wr, ibv_sge sge) const {
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.send_flags = IBV_SEND_SIGNALED;
        ibv_send_wr* bad = nullptr;
        ASSERT_EQ(ibv_post_send(qp, &wr, &bad), 0);
        wait();
    }

    std::pmr::vector<std::uint8_t> memory;  // Two halves and a counter.
    ibv_context* context;
    ibv_pd* pd;
    ibv_mr* mr;
    ibv_cq* cq;
    ibv_qp* qp;
};

void serve(Run& run) {
    Side side;
    side.receive(0);
    side.introduce(run.server, 77);
    side.connect(run.server, run.client);
    const ibv_wc wc = side.wait();
    EXPECT_EQ(wc.opcode, IBV_WC_RECV);
    EXPECT_EQ(wc.byte_len, kBytes);
    while (!run.client.done) pause();
    std::vector<std::uint8_t> expected(kBytes);
    std::iota(expected.begin(), expected.end(), std::uint8_t{1});
    EXPECT_EQ(std::memcmp(side.memory.data(), expected.data(), kBytes), 0) << "the SEND";
    EXPECT_EQ(std::memcmp(side.memory.data() + kBytes, expected.data(), kBytes), 0) << "the WRITE";
    std::uint64_t count = 0;
    std::memcpy(&count, side.memory.data() + 2 * kBytes, sizeof count);
    EXPECT_EQ(count, kAdds);
    run.server_happy = !testing::Test::HasFailure();
}

void ask(Run& run) {
    Side side;
    std::iota(side.memory.begin(), side.memory.begin() + kBytes, std::uint8_t{1});
    side.introduce(run.client, 0xffff'f0);
    side.connect(run.client, run.server);
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND;
    side.perform(wr, side.piece(0, kBytes));
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.wr.rdma = {run.server.address + kBytes, run.server.rkey};
    side.perform(wr, side.piece(0, kBytes));
    wr.opcode = IBV_WR_RDMA_READ;
    side.perform(wr, side.piece(kBytes, kBytes));
    EXPECT_EQ(std::memcmp(side.memory.data(), side.memory.data() + kBytes, kBytes), 0);
    for (std::uint64_t i = 0; i < kAdds; ++i) {
        wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
        wr.wr.atomic = {run.server.address + 2 * kBytes, 1, 0, run.server.rkey};
        side.perform(wr, side.piece(2 * kBytes, 8));
        std::uint64_t before = ~std::uint64_t{0};
        std::memcpy(&before, side.memory.data() + 2 * kBytes, sizeof before);
        EXPECT_EQ(before, i);
    }
    run.client.done = true;
    run.client_happy = !testing::Test::HasFailure();
}

std::uint64_t run_once(std::uint64_t seed) {
    AbiWorld world(seed, {.shards = seed % 3 == 2 ? 2u : 1u, .ipv6 = seed % 2 == 1});
    const double worst = static_cast<double>(seed % 11) / 100;
    world.world().set_faults({.loss = worst / 2, .duplicate = worst / 2, .reorder = worst});
    Run run(seed);
    world.node(0).start("server", [&] { serve(run); });
    world.node(1).start("client", [&] { ask(run); });
    EXPECT_EQ(world.run_all(std::chrono::seconds(60)), "");
    EXPECT_TRUE(run.server_happy && run.client_happy);
    for (std::size_t i = 0; i < world.size(); ++i) EXPECT_EQ(world.node(i).leaks(), "");
    return world.trace_hash();
}

// Ping-pong through memory: each end waits for a byte to change and answers with a WRITE.
constexpr std::uint8_t kRounds = 100;

void answer(Side& side, const Card& peer, std::uint8_t value) {
    side.memory[1] = value;
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.wr.rdma = {peer.address, peer.rkey};
    side.perform(wr, side.piece(1, 1));
}

void await_byte(const Side& side, std::uint8_t value) {
    while (side.memory[0] != value) pause();
}

// The peers learn that posts follow arrivals and let acknowledgements wait for them. When the
// answer stays out, the acknowledgement must not.
// `gap`: how long the server has been away when the last WRITE comes.
Duration time_without_answer(Duration gap) {
    AbiWorld world(1, {});
    Run run(1);
    Duration last{};
    world.node(0).start("server", [&] {
        Side side;
        side.introduce(run.server, 77);
        side.connect(run.server, run.client);
        for (std::uint8_t i = 1; i <= kRounds; ++i) {
            await_byte(side, i);
            answer(side, run.client, i);
        }
        while (!run.client.done)
            sleep_for(std::chrono::milliseconds(10));  // Neither polls nor posts.
    });
    world.node(1).start("client", [&] {
        Side side;
        side.introduce(run.client, 99);
        side.connect(run.client, run.server);
        for (std::uint8_t i = 1; i <= kRounds; ++i) {
            answer(side, run.server, i);
            await_byte(side, i);
        }
        sleep_for(gap);
        const Instant start = world.now();
        answer(side, run.server, kRounds + 1);
        last = world.now() - start;
        run.client.done = true;
    });
    EXPECT_EQ(world.run_all(std::chrono::seconds(60)), "");
    return last;
}

TEST(AbiVerbs, EverySeedRunsTwiceTheSame) {
    for (const std::uint64_t seed : seeds(100)) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        const std::uint64_t first = run_once(seed);
        ASSERT_EQ(first, run_once(seed));
        if (HasFailure()) return;
    }
}

TEST(AbiVerbs, AnAcknowledgementWaitsForAnAnswerButNotForLong) {
    using namespace std::chrono_literals;
    EXPECT_LT(time_without_answer(0ms), 2ms) << "the server had just polled";
    EXPECT_LT(time_without_answer(10ms), 200us) << "our thread takes it";
}

TEST(AbiVerbs, SeedsDiffer) {
    EXPECT_NE(run_once(1), run_once(3));
}

}  // namespace
}  // namespace feroce::sim::abi_verbs_test
