// What registration says of GPU memory.
#include "fake_driver.hpp"
#include "verbs/test_pair.hpp"

namespace feroce::gpu_test::registration_test {
namespace {

class RegistrationTest : public FakeDriverTest {
protected:
    RegistrationTest() : context(verbs::open_loopback()), pd(ibv_alloc_pd(context)) {}
    ~RegistrationTest() override {
        EXPECT_EQ(ibv_dealloc_pd(pd), 0);
        EXPECT_EQ(ibv_close_device(context), 0);
    }
    ibv_mr* add(void* address, std::size_t length) const {
        return ibv_reg_mr_iova2(pd, address, length, reinterpret_cast<std::uintptr_t>(address),
                                verbs::kAllAccess);
    }
    ibv_context* context;
    ibv_pd* pd;
};

TEST_F(RegistrationTest, DeviceMemoryIsTaken) {
    for (const fake_cuda::Kind kind : {fake_cuda::Kind::Device, fake_cuda::Kind::Mapped,
                                       fake_cuda::Kind::Managed, fake_cuda::Kind::Host}) {
        const DeviceBuffer buffer(1 << 20, kind);
        ibv_mr* mr = add(buffer.pointer(), buffer.size());
        ASSERT_NE(mr, nullptr) << errno;
        EXPECT_EQ(mr->addr, buffer.pointer());
        EXPECT_EQ(ibv_dereg_mr(mr), 0);
        mr = (ibv_reg_mr)(pd, buffer.pointer(), buffer.size(), verbs::kAllAccess);
        ASSERT_NE(mr, nullptr) << errno;
        EXPECT_EQ(ibv_dereg_mr(mr), 0);
    }
}

TEST_F(RegistrationTest, ARangeBeyondTheAllocationIsRefused) {
    const DeviceBuffer buffer(1 << 20);
    errno = 0;
    EXPECT_EQ(add(buffer.pointer(), std::size_t{1} << 40), nullptr);
    EXPECT_EQ(errno, EFAULT);
}

TEST_F(RegistrationTest, ARegionMovesBetweenHostAndDevice) {
    std::vector<char> host(1 << 16);
    const DeviceBuffer buffer(1 << 16);
    ibv_mr* mr = add(host.data(), host.size());
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, buffer.pointer(),
                           buffer.size(), 0),
              0);
    EXPECT_EQ(mr->addr, buffer.pointer());
    EXPECT_EQ(
        ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, host.data(), host.size(), 0), 0);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

}  // namespace
}  // namespace feroce::gpu_test::registration_test
