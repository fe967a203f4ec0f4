// A completion queue whose queue pairs are on several shards. With FEROCE_SHARDS=4 they are on all
// of them, by default on one.
#include <poll.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <set>
#include <vector>

#include "verbs/common.hpp"
#include "verbs/instance.hpp"
#include "verbs/objects.hpp"
#include "verbs/test_pair.hpp"

namespace feroce::verbs::shards {
namespace {

class ManyPairs : public DeviceTest {
protected:
    static constexpr std::size_t kPairs = 8;

    void SetUp() override {
        DeviceTest::SetUp();
        channel = ibv_create_comp_channel(context);
        shared = ibv_create_cq(context, 256, nullptr, channel, 0);
        ASSERT_NE(shared, nullptr);
    }
    void TearDown() override {
        for (const Pair& pair : pairs) {
            EXPECT_EQ(ibv_destroy_qp(std::exchange(pair.left->qp, pair.own)), 0);
        }
        pairs.clear();
        EXPECT_EQ(ibv_destroy_cq(shared), 0);
        EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
        DeviceTest::TearDown();
    }
    // Pairs whose left ends have `shared` as completion queue.
    void make_pairs() {
        for (std::size_t i = 0; i < kPairs; ++i) {
            Pair pair{std::make_unique<Endpoint>(context), std::make_unique<Endpoint>(context),
                      nullptr};
            ibv_qp_init_attr wanted = init();
            wanted.send_cq = wanted.recv_cq = shared;
            pair.own = std::exchange(pair.left->qp, ibv_create_qp(pair.left->pd, &wanted));
            ASSERT_NE(pair.left->qp, nullptr);
            connect(*pair.left, *pair.right);
            slots.insert(slot_of(Qpn{pair.left->qp->qp_num}));
            pairs.push_back(std::move(pair));
        }
    }

    struct Pair {
        std::unique_ptr<Endpoint> left, right;
        ibv_qp* own;  // Of the left one, which has another meanwhile.
    };
    std::vector<Pair> pairs;
    std::set<std::uint32_t> slots;
    ibv_comp_channel* channel = nullptr;
    ibv_cq* shared = nullptr;
};

TEST_F(ManyPairs, APollerGetsTheCompletionsOfAllShards) {
    make_pairs();
    const bool from_start = std::getenv("FEROCE_SHARDS") != nullptr;
    const std::uint32_t count = from_start ? process_of(context).shard_count() : 1;
    EXPECT_EQ(slots.size(), count) << "the pairs are spread over the shards";
    EXPECT_EQ(std::popcount(cq_of(shared).queue->shards()), static_cast<int>(count));
    EXPECT_EQ(cq_of(cq).queue->shards(), 0u) << "no queue pair uses it";
    std::size_t received = 0;
    for (const Pair& pair : pairs) {
        ASSERT_EQ(pair.left->post_receive(0, 8), 0);
        ASSERT_EQ(pair.right->post(IBV_WR_SEND, pair.right->sge(0, 8), 0, 0), 0);
    }
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    std::set<std::uint32_t> heard;
    while (received < kPairs && std::chrono::steady_clock::now() < give_up) {
        ibv_wc wc{};
        if (ibv_poll_cq(shared, 1, &wc) != 1) continue;
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        heard.insert(slot_of(Qpn{wc.qp_num}));
        ++received;
    }
    EXPECT_EQ(received, kPairs);
    EXPECT_EQ(heard, slots);
}

// The queue does not know yet which shards it will hear from.
TEST_F(ManyPairs, AnEventAskedForBeforeTheFirstQueuePairComes) {
    ASSERT_EQ(ibv_req_notify_cq(shared, 0), 0);
    make_pairs();
    for (const Pair& pair : pairs) {
        ASSERT_EQ(pair.left->post_receive(0, 8), 0);
        ASSERT_EQ(pair.right->post(IBV_WR_SEND, pair.right->sge(0, 8), 0, 0), 0);
        pollfd entry{channel->fd, POLLIN, 0};
        ASSERT_EQ(::poll(&entry, 1, 20'000), 1) << "the event is lost";
        ibv_cq* told = nullptr;
        void* told_context = nullptr;
        ASSERT_EQ(ibv_get_cq_event(channel, &told, &told_context), 0);
        EXPECT_EQ(told, shared);
        ibv_ack_cq_events(told, 1);
        ibv_wc wc{};
        ASSERT_EQ(ibv_poll_cq(shared, 1, &wc), 1);
        ASSERT_EQ(ibv_req_notify_cq(shared, 0), 0);
    }
}

}  // namespace
}  // namespace feroce::verbs::shards
