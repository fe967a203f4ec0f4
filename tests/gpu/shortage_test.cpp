// Copies when there is no memory: each that was started is over once, and nothing is lost.
#include <atomic>
#include <cstdlib>
#include <new>
#include <thread>

#include "cuda/devices.hpp"
#include "cuda/pinned_pool.hpp"
#include "fake_driver.hpp"
#include "port/real_host.hpp"
#include "process/copy_inbox.hpp"
#include "process/silent_host.hpp"
#include "verbs/test_pair.hpp"

namespace feroce::gpu_test::shortage_test {
namespace {

thread_local bool refuses = false;  // The calling thread gets no memory.

class Shortage {
public:
    Shortage() { refuses = true; }
    ~Shortage() { refuses = false; }
    Shortage(const Shortage&) = delete;
    Shortage& operator=(const Shortage&) = delete;
};

}  // namespace
}  // namespace feroce::gpu_test::shortage_test

// For all of this test program. Not inline: compilers would see new and free() mixed.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
    void* block = feroce::gpu_test::shortage_test::refuses ? nullptr : std::malloc(bytes);
    if (block == nullptr) throw std::bad_alloc();
    return block;
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
    return feroce::gpu_test::shortage_test::refuses ? nullptr : std::malloc(bytes);
}
[[gnu::noinline]] void operator delete(void* block) noexcept {
    std::free(block);
}
[[gnu::noinline]] void operator delete(void* block, std::size_t) noexcept {
    std::free(block);
}

namespace feroce::gpu_test::shortage_test {
namespace {

class Counts final : public mem::CopyListener {
public:
    void copy_done(mem::CopyToken, bool good) override { ++(good ? good_ : failed_); }
    unsigned good() const { return good_; }
    unsigned failed() const { return failed_; }

private:
    std::atomic<unsigned> good_{0}, failed_{0};
};

class ShortageTest : public FakeDriverTest {};

TEST_F(ShortageTest, ACopyThatCannotBeQueuedFailsAndIsOver) {
    port::RealHost host({});
    cuda::Devices devices(host);
    const DeviceBuffer buffer(4096);
    const auto far = devices.find(buffer.address(), buffer.size());
    ASSERT_TRUE(far.has_value());
    const std::unique_ptr<mem::Staging> staging = (*far)->stage(8);
    Counts counts;
    unsigned started = 0;
    fake().delay(1000, 1000);  // Jobs come faster than they are done.
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (counts.failed() == 0 && std::chrono::steady_clock::now() < give_up) {
        const Shortage none;
        EXPECT_NO_THROW((*far)->start(
            {++started, mem::CopyDirection::Deliver, buffer.address(), staging->bytes(), &counts}));
    }
    EXPECT_EQ(counts.failed(), 1u);
    fake().delay(0, 0);
    (*far)->close();
    EXPECT_EQ(counts.good() + counts.failed(), started);
}

TEST_F(ShortageTest, APieceThatCannotBeHandedOutGoesBack) {
    fake();  // Loads it.
    const cuda::Driver* driver = cuda::loaded_driver();
    ASSERT_NE(driver, nullptr);
    cuda::Context context = nullptr;
    ASSERT_EQ(driver->primary_context_retain(&context, 0), cuda::kSuccess);
    const cuda::Current current(*driver, context);
    const auto pool = cuda::PinnedPool::make(*driver, {.small_pieces = 1, .pieces = 1});
    ASSERT_TRUE(pool.has_value());
    for (int i = 0; i < 3; ++i) {
        const Shortage none;
        EXPECT_THROW((void)(*pool)->stage(8), std::bad_alloc);
    }
    for (int i = 0; i < 2; ++i) {
        std::byte* piece = (*pool)->take(8);
        EXPECT_NE(piece, nullptr) << "of the two, so many were left: " << i;
    }
}

TEST_F(ShortageTest, ARegionThatCannotMoveStays) {
    ibv_context* context = verbs::open_loopback();
    ASSERT_NE(context, nullptr);
    ibv_pd* pd = ibv_alloc_pd(context);
    std::vector<char> host(4096);
    const DeviceBuffer buffer(4096);
    ibv_mr* mr = ibv_reg_mr_iova2(pd, host.data(), host.size(), 0, verbs::kAllAccess);
    ASSERT_NE(mr, nullptr);
    {
        const Shortage none;
        EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, buffer.pointer(),
                               buffer.size(), 0),
                  IBV_REREG_MR_ERR_INPUT);
    }
    EXPECT_EQ(mr->addr, host.data());
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_EQ(ibv_dealloc_pd(pd), 0);
    EXPECT_EQ(ibv_close_device(context), 0);
}

// The thread that copies could do nothing about it.
TEST(CopyInboxes, AllocateNothingForWhatTheyHaveRoomFor) {
    constexpr mem::CopyToken kMany = 5000;
    process::CopyInbox inbox([] {});
    Prng random{1};
    mem::Memory memory({}, random);
    device::XrcDomains xrc;
    process::SilentPort port;
    process::SilentEvents events;
    device::Engine engine({}, {memory, xrc, port, events, random, &inbox});
    inbox.copy_done(1, true);
    inbox.make_room(kMany);
    for (int turn = 0; turn < 3; ++turn) {
        {
            const Shortage none;
            for (mem::CopyToken i = 1; i < kMany; ++i) inbox.copy_done(i, true);
        }
        inbox.empty_into(Instant{}, engine);
    }
}

}  // namespace
}  // namespace feroce::gpu_test::shortage_test
