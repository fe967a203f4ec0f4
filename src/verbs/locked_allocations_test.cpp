// No allocation while a lock is held, on the way of packets and completions: from the first packet
// on, by every transport and operation, on the program's thread and on ours. Whether packets go by
// rings or by UDP, and how many shards there are, is said by the environment.
#include <infiniband/verbs.h>
#include <poll.h>

#include <array>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <thread>

#include "base/environment.hpp"
#include "base/spinlock.hpp"
#include "verbs/allocation_watch.hpp"
#include "verbs/common.hpp"
#include "verbs/instance.hpp"
#include "verbs/test_pair.hpp"

namespace feroce::verbs::locked_allocations {
namespace {

using allocation_watch::DataPath;

constexpr std::uint32_t kLarge = 30'000;  // Many packets.
// By then rings have been agreed on, and sockets have taken their manner.
constexpr int kRounds = 400;
constexpr std::uint32_t kKey = 0x11111111;

class LockedAllocations : public testing::Test {
protected:
    void SetUp() override {
        allocation_watch::begin();
        context = open_loopback();
        ASSERT_NE(context, nullptr);
        ASSERT_EQ(ibv_query_gid(context, 1, 0, &gid), 0);
    }
    void TearDown() override {
        EXPECT_EQ(allocation_watch::findings(), "");
        EXPECT_EQ(ibv_close_device(context), 0);
    }

    ibv_ah_attr address(const ibv_gid& to) const {
        ibv_ah_attr a{};
        a.is_global = 1;
        a.port_num = 1;
        a.grh.hop_limit = 64;
        a.grh.dgid = to;
        return a;
    }
    bool async_event(ibv_event_type wanted) const {
        for (pollfd entry{context->async_fd, POLLIN, 0}; ::poll(&entry, 1, 20'000) == 1;) {
            ibv_async_event event{};
            if (ibv_get_async_event(context, &event) != 0) return false;
            ibv_ack_async_event(&event);
            if (event.event_type == wanted) return true;
        }
        return false;
    }

    std::uint64_t packets_by_rings() const {
        std::uint64_t count = 0;
        process::Process& process = process_of(context);
        for (std::uint32_t i = 0; i < process.shard_count(); ++i)
            process.shard(i).inspect(std::chrono::seconds(20), [&](device::Engine& engine) {
                count += engine.counters()[transport::Counter::RingSentPackets];
            });
        return count;
    }

    ibv_context* context = nullptr;
    ibv_gid gid{};
};

// One request from left to right, whose completion is awaited.
ibv_wc_status request(const Endpoint& left, const Endpoint& right, ibv_wr_opcode opcode,
                      std::uint32_t bytes) {
    if (left.post(opcode, left.sge(0, bytes), right.address(0), right.mr->rkey) != 0)
        return IBV_WC_GENERAL_ERR;
    return left.completion().status;
}

// A message, and its completions on both sides.
void message(const Endpoint& left, const Endpoint& right, ibv_wr_opcode opcode,
             std::uint32_t bytes) {
    ASSERT_EQ(right.post_receive(0, bytes), 0);
    ASSERT_EQ(request(left, right, opcode, bytes), IBV_WC_SUCCESS);
    ASSERT_EQ(right.completion().status, IBV_WC_SUCCESS);
}

void exchange_all(const Endpoint& left, const Endpoint& right) {
    for (int i = 0; i < kRounds; ++i)
        for (const std::uint32_t bytes : {8u, kLarge}) {
            message(left, right, IBV_WR_SEND, bytes);
            message(right, left, IBV_WR_RDMA_WRITE_WITH_IMM, bytes);
            ASSERT_EQ(request(left, right, IBV_WR_RDMA_WRITE, bytes), IBV_WC_SUCCESS);
            ASSERT_EQ(request(right, left, IBV_WR_RDMA_READ, bytes), IBV_WC_SUCCESS);
            ASSERT_EQ(request(left, right, IBV_WR_ATOMIC_FETCH_AND_ADD, 8), IBV_WC_SUCCESS);
        }
}

TEST_F(LockedAllocations, AreSeen) {
    Spinlock lock;
    const auto allocate = [] {
        const unsigned long before = allocation_watch::allocations();
        ::operator delete(::operator new(100));
        EXPECT_EQ(allocation_watch::allocations(), before + 1);
    };
    {
        const DataPath watched;
        allocate();
        EXPECT_EQ(allocation_watch::findings(), "");
        const std::lock_guard hold(lock);
        allocate();
    }
    EXPECT_NE(allocation_watch::findings(), "");
    std::thread([&] {
        const std::lock_guard hold(lock);
        allocate();
    }).join();
    EXPECT_NE(allocation_watch::findings(), "");
}

TEST_F(LockedAllocations, NotByAReliableConnection) {
    Endpoint left(context), right(context);
    connect(left, right);
    {
        const DataPath watched;
        exchange_all(left, right);
    }
    const char* said = environment("FEROCE_SAMEHOST");
    const bool off = said != nullptr && std::string_view(said) == "off";
    EXPECT_EQ(packets_by_rings() > 0, !off) << "not what was to be watched";
}

TEST_F(LockedAllocations, NotByAReceiverThatIsNotReady) {
    Endpoint left(context), right(context);
    connect(left, right);
    const DataPath watched;
    ASSERT_EQ(left.post(IBV_WR_SEND, left.sge(0, 8), 0, 0), 0);
    ibv_wc wc{};
    for (int i = 0; i < kRounds; ++i) ASSERT_EQ(ibv_poll_cq(left.cq, 1, &wc), 0);
    ASSERT_EQ(right.post_receive(0, 8), 0);
    EXPECT_EQ(left.completion().status, IBV_WC_SUCCESS);
    EXPECT_EQ(right.completion().status, IBV_WC_SUCCESS);
}

TEST_F(LockedAllocations, NotByWhatFails) {
    Endpoint left(context), right(context);
    connect(left, right);
    const DataPath watched;
    ASSERT_EQ(right.post_receive(0, 8), 0);
    ASSERT_EQ(left.post(IBV_WR_RDMA_WRITE, left.sge(0, 8), right.address(0), kKey), 0);
    ASSERT_EQ(left.post(IBV_WR_SEND, left.sge(0, 8), 0, 0), 0);
    EXPECT_EQ(left.completion().status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(left.completion().status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(right.completion().status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_TRUE(async_event(IBV_EVENT_QP_ACCESS_ERR));
    // And what is refused.
    std::array<ibv_sge, 8> many{};
    ibv_send_wr wr{}, *bad = nullptr;
    wr.sg_list = many.data();
    wr.num_sge = many.size();
    EXPECT_NE(ibv_post_send(left.qp, &wr, &bad), 0);
}

// Of messages in flight at once, more than fit a look at the network.
TEST_F(LockedAllocations, NotByManyMessagesAtOnce) {
    constexpr std::uint32_t kAtOnce = 4096;
    Endpoint left(context), right(context);
    ibv_cq* cq = ibv_create_cq(context, 2 * kAtOnce, nullptr, nullptr, 0);
    std::array<ibv_qp*, 2> qps{};
    for (auto [qp, side] : {std::pair(&qps[0], &left), std::pair(&qps[1], &right)}) {
        ibv_qp_init_attr init{};
        init.send_cq = init.recv_cq = cq;
        init.qp_type = IBV_QPT_RC;
        init.cap = {kAtOnce, kAtOnce, 1, 1, 0};
        *qp = std::exchange(side->qp, ibv_create_qp(side->pd, &init));
        ASSERT_NE(side->qp, nullptr);
    }
    connect(left, right);
    {
        const DataPath watched;
        for (std::uint32_t i = 0; i < kAtOnce; ++i) ASSERT_EQ(right.post_receive(0, 8), 0);
        for (std::uint32_t i = 0; i < kAtOnce; ++i)
            ASSERT_EQ(left.post(IBV_WR_SEND, left.sge(0, 8), 0, 0), 0);
        std::uint32_t completions = 0;
        std::array<ibv_wc, 16> wc{};
        const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        while (completions < 2 * kAtOnce && std::chrono::steady_clock::now() < give_up) {
            const int taken = ibv_poll_cq(cq, static_cast<int>(wc.size()), wc.data());
            for (int i = 0; i < taken; ++i)
                ASSERT_EQ(wc.at(static_cast<std::size_t>(i)).status, IBV_WC_SUCCESS);
            completions += static_cast<std::uint32_t>(taken);
        }
        EXPECT_EQ(completions, 2 * kAtOnce);
    }
    EXPECT_EQ(ibv_destroy_qp(std::exchange(left.qp, qps[0])), 0);
    EXPECT_EQ(ibv_destroy_qp(std::exchange(right.qp, qps[1])), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

void connect_unreliably(const Endpoint& a, const Endpoint& b) {
    constexpr int kRtr =
        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    for (const auto& [own, peer] : {std::pair(&a, &b), std::pair(&b, &a)}) {
        ASSERT_EQ(own->to_init(), 0);
        ibv_qp_attr attributes{};
        attributes.qp_state = IBV_QPS_RTR;
        attributes.path_mtu = IBV_MTU_1024;
        attributes.dest_qp_num = peer->qp->qp_num;
        attributes.ah_attr.is_global = 1;
        attributes.ah_attr.port_num = 1;
        ASSERT_EQ(ibv_query_gid(own->context, 1, 0, &attributes.ah_attr.grh.dgid), 0);
        ASSERT_EQ(ibv_modify_qp(own->qp, &attributes, kRtr), 0);
        attributes.qp_state = IBV_QPS_RTS;
        ASSERT_EQ(ibv_modify_qp(own->qp, &attributes, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
    }
}

TEST_F(LockedAllocations, NotByAnUnreliableConnection) {
    Endpoint left(context, IBV_QPT_UC), right(context, IBV_QPT_UC);
    connect_unreliably(left, right);
    const DataPath watched;
    for (int i = 0; i < kRounds; ++i) {
        message(left, right, IBV_WR_SEND, 2000);
        message(right, left, IBV_WR_RDMA_WRITE_WITH_IMM, 2000);
        ASSERT_EQ(request(left, right, IBV_WR_RDMA_WRITE, 2000), IBV_WC_SUCCESS);
    }
}

void begin_datagrams(const Endpoint& endpoint) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.port_num = 1;
    attributes.qkey = kKey;
    ASSERT_EQ(ibv_modify_qp(endpoint.qp, &attributes,
                            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
              0);
    attributes.qp_state = IBV_QPS_RTR;
    ASSERT_EQ(ibv_modify_qp(endpoint.qp, &attributes, IBV_QP_STATE), 0);
    attributes.qp_state = IBV_QPS_RTS;
    ASSERT_EQ(ibv_modify_qp(endpoint.qp, &attributes, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
}

void send_datagrams(const Endpoint& left, const Endpoint& right, ibv_ah* to, std::uint32_t qpn) {
    for (int i = 0; i < kRounds; ++i) {
        ASSERT_EQ(right.post_receive(0, 1000), 0);
        ibv_sge entry = left.sge(0, 500);
        ibv_send_wr wr{}, *bad = nullptr;
        wr.sg_list = &entry;
        wr.num_sge = 1;
        wr.opcode = IBV_WR_SEND;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.wr.ud.ah = to;
        wr.wr.ud.remote_qpn = qpn;
        wr.wr.ud.remote_qkey = kKey;
        ASSERT_EQ(ibv_post_send(left.qp, &wr, &bad), 0);
        ASSERT_EQ(left.completion().status, IBV_WC_SUCCESS);
        ASSERT_EQ(right.completion().status, IBV_WC_SUCCESS);
    }
}

TEST_F(LockedAllocations, NotByDatagrams) {
    Endpoint left(context, IBV_QPT_UD), right(context, IBV_QPT_UD);
    begin_datagrams(left);
    begin_datagrams(right);
    ibv_ah_attr to = address(gid);
    ibv_ah* ah = ibv_create_ah(left.pd, &to);
    ASSERT_NE(ah, nullptr);
    {
        const DataPath watched;
        send_datagrams(left, right, ah, right.qp->qp_num);
    }
    EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

class SharedQueue : public LockedAllocations {
protected:
    // Receives from a shared queue, whose limit is told of.
    void receive_from(ibv_srq* srq, Endpoint& left, const Endpoint& right, std::uint32_t number) {
        const DataPath watched;
        for (int i = 0; i < kRounds; ++i) {
            ibv_sge entry = right.sge(0, 1000);
            ibv_recv_wr receive{}, *bad_receive = nullptr;
            receive.sg_list = &entry;
            receive.num_sge = 1;
            ASSERT_EQ(ibv_post_srq_recv(srq, &receive, &bad_receive), 0);
            if (i == 0) {
                ibv_srq_attr limit{0, 0, 1};
                ASSERT_EQ(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT), 0);
            }
            ibv_sge source = left.sge(0, 1000);
            ibv_send_wr send{}, *bad_send = nullptr;
            send.sg_list = &source;
            send.num_sge = 1;
            send.opcode = IBV_WR_SEND;
            send.send_flags = IBV_SEND_SIGNALED;
            send.qp_type.xrc.remote_srqn = number;
            ASSERT_EQ(ibv_post_send(left.qp, &send, &bad_send), 0);
            ASSERT_EQ(left.completion().status, IBV_WC_SUCCESS);
            ASSERT_EQ(right.completion().status, IBV_WC_SUCCESS);
        }
        EXPECT_TRUE(async_event(IBV_EVENT_SRQ_LIMIT_REACHED));
    }
};

TEST_F(SharedQueue, NotByReceivesThatAreShared) {
    Endpoint left(context), right(context);
    ibv_srq_init_attr wanted{};
    wanted.attr = {16, 1, 0};
    ibv_srq* srq = ibv_create_srq(right.pd, &wanted);
    ASSERT_NE(srq, nullptr);
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = right.cq;
    init.qp_type = IBV_QPT_RC;
    init.srq = srq;
    init.cap = {16, 0, 1, 0, 0};
    ibv_qp* own = std::exchange(right.qp, ibv_create_qp(right.pd, &init));
    ASSERT_NE(right.qp, nullptr);
    connect(left, right);
    receive_from(srq, left, right, 0);
    EXPECT_EQ(ibv_destroy_qp(std::exchange(right.qp, own)), 0);
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

// The two ends of an extended connection have different attributes.
void connect_extended(const Endpoint& initiator, const Endpoint& target) {
    for (const auto& [own, peer] :
         {std::pair(&initiator, &target), std::pair(&target, &initiator)}) {
        const bool asks = own == &initiator;
        ASSERT_EQ(own->to_init(), 0);
        ibv_qp_attr a{};
        a.qp_state = IBV_QPS_RTR;
        a.path_mtu = IBV_MTU_1024;
        a.dest_qp_num = peer->qp->qp_num;
        a.max_dest_rd_atomic = a.max_rd_atomic = 4;
        a.min_rnr_timer = 1;
        a.timeout = 17;
        a.retry_cnt = a.rnr_retry = 7;
        a.ah_attr.is_global = 1;
        a.ah_attr.port_num = 1;
        ASSERT_EQ(ibv_query_gid(own->context, 1, 0, &a.ah_attr.grh.dgid), 0);
        constexpr int kRtr =
            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
        constexpr int kRts = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN;
        ASSERT_EQ(
            ibv_modify_qp(own->qp, &a,
                          asks ? kRtr : kRtr | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
            0);
        a.qp_state = IBV_QPS_RTS;
        ASSERT_EQ(
            ibv_modify_qp(
                own->qp, &a,
                asks ? kRts | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : kRts),
            0);
    }
}

TEST_F(SharedQueue, NotByExtendedConnections) {
    Endpoint left(context), right(context);
    ibv_xrcd_init_attr domain{};
    domain.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    domain.fd = -1;
    ibv_xrcd* xrcd = ibv_open_xrcd(context, &domain);
    ASSERT_NE(xrcd, nullptr);
    ibv_srq_init_attr_ex queue{};
    queue.attr = {16, 1, 0};
    queue.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
                      IBV_SRQ_INIT_ATTR_CQ;
    queue.srq_type = IBV_SRQT_XRC;
    queue.pd = right.pd;
    queue.xrcd = xrcd;
    queue.cq = right.cq;
    ibv_srq* srq = ibv_create_srq_ex(context, &queue);
    ASSERT_NE(srq, nullptr);
    ibv_qp_init_attr_ex send{}, receive{};
    send.comp_mask = IBV_QP_INIT_ATTR_PD;
    send.pd = left.pd;
    send.send_cq = left.cq;
    send.qp_type = IBV_QPT_XRC_SEND;
    send.cap = {16, 0, 1, 0, 0};
    receive.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    receive.xrcd = xrcd;
    receive.qp_type = IBV_QPT_XRC_RECV;
    ibv_qp* plain_left = std::exchange(left.qp, ibv_create_qp_ex(context, &send));
    ibv_qp* plain_right = std::exchange(right.qp, ibv_create_qp_ex(context, &receive));
    ASSERT_NE(left.qp, nullptr);
    ASSERT_NE(right.qp, nullptr);
    connect_extended(left, right);
    std::uint32_t number = 0;
    ASSERT_EQ(ibv_get_srq_num(srq, &number), 0);
    receive_from(srq, left, right, number);
    EXPECT_EQ(ibv_destroy_qp(std::exchange(left.qp, plain_left)), 0);
    EXPECT_EQ(ibv_destroy_qp(std::exchange(right.qp, plain_right)), 0);
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
    EXPECT_EQ(ibv_close_xrcd(xrcd), 0);
}

// Work that sends nothing: a window is bound and its key taken back.
TEST_F(LockedAllocations, NotByWindows) {
    Endpoint left(context), right(context);
    connect(left, right);
    std::array<char, 64> bytes{};
    ibv_mr* mr = (ibv_reg_mr)(left.pd, bytes.data(), bytes.size(),
                              IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    ibv_mw* window = ibv_alloc_mw(left.pd, IBV_MW_TYPE_2);
    ASSERT_NE(mr, nullptr);
    ASSERT_NE(window, nullptr);
    std::uint32_t key = window->rkey;
    for (int i = 0; i < kRounds; ++i) {
        const DataPath watched;
        key = ibv_inc_rkey(key);
        ibv_send_wr bind{}, invalidate{}, *bad = nullptr;
        bind.next = &invalidate;
        bind.opcode = IBV_WR_BIND_MW;
        bind.send_flags = invalidate.send_flags = IBV_SEND_SIGNALED;
        bind.bind_mw.mw = window;
        bind.bind_mw.rkey = key;
        bind.bind_mw.bind_info = {mr, reinterpret_cast<std::uintptr_t>(bytes.data()), bytes.size(),
                                  IBV_ACCESS_REMOTE_WRITE};
        invalidate.opcode = IBV_WR_LOCAL_INV;
        invalidate.invalidate_rkey = key;
        ASSERT_EQ(ibv_post_send(left.qp, &bind, &bad), 0);
        for (int done = 0; done < 2; ++done) ASSERT_EQ(left.completion().status, IBV_WC_SUCCESS);
    }
    EXPECT_EQ(ibv_dealloc_mw(window), 0);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

// The program sleeps, so our thread receives, acknowledges and tells of it.
TEST_F(LockedAllocations, NotByEvents) {
    Endpoint left(context), right(context);
    connect(left, right);
    const DataPath watched;
    for (int i = 0; i < kRounds; ++i) {
        ASSERT_EQ(right.post_receive(0, 8), 0);
        ASSERT_EQ(ibv_req_notify_cq(right.cq, 0), 0);
        ASSERT_EQ(left.post(IBV_WR_SEND, left.sge(0, 8), 0, 0), 0);
        pollfd channel{right.channel->fd, POLLIN, 0};
        ASSERT_EQ(::poll(&channel, 1, 20'000), 1);
        ibv_cq* cq = nullptr;
        void* cq_context = nullptr;
        ASSERT_EQ(ibv_get_cq_event(right.channel, &cq, &cq_context), 0);
        ibv_ack_cq_events(cq, 1);
        ASSERT_EQ(right.completion().status, IBV_WC_SUCCESS);
        ASSERT_EQ(left.completion().status, IBV_WC_SUCCESS);
    }
}

TEST_F(LockedAllocations, NotByACompletionQueueThatChangesOrOverflows) {
    Endpoint left(context), right(context);
    connect(left, right);
    const DataPath watched;
    for (int i = 0; i < 10; ++i)
        ASSERT_EQ(left.post(IBV_WR_RDMA_WRITE, left.sge(0, 8), right.address(0), right.mr->rkey),
                  0);
    ASSERT_EQ(left.completion().status, IBV_WC_SUCCESS);
    ASSERT_EQ(ibv_resize_cq(left.cq, 5000), 0);
    for (int i = 1; i < 10; ++i) ASSERT_EQ(left.completion().status, IBV_WC_SUCCESS);
    ASSERT_EQ(ibv_resize_cq(left.cq, 2), 0);
    for (int i = 0; i < 3; ++i)
        ASSERT_EQ(left.post(IBV_WR_RDMA_WRITE, left.sge(0, 8), right.address(0), right.mr->rkey),
                  0);
    EXPECT_TRUE(async_event(IBV_EVENT_CQ_ERR));
}

}  // namespace
}  // namespace feroce::verbs::locked_allocations
