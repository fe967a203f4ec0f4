// How much is on its way at a time, counted while no copy ends: a message that waits for its memory
// holds up neither the packets behind it nor the copies of what is sent next.
#include "fake_driver.hpp"
#include "verbs/common.hpp"
#include "verbs/instance.hpp"
#include "verbs/test_pair.hpp"

namespace feroce::gpu_test::ahead_test {
namespace {

constexpr std::uint32_t kMessage = 1 << 20;
constexpr unsigned kMessages = 8;
constexpr std::uint32_t kPiece = mem::FarMemory::kPieceBytes;
constexpr auto kPatience = std::chrono::seconds(20);

class AheadTest : public FakeDriverTest {
protected:
    void SetUp() override {
        ::unsetenv("FEROCE_SAMEHOST");
        context = verbs::open_loopback();
        ASSERT_NE(context, nullptr);
        left = std::make_unique<verbs::Endpoint>(context);
        right = std::make_unique<verbs::Endpoint>(context);
        for (const auto& [own, peer] : {std::pair(&left, &right), std::pair(&right, &left)}) {
            ASSERT_EQ((*own)->to_init(), 0);
            ASSERT_EQ((*own)->to_rtr((*peer)->qp->qp_num, IBV_MTU_4096), 0);
            ASSERT_EQ((*own)->to_rts(0), 0);  // No retry: copies take as long as the test wants.
        }
        host_mr = register_memory(*left, host.data(), host.size());
        from_mr = register_memory(*left, from.pointer(), from.size());
        to_mr = register_memory(*right, to.pointer(), to.size());
        ring();
    }
    void TearDown() override {
        fake().pause(false);
        for (ibv_mr* mr : {host_mr, from_mr, to_mr}) EXPECT_EQ(ibv_dereg_mr(mr), 0);
        left.reset();
        right.reset();
        EXPECT_EQ(ibv_close_device(context), 0);
    }
    static ibv_mr* register_memory(const verbs::Endpoint& end, void* memory, std::size_t bytes) {
        ibv_mr* out = ibv_reg_mr_iova2(end.pd, memory, bytes,
                                       reinterpret_cast<std::uint64_t>(memory), verbs::kAllAccess);
        EXPECT_NE(out, nullptr);
        return out;
    }
    void write(unsigned message, const ibv_mr* mr, const void* memory) const {
        const std::uint64_t at = std::uint64_t{message} * kMessage;
        const ibv_sge entry{reinterpret_cast<std::uint64_t>(memory) + at, kMessage, mr->lkey};
        ASSERT_EQ(left->post(IBV_WR_RDMA_WRITE, entry, to.address() + at, to_mr->rkey), 0);
    }
    // Until the two have a ring that has grown: the first packets of a connection go by UDP.
    void ring() const {
        const auto give_up = std::chrono::steady_clock::now() + kPatience;
        const auto sent = [&] { return count(*left, transport::Counter::RingSentPackets); };
        for (const std::uint64_t before = sent(); sent() < before + 16;) {
            ASSERT_LT(std::chrono::steady_clock::now(), give_up) << "no ring";
            write(0, host_mr, host.data());
            ASSERT_EQ(left->completion().status, IBV_WC_SUCCESS);
        }
    }
    static std::uint64_t look(const verbs::Endpoint& end,
                              const std::function<std::uint64_t(device::Engine&)>& ask) {
        std::uint64_t out = 0;
        verbs::Qp& qp = verbs::qp_of(end.qp);
        EXPECT_TRUE(
            qp.shard->inspect(kPatience, [&](device::Engine& engine) { out = ask(engine); }));
        return out;
    }
    static std::uint64_t count(const verbs::Endpoint& end, transport::Counter counter) {
        return look(end, [&](device::Engine& engine) { return engine.counters()[counter]; });
    }
    static std::uint64_t copies(const verbs::Endpoint& end) {
        return look(end, [](device::Engine& engine) {
            return engine.copies() == nullptr ? 0 : engine.copies()->size();
        });
    }
    // Drives both ends until so many are on their way.
    void expect_copies(const verbs::Endpoint& end, std::uint64_t least) const {
        const auto give_up = std::chrono::steady_clock::now() + kPatience;
        while (copies(end) < least && std::chrono::steady_clock::now() < give_up) {
            ibv_wc wc{};
            ASSERT_EQ(ibv_poll_cq(left->cq, 1, &wc), 0);
            ASSERT_EQ(ibv_poll_cq(right->cq, 1, &wc), 0);
        }
        EXPECT_GE(copies(end), least);
    }
    void expect_all_written(const std::vector<unsigned char>& bytes) const {
        fake().pause(false);
        for (unsigned i = 0; i < kMessages; ++i)
            ASSERT_EQ(left->completion().status, IBV_WC_SUCCESS);
        EXPECT_EQ(to.contents(), bytes);
    }

    ibv_context* context = nullptr;
    std::vector<unsigned char> host = pattern(kMessages * kMessage, 1);
    const DeviceBuffer from{kMessages * kMessage};
    const DeviceBuffer to{kMessages * kMessage};
    std::unique_ptr<verbs::Endpoint> left;
    std::unique_ptr<verbs::Endpoint> right;
    ibv_mr* host_mr = nullptr;
    ibv_mr* from_mr = nullptr;
    ibv_mr* to_mr = nullptr;
};

// The first message is not acknowledged before it is in memory. What a ring has room for unread
// would be less than two of its pieces more.
TEST_F(AheadTest, ThePacketsBehindAMessageThatIsCopiedGoOn) {
    fake().pause(true);
    for (unsigned i = 0; i < kMessages; ++i) write(i, host_mr, host.data());
    expect_copies(*right, 2 * kMessage / kPiece);
    const auto in_flight = look(*left, [&](device::Engine&) {
        return verbs::qp_of(left->qp).machine->machine().progress().in_flight_bytes;
    });
    EXPECT_LT(in_flight, 3U << 20) << "and not without end";
    expect_all_written(host);
}

TEST_F(AheadTest, AMegabyteIsFetchedBeforeItIsSent) {
    from.fill(pattern(from.size(), 2));
    fake().pause(true);
    for (unsigned i = 0; i < kMessages; ++i) write(i, from_mr, from.pointer());
    expect_copies(*left, kMessage / kPiece);
    expect_all_written(from.contents());
}

// Each is a piece of its own: four of them would be as soon sent as one is copied.
TEST_F(AheadTest, MoreShortMessagesThanLongOnesAreFetchedAhead) {
    constexpr std::uint32_t kShort = 64 << 10;
    constexpr unsigned kCount = 16;
    from.fill(pattern(from.size(), 3));
    fake().pause(true);
    for (unsigned i = 0; i < kCount; ++i) {
        const ibv_sge entry{from.address() + i * kShort, kShort, from_mr->lkey};
        ASSERT_EQ(left->post(IBV_WR_RDMA_WRITE, entry, to.address() + i * kShort, to_mr->rkey), 0);
    }
    expect_copies(*left, kCount);
    fake().pause(false);
    for (unsigned i = 0; i < kCount; ++i) ASSERT_EQ(left->completion().status, IBV_WC_SUCCESS);
    const auto want = from.contents(), got = to.contents();
    EXPECT_TRUE(std::equal(want.begin(), want.begin() + kCount * kShort, got.begin()));
}

}  // namespace
}  // namespace feroce::gpu_test::ahead_test
