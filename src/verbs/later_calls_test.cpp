// Calls of rdma-core's releases 59 to 65, as a program that was built with their headers makes
// them.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "verbs/test_pair.hpp"

namespace feroce::verbs {
namespace later_calls_test {
namespace {

// As those headers have it; `buf` since release 64.
struct MrInitAttr {
    std::size_t length = 0;
    int access = 0;
    std::uint64_t comp_mask = 0;
    std::uint64_t iova = 0;
    void* addr = nullptr;
    int fd = -1;
    std::uint64_t fd_offset = 0;
    void* dmah = nullptr;
    ibv_buf* buf = nullptr;
};
enum : std::uint64_t { kIova = 1, kAddr = 2, kFd = 4, kFdOffset = 8, kDmah = 16, kBuf = 32 };

class LaterCallsTest : public testing::Test {
protected:
    void SetUp() override {
        context = open_loopback();
        ASSERT_NE(context, nullptr);
        pd = ibv_alloc_pd(context);
        ASSERT_NE(pd, nullptr);
    }
    void TearDown() override {
        EXPECT_EQ(ibv_dealloc_pd(pd), 0);
        EXPECT_EQ(ibv_close_device(context), 0);
    }
    ibv_mr* register_ex(MrInitAttr wanted) const {
        errno = 0;
        return ibv_reg_mr_ex(pd, reinterpret_cast<ibv_mr_init_attr*>(&wanted));
    }
    void expect_refused(const MrInitAttr& wanted, int code) const {
        EXPECT_EQ(register_ex(wanted), nullptr);
        EXPECT_EQ(errno, code);
    }

    ibv_context* context = nullptr;
    ibv_pd* pd = nullptr;
    std::vector<char> memory = std::vector<char>(8192);
};

TEST_F(LaterCallsTest, ARegionIsNamedByAddress) {
    ibv_mr* mr = register_ex({.length = 4096, .comp_mask = kAddr, .addr = memory.data()});
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(mr->addr, memory.data());
    EXPECT_EQ(mr->length, 4096u);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(LaterCallsTest, ARegionWithAnIovaIsReachedByIt) {
    Endpoint self(context);
    MrInitAttr wanted{.length = 4096, .access = kAllAccess, .comp_mask = kAddr | kIova};
    wanted.iova = 0x1000;
    wanted.addr = memory.data();
    ibv_mr* mr = ibv_reg_mr_ex(self.pd, reinterpret_cast<ibv_mr_init_attr*>(&wanted));
    ASSERT_NE(mr, nullptr);
    ASSERT_EQ(self.to_init(), 0);
    ASSERT_EQ(self.to_rtr(self.qp->qp_num), 0);
    ASSERT_EQ(self.to_rts(), 0);
    memory[17] = 'x';
    ASSERT_EQ(self.post(IBV_WR_RDMA_READ, self.sge(0, 1), 0x1000 + 17, mr->rkey), 0);
    ASSERT_EQ(self.completion().status, IBV_WC_SUCCESS);
    EXPECT_EQ(self.memory[0], 'x');
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(LaterCallsTest, OtherWaysToNameMemoryAreRefused) {
    expect_refused({.length = 64, .comp_mask = 0}, EINVAL);
    expect_refused({.length = 64, .comp_mask = kAddr | kFdOffset, .addr = memory.data()}, EINVAL);
    expect_refused({.length = 64, .comp_mask = kFd | kFdOffset}, EINVAL);
    expect_refused({.length = 64, .comp_mask = kFd | kIova}, EINVAL);
    expect_refused({.length = 64, .comp_mask = kFd | kFdOffset | kIova | kAddr}, EINVAL);
    expect_refused({.length = 64, .comp_mask = kAddr | kDmah, .addr = memory.data()}, EOPNOTSUPP);
    expect_refused({.length = 64, .comp_mask = kAddr | 64, .addr = memory.data()}, EOPNOTSUPP);
    // As ibv_reg_dmabuf_mr says it: what programs take for "dma-bufs are known here".
    expect_refused({.length = 64, .comp_mask = kFd | kFdOffset | kIova}, EBADF);
}

TEST_F(LaterCallsTest, ABufferHasPagesOfItsOwnAndIsRegistered) {
    ibv_buf* handle = nullptr;
    void* buffer = ibv_alloc_buf(pd, 5000, &handle);
    ASSERT_NE(buffer, nullptr);
    ASSERT_NE(handle, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer) %
                  static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE)),
              0u);
    std::memset(buffer, 1, 5000);
    ibv_mr* mr = ibv_reg_buf_mr(pd, handle, buffer, 5000, IBV_ACCESS_LOCAL_WRITE);
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(mr->addr, buffer);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    errno = 0;
    EXPECT_EQ(ibv_export_buf_dmabuf_fd(handle), -1);
    EXPECT_EQ(errno, ENODATA);
    ibv_free_buf(handle);
}

TEST_F(LaterCallsTest, ARangeOutsideOfABufferIsRefused) {
    ibv_buf* handle = nullptr;
    auto* buffer = static_cast<char*>(ibv_alloc_buf(pd, 5000, &handle));
    ASSERT_NE(buffer, nullptr);
    const auto refused = [&](ibv_pd* domain, void* address, std::size_t length) {
        errno = 0;
        return ibv_reg_buf_mr(domain, handle, address, length, 0) == nullptr && errno == EINVAL;
    };
    EXPECT_TRUE(refused(pd, buffer, 5001));
    EXPECT_TRUE(refused(pd, buffer + 5000, 1));
    EXPECT_TRUE(refused(pd, buffer - 1, 2));
    EXPECT_TRUE(refused(pd, buffer + 1, SIZE_MAX));
    ibv_pd* other = ibv_alloc_pd(context);
    ASSERT_NE(other, nullptr);
    EXPECT_TRUE(refused(other, buffer, 100));
    EXPECT_EQ(ibv_dealloc_pd(other), 0);
    expect_refused({.length = 64, .comp_mask = kBuf, .addr = buffer, .buf = handle}, EINVAL);
    ibv_free_buf(handle);
    EXPECT_EQ(ibv_alloc_buf(pd, 0, &handle), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ibv_alloc_buf(pd, SIZE_MAX, &handle), nullptr);
    EXPECT_EQ(errno, ENOMEM);
}

TEST_F(LaterCallsTest, WhatTheDeviceHasNotIsNotSupported) {
    errno = 0;
    EXPECT_EQ(ibv_alloc_dmah(context, nullptr), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    EXPECT_EQ(ibv_dealloc_dmah(nullptr), EOPNOTSUPP);
    errno = 0;
    EXPECT_EQ(ibv_dm_export_dmabuf_fd(nullptr), -1);
    EXPECT_EQ(errno, EOPNOTSUPP);
    EXPECT_EQ(_ibv_query_comp_cntr_caps(context, nullptr, 16), EOPNOTSUPP);
    errno = 0;
    EXPECT_EQ(ibv_create_comp_cntr(context, nullptr), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    std::uint64_t value = 7;
    EXPECT_EQ(ibv_destroy_comp_cntr(nullptr), EOPNOTSUPP);
    EXPECT_EQ(ibv_set_comp_cntr(nullptr, 1), EOPNOTSUPP);
    EXPECT_EQ(ibv_set_err_comp_cntr(nullptr, 1), EOPNOTSUPP);
    EXPECT_EQ(ibv_inc_comp_cntr(nullptr, 1), EOPNOTSUPP);
    EXPECT_EQ(ibv_inc_err_comp_cntr(nullptr, 1), EOPNOTSUPP);
    EXPECT_EQ(ibv_read_comp_cntr(nullptr, &value), EOPNOTSUPP);
    EXPECT_EQ(ibv_read_err_comp_cntr(nullptr, &value), EOPNOTSUPP);
    EXPECT_EQ(ibv_qp_attach_comp_cntr(nullptr, nullptr, nullptr), EOPNOTSUPP);
    EXPECT_EQ(value, 7u);
}

}  // namespace
}  // namespace later_calls_test
}  // namespace feroce::verbs
