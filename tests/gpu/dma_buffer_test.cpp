// dma-bufs that CUDA exports, which no CPU can map: the descriptor is a file in memory, and a
// folder stands for /proc/self, which says whose it is. Their bytes are the fake driver's.
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "fake_driver.hpp"
#include "port/dma_buffer.hpp"
#include "verbs/test_pair.hpp"

namespace feroce::gpu_test::dma_buffer_test {
namespace {

namespace fs = std::filesystem;

// As the driver's descriptor of a range, for whom asks /proc. It is of no use otherwise.
class CudaDescriptor {
public:
    explicit CudaDescriptor(std::size_t bytes) : fd_(::memfd_create("cuda", MFD_CLOEXEC)) {
        EXPECT_EQ(::ftruncate(fd_, static_cast<off_t>(bytes)), 0);
        std::string name = (fs::temp_directory_path() / "feroce-proc-XXXXXX").string();
        folder_ = ::mkdtemp(name.data());
        fs::create_directories(folder_ / "fd");
        fs::create_directories(folder_ / "fdinfo");
        fs::create_symlink("/dmabuf:", folder_ / "fd" / std::to_string(fd_));
        std::ofstream(folder_ / "fdinfo" / std::to_string(fd_))
            << "pos:\t0\nexp_name:\tnv_dmabuf\n";
        port::stand_in_for_proc(folder_.c_str());
    }
    ~CudaDescriptor() {
        port::stand_in_for_proc(nullptr);
        fs::remove_all(folder_);
        ::close(fd_);
    }
    CudaDescriptor(const CudaDescriptor&) = delete;
    CudaDescriptor& operator=(const CudaDescriptor&) = delete;
    int get() const { return fd_; }

private:
    const int fd_;
    fs::path folder_;
};

class CudaDmaBufferTest : public FakeDriverTest {
protected:
    void SetUp() override {
        context = verbs::open_loopback();
        ASSERT_NE(context, nullptr);
        left = std::make_unique<verbs::Endpoint>(context);
        right = std::make_unique<verbs::Endpoint>(context);
        verbs::connect(*left, *right);
    }
    void TearDown() override {
        left.reset();
        right.reset();
        EXPECT_EQ(ibv_close_device(context), 0);
    }
    ibv_mr* add(const CudaDescriptor& descriptor, std::uint64_t offset, std::size_t length,
                std::uint64_t iova) const {
        errno = 0;
        return ibv_reg_dmabuf_mr(right->pd, offset, length, iova, descriptor.get(),
                                 verbs::kAllAccess);
    }

    static constexpr std::size_t kBytes = 1 << 16;
    ibv_context* context = nullptr;
    std::unique_ptr<verbs::Endpoint> left;
    std::unique_ptr<verbs::Endpoint> right;
    const DeviceBuffer buffer{2 * kBytes};
};

// As NCCL does it: the iova is the memory's address, and the descriptor is closed right after.
TEST_F(CudaDmaBufferTest, PeersWriteAndReadIt) {
    ibv_mr* mr = nullptr;
    {
        const CudaDescriptor descriptor(kBytes);
        mr = add(descriptor, 4096, kBytes - 4096, buffer.address() + 4096);
    }
    ASSERT_NE(mr, nullptr) << errno;
    EXPECT_EQ(mr->addr, reinterpret_cast<void*>(4096));
    for (int i = 0; i < 5000; ++i) left->memory[i] = static_cast<char>(i * 7);
    const std::uint64_t there = buffer.address() + 4096 + 10;
    ASSERT_EQ(left->post(IBV_WR_RDMA_WRITE, left->sge(0, 5000), there, mr->rkey), 0);
    ASSERT_EQ(left->completion().status, IBV_WC_SUCCESS);
    const std::vector<unsigned char> seen = buffer.contents();
    EXPECT_EQ(std::memcmp(&seen[4096 + 10], left->memory.data(), 5000), 0);
    EXPECT_EQ(seen[4096 + 9], 0);
    EXPECT_EQ(seen[4096 + 5010], 0);
    ASSERT_EQ(left->post(IBV_WR_RDMA_READ, left->sge(8000, 100), there + 50, mr->rkey), 0);
    ASSERT_EQ(left->completion().status, IBV_WC_SUCCESS);
    EXPECT_EQ(std::memcmp(&left->memory[8000], &left->memory[50], 100), 0);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(CudaDmaBufferTest, AnIovaThatIsNotItsAddressIsRefused) {
    const CudaDescriptor descriptor(kBytes);
    EXPECT_EQ(add(descriptor, 0, kBytes, 0), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    EXPECT_EQ(add(descriptor, 0, kBytes,
                  reinterpret_cast<std::uintptr_t>(left->memory.data()) & ~std::uint64_t{4095}),
              nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
}

// What was exported is half of the allocation: the descriptor gives no right to the rest.
TEST_F(CudaDmaBufferTest, ARangeThatLeavesTheDmaBufferIsRefused) {
    const CudaDescriptor descriptor(kBytes);
    EXPECT_EQ(add(descriptor, 0, kBytes + 1, buffer.address()), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(add(descriptor, 4096, kBytes, buffer.address() + 4096), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(add(descriptor, kBytes, 4096, buffer.address() + kBytes), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(add(descriptor, 0, 0, buffer.address()), nullptr);
    EXPECT_EQ(errno, EINVAL);
}

TEST_F(CudaDmaBufferTest, FreedMemoryIsAnErrorCompletion) {
    auto doomed = std::make_unique<DeviceBuffer>(kBytes);
    const CudaDescriptor descriptor(kBytes);
    ibv_mr* mr = add(descriptor, 0, kBytes, doomed->address());
    ASSERT_NE(mr, nullptr) << errno;
    const std::uint64_t there = doomed->address();
    doomed.reset();
    ASSERT_EQ(left->post(IBV_WR_RDMA_WRITE, left->sge(0, 64), there, mr->rkey), 0);
    EXPECT_EQ(left->completion().status, IBV_WC_REM_OP_ERR);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

}  // namespace
}  // namespace feroce::gpu_test::dma_buffer_test
