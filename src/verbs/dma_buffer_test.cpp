// Regions of dma-bufs. The descriptor is a file in memory, and a folder stands for /proc/self,
// which says that it is a dma-buf; where the machine has /dev/udmabuf, the same tests run on a real
// one.
#include <fcntl.h>
#include <linux/udmabuf.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "port/dma_buffer.hpp"
#include "verbs/test_pair.hpp"

namespace feroce::verbs {
namespace dma_buffer_test {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPages = 8;

std::size_t page() {
    return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

// A dma-buf and a second view of its memory.
class Buffer {
public:
    Buffer() = default;
    virtual ~Buffer() {
        ::munmap(view_, kPages * page());
        if (memory_ >= 0) ::close(memory_);
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    virtual int descriptor() const = 0;
    virtual void close_descriptor() = 0;
    unsigned char* view() const { return static_cast<unsigned char*>(view_); }

protected:
    void make_memory() {
        memory_ = ::memfd_create("buffer", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        ASSERT_EQ(::ftruncate(memory_, static_cast<off_t>(kPages * page())), 0);
        view_ = ::mmap(nullptr, kPages * page(), PROT_READ | PROT_WRITE, MAP_SHARED, memory_, 0);
        ASSERT_NE(view_, MAP_FAILED);
    }
    int memory_ = -1;
    void* view_ = nullptr;
};

class StandIn final : public Buffer {
public:
    explicit StandIn(const char* exporter = "udmabuf") {
        make_memory();
        std::string name = (fs::temp_directory_path() / "feroce-proc-XXXXXX").string();
        folder_ = ::mkdtemp(name.data());
        fs::create_directories(folder_ / "fd");
        fs::create_directories(folder_ / "fdinfo");
        fs::create_symlink("/dmabuf:", folder_ / "fd" / std::to_string(memory_));
        std::ofstream(folder_ / "fdinfo" / std::to_string(memory_))
            << "pos:\t0\nflags:\t02000002\nsize:\t32768\ncount:\t2\nexp_name:\t" << exporter
            << "\n";
        port::stand_in_for_proc(folder_.c_str());
    }
    ~StandIn() override {
        port::stand_in_for_proc(nullptr);
        fs::remove_all(folder_);
    }
    int descriptor() const override { return memory_; }
    void close_descriptor() override { ::close(std::exchange(memory_, -1)); }

private:
    fs::path folder_;
};

class RealBuffer final : public Buffer {
public:
    RealBuffer() {
        make_memory();
        EXPECT_EQ(::fcntl(memory_, F_ADD_SEALS, F_SEAL_SHRINK), 0);
        const int maker = ::open("/dev/udmabuf", O_RDWR | O_CLOEXEC);
        udmabuf_create wish{};
        wish.memfd = static_cast<std::uint32_t>(memory_);
        wish.flags = UDMABUF_FLAGS_CLOEXEC;
        wish.size = kPages * page();
        descriptor_ = ::ioctl(maker, UDMABUF_CREATE, &wish);
        ::close(maker);
        EXPECT_GE(descriptor_, 0);
    }
    ~RealBuffer() override {
        if (descriptor_ >= 0) ::close(descriptor_);
    }
    int descriptor() const override { return descriptor_; }
    void close_descriptor() override { ::close(std::exchange(descriptor_, -1)); }

private:
    int descriptor_ = -1;
};

enum class Maker { StandIn, Real };

std::vector<Maker> makers() {
    std::vector<Maker> out{Maker::StandIn};
    if (::access("/dev/udmabuf", R_OK | W_OK) == 0) out.push_back(Maker::Real);
    return out;
}

class DmaBufferTest : public PairTest, public testing::WithParamInterface<Maker> {
protected:
    void SetUp() override {
        PairTest::SetUp();
        if (GetParam() == Maker::Real)
            buffer = std::make_unique<RealBuffer>();
        else
            buffer = std::make_unique<StandIn>();
    }
    void TearDown() override {
        buffer.reset();
        PairTest::TearDown();
    }
    std::unique_ptr<Buffer> buffer;
};

TEST_P(DmaBufferTest, PeersWriteAndReadItByItsIova) {
    const std::size_t offset = page() + 100;
    const std::uint64_t iova = 0x7000'0000'0000 + 100;
    ibv_mr* mr =
        ibv_reg_dmabuf_mr(right->pd, offset, 3 * page(), iova, buffer->descriptor(), kAllAccess);
    ASSERT_NE(mr, nullptr) << errno;
    EXPECT_EQ(mr->addr, reinterpret_cast<void*>(offset));
    EXPECT_EQ(mr->length, 3 * page());
    for (int i = 0; i < 5000; ++i) left->memory[i] = static_cast<char>(i * 7);
    ASSERT_EQ(left->post(IBV_WR_RDMA_WRITE, left->sge(0, 5000), iova + 10, mr->rkey), 0);
    ASSERT_EQ(left->completion().status, IBV_WC_SUCCESS);
    EXPECT_EQ(std::memcmp(buffer->view() + offset + 10, left->memory.data(), 5000), 0);
    EXPECT_EQ(buffer->view()[offset + 9], 0);
    EXPECT_EQ(buffer->view()[offset + 5010], 0);
    buffer->view()[offset + 3 * page() - 1] = 99;
    ASSERT_EQ(left->post(IBV_WR_RDMA_READ, left->sge(8000, 1), iova + 3 * page() - 1, mr->rkey), 0);
    ASSERT_EQ(left->completion().status, IBV_WC_SUCCESS);
    EXPECT_EQ(left->memory[8000], 99);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_P(DmaBufferTest, TheProgramMayCloseItsDescriptor) {
    ibv_mr* mr = ibv_reg_dmabuf_mr(left->pd, 0, page(), 0, buffer->descriptor(), kAllAccess);
    ASSERT_NE(mr, nullptr) << errno;
    buffer->close_descriptor();
    std::memset(buffer->view(), 5, page());
    ASSERT_EQ(right->post_receive(0, 64), 0);
    ASSERT_EQ(left->post(IBV_WR_SEND, {0, 64, mr->lkey}, 0, 0), 0);
    ASSERT_EQ(left->completion().status, IBV_WC_SUCCESS);
    ASSERT_EQ(right->completion().status, IBV_WC_SUCCESS);
    EXPECT_EQ(right->memory[63], 5);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_P(DmaBufferTest, RangesAndRightsAreChecked) {
    const int fd = buffer->descriptor();
    const auto refused = [&](std::uint64_t offset, std::size_t length, std::uint64_t iova,
                             int access) {
        errno = 0;
        EXPECT_EQ(ibv_reg_dmabuf_mr(left->pd, offset, length, iova, fd, access), nullptr);
        return errno;
    };
    EXPECT_EQ(refused(0, kPages * page() + 1, 0, kAllAccess), EINVAL);
    EXPECT_EQ(refused(page(), kPages * page(), 0, kAllAccess), EINVAL);
    EXPECT_EQ(refused(~std::uint64_t{0} & ~(page() - 1), 2 * page(), 0, kAllAccess), EINVAL);
    EXPECT_EQ(refused(0, 0, 0, kAllAccess), EINVAL);
    EXPECT_EQ(refused(1, 64, 2, kAllAccess), EINVAL);  // Other places within their pages.
    EXPECT_EQ(refused(0, 64, 0, IBV_ACCESS_REMOTE_WRITE), EINVAL);
    // Its place is the dma-buf's, its rights are the program's.
    ibv_mr* mr = ibv_reg_dmabuf_mr(left->pd, 0, page(), 0, fd, IBV_ACCESS_LOCAL_WRITE);
    ASSERT_NE(mr, nullptr);
    EXPECT_NE(
        ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, left->memory.data(), 64, 0), 0);
    EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kAllAccess), 0);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

INSTANTIATE_TEST_SUITE_P(Makers, DmaBufferTest, testing::ValuesIn(makers()));

class DmaBufferProbeTest : public DeviceTest {
protected:
    int probe(std::size_t length, int fd, int access) {
        errno = 0;
        EXPECT_EQ(ibv_reg_dmabuf_mr(pd, 0, length, 0, fd, access), nullptr);
        return errno;
    }
};

TEST_F(DmaBufferProbeTest, ABadDescriptorIsThatAndNothingElse) {
    EXPECT_EQ(probe(0, -1, 0), EBADF);                // As NCCL asks.
    EXPECT_EQ(probe(page(), -1, kAllAccess), EBADF);  // As UCX asks.
    EXPECT_EQ(probe(page(), 1 << 20, kAllAccess), EBADF);
    const int file = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    EXPECT_EQ(probe(page(), file, kAllAccess), EINVAL);
    ::close(file);
}

TEST_F(DmaBufferProbeTest, MemoryThatTheCpuCannotMapIsRefused) {
    // A sealed file in memory cannot be mapped for writing.
    const StandIn sealed("other");
    EXPECT_EQ(::munmap(sealed.view(), kPages * page()), 0);
    ASSERT_EQ(::fcntl(sealed.descriptor(), F_ADD_SEALS, F_SEAL_WRITE), 0);
    EXPECT_EQ(probe(page(), sealed.descriptor(), kAllAccess), EOPNOTSUPP);
    ibv_mr* readable = ibv_reg_dmabuf_mr(pd, 0, page(), 0, sealed.descriptor(), 0);
    EXPECT_EQ(readable == nullptr ? errno : ibv_dereg_mr(readable), 0);
}

}  // namespace
}  // namespace dma_buffer_test
}  // namespace feroce::verbs
