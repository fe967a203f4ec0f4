// Registered memory that is unmapped, protected or cut off its file while peers use it: completions
// with errors and reasons on both ends, never a signal, and the program's own handler stays in
// place. Then memory of unusual kinds, whose bytes must arrive where they belong.
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <numeric>

#include "mem/test_pages.hpp"
#include "verbs/test_pair.hpp"

namespace feroce::verbs {
namespace {

constexpr std::size_t kBytes = 64 * 1024;

enum class Loss { Unmapped, Unreadable, ReadOnly, Truncated };

const char* name_of(Loss loss) {
    constexpr const char* kNames[] = {"Unmapped", "Unreadable", "ReadOnly", "Truncated"};
    return kNames[static_cast<std::size_t>(loss)];
}

// A registered mapping of a file in memory, all of which can be lost.
class Victim {
public:
    explicit Victim(ibv_pd* pd) : file_(::memfd_create("victim", MFD_CLOEXEC)) {
        EXPECT_EQ(::ftruncate(file_, kBytes), 0);
        start_ = ::mmap(mem::test::place_aside(kBytes), kBytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                        file_, 0);
        mr_ = ibv_reg_mr_iova2(pd, start_, kBytes, address(), kAllAccess);
    }
    ~Victim() {
        EXPECT_EQ(ibv_dereg_mr(mr_), 0);
        // Not twice: by then the place may be somebody else's.
        if (is_mapped_) ::munmap(start_, kBytes);
        ::close(file_);
    }
    Victim(const Victim&) = delete;
    Victim& operator=(const Victim&) = delete;

    void lose(Loss loss) {
        switch (loss) {
            case Loss::Unmapped:
                EXPECT_EQ(::munmap(start_, kBytes), 0);
                is_mapped_ = false;
                break;
            case Loss::Unreadable:
                EXPECT_EQ(::mprotect(start_, kBytes, PROT_NONE), 0);
                break;
            case Loss::ReadOnly:
                EXPECT_EQ(::mprotect(start_, kBytes, PROT_READ), 0);
                break;
            case Loss::Truncated:
                EXPECT_EQ(::ftruncate(file_, 0), 0);
                break;
        }
    }
    std::uint64_t address() const { return reinterpret_cast<std::uintptr_t>(start_); }
    ibv_sge sge(std::uint32_t length) const { return {address(), length, mr_->lkey}; }
    std::uint32_t rkey() const { return mr_->rkey; }

private:
    int file_;
    void* start_ = nullptr;
    bool is_mapped_ = true;
    ibv_mr* mr_ = nullptr;
};

ibv_qp_state state_of(const Endpoint& endpoint) {
    ibv_qp_attr attributes{};
    ibv_qp_init_attr init{};
    EXPECT_EQ(ibv_query_qp(endpoint.qp, &attributes, IBV_QP_STATE, &init), 0);
    return attributes.qp_state;
}

// A failed completion whose vendor_err is the number of its reason.
void expect_failure(const ibv_wc& wc, ibv_wc_status status) {
    EXPECT_EQ(wc.status, status) << ibv_wc_status_str(wc.status);
    EXPECT_NE(wc.vendor_err, 0u);
}

class LostMemoryTest : public PairTest, public testing::WithParamInterface<Loss> {
protected:
    bool only_writes_fail() const { return GetParam() == Loss::ReadOnly; }
};

TEST_P(LostMemoryTest, TargetOfAWrite) {
    Victim victim(right->pd);
    ASSERT_EQ(right->post_receive(0, 8), 0);
    victim.lose(GetParam());
    ASSERT_EQ(left->post(IBV_WR_RDMA_WRITE, left->sge(0, 5000), victim.address(), victim.rkey()),
              0);
    expect_failure(left->completion(), IBV_WC_REM_OP_ERR);
    expect_failure(right->completion(), IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(state_of(*left), IBV_QPS_ERR);
    EXPECT_EQ(state_of(*right), IBV_QPS_ERR);
}

TEST_P(LostMemoryTest, SourceOfARead) {
    Victim victim(right->pd);
    victim.lose(GetParam());
    ASSERT_EQ(left->post(IBV_WR_RDMA_READ, left->sge(0, 5000), victim.address(), victim.rkey()), 0);
    const ibv_wc wc = left->completion();
    if (only_writes_fail()) {
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        return;
    }
    expect_failure(wc, IBV_WC_REM_OP_ERR);
    EXPECT_EQ(state_of(*right), IBV_QPS_ERR);
}

TEST_P(LostMemoryTest, TargetOfAnAtomic) {
    Victim victim(right->pd);
    victim.lose(GetParam());
    ASSERT_EQ(
        left->post(IBV_WR_ATOMIC_FETCH_AND_ADD, left->sge(0, 8), victim.address(), victim.rkey()),
        0);
    expect_failure(left->completion(), IBV_WC_REM_OP_ERR);
}

TEST_P(LostMemoryTest, ReceiveBuffer) {
    Victim victim(right->pd);
    ibv_sge entry = victim.sge(5000);
    ibv_recv_wr wr{};
    wr.sg_list = &entry;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_recv(right->qp, &wr, &bad), 0);
    victim.lose(GetParam());
    ASSERT_EQ(left->post(IBV_WR_SEND, left->sge(0, 5000), 0, 0), 0);
    expect_failure(left->completion(), IBV_WC_REM_OP_ERR);
    expect_failure(right->completion(), IBV_WC_LOC_PROT_ERR);
}

TEST_P(LostMemoryTest, SourceOfAWrite) {
    Victim victim(left->pd);
    victim.lose(GetParam());
    ASSERT_EQ(left->post(IBV_WR_RDMA_WRITE, victim.sge(5000), right->address(0), right->mr->rkey),
              0);
    const ibv_wc wc = left->completion();
    if (only_writes_fail()) {
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    } else {
        expect_failure(wc, IBV_WC_LOC_PROT_ERR);
    }
}

TEST_P(LostMemoryTest, LandingOfARead) {
    Victim victim(left->pd);
    victim.lose(GetParam());
    ASSERT_EQ(left->post(IBV_WR_RDMA_READ, victim.sge(5000), right->address(0), right->mr->rkey),
              0);
    expect_failure(left->completion(), IBV_WC_LOC_PROT_ERR);
}

// The writes go on until one meets the loss, wherever in its copy that finds it.
TEST_P(LostMemoryTest, InTheMiddleOfTraffic) {
    Victim victim(right->pd);
    constexpr int kBefore = 20;
    ibv_wc_status status = IBV_WC_SUCCESS;
    int writes = 0;
    for (; writes < 10 * kBefore && status == IBV_WC_SUCCESS; ++writes) {
        ASSERT_EQ(
            left->post(IBV_WR_RDMA_WRITE, left->sge(0, kBytes), victim.address(), victim.rkey()),
            0);
        if (writes == kBefore) victim.lose(GetParam());
        status = left->completion().status;
    }
    EXPECT_EQ(status, IBV_WC_REM_OP_ERR);
    EXPECT_GE(writes, kBefore);
}

INSTANTIATE_TEST_SUITE_P(All, LostMemoryTest,
                         testing::Values(Loss::Unmapped, Loss::Unreadable, Loss::ReadOnly,
                                         Loss::Truncated),
                         [](const auto& tested) { return name_of(tested.param); });

// ---- the program's own handler ----------------------------------------------------------------

sigjmp_buf recovery;
volatile sig_atomic_t caught = 0;

void application_handler(int) {
    caught = caught + 1;
    siglongjmp(recovery, 1);
}

void fault_once() {
    void* page = ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (sigsetjmp(recovery, 1) == 0) *static_cast<volatile char*>(page) = 1;
    ::munmap(page, 4096);
}

// Installed after the library came, hence in its place. Handlers from before: mem/guard_test.
TEST_F(PairTest, AProgramsHandlerWorksBesideLostMemory) {
    struct sigaction action {};
    struct sigaction before {};
    action.sa_handler = application_handler;
    ASSERT_EQ(::sigaction(SIGSEGV, &action, &before), 0);
    caught = 0;
    fault_once();
    EXPECT_EQ(caught, 1);
    {
        Victim victim(right->pd);
        victim.lose(Loss::Unmapped);
        ASSERT_EQ(left->post(IBV_WR_RDMA_WRITE, left->sge(0, 8), victim.address(), victim.rkey()),
                  0);
        expect_failure(left->completion(), IBV_WC_REM_OP_ERR);
    }
    EXPECT_EQ(caught, 1) << "our fault is not the program's";
    struct sigaction now {};
    ASSERT_EQ(::sigaction(SIGSEGV, nullptr, &now), 0);
    EXPECT_EQ(now.sa_handler, application_handler);
    fault_once();
    EXPECT_EQ(caught, 2);
    ASSERT_EQ(::sigaction(SIGSEGV, &before, nullptr), 0);
}

// ---- kinds of memory --------------------------------------------------------------------------

TEST_F(PairTest, BytesWrittenToAMappedFileAreInTheFile) {
    char path[] = "/tmp/feroce-file-XXXXXX";
    const int file = ::mkostemp(path, O_CLOEXEC);
    ASSERT_GE(file, 0);
    ::unlink(path);
    ASSERT_EQ(::ftruncate(file, kBytes), 0);
    void* start = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ASSERT_NE(start, MAP_FAILED);
    const auto address = reinterpret_cast<std::uintptr_t>(start);
    ibv_mr* mr = ibv_reg_mr_iova2(right->pd, start, kBytes, address, kAllAccess);
    ASSERT_NE(mr, nullptr);
    std::iota(left->memory.begin(), left->memory.end(), char{1});
    ASSERT_EQ(left->post(IBV_WR_RDMA_WRITE, left->sge(0, kBytes), address, mr->rkey), 0);
    EXPECT_EQ(left->completion().status, IBV_WC_SUCCESS);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    ::munmap(start, kBytes);
    std::vector<char> stored(kBytes);
    ASSERT_EQ(::pread(file, stored.data(), kBytes, 0), static_cast<ssize_t>(kBytes));
    EXPECT_EQ(stored, left->memory);
    ::close(file);
}

// Reserved huge pages where the machine has some, else those that the kernel makes up itself.
void* map_huge(std::size_t bytes) {
    constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS;
    void* start = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kFlags | MAP_HUGETLB, -1, 0);
    if (start != MAP_FAILED) return start;
    start = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kFlags, -1, 0);
    ::madvise(start, bytes, MADV_HUGEPAGE);
    return start;
}

TEST_F(PairTest, HugePagesAreMemoryLikeAnyOther) {
    constexpr std::size_t kHuge = 4 * 1024 * 1024;
    auto* start = static_cast<char*>(map_huge(kHuge));
    const auto address = reinterpret_cast<std::uintptr_t>(start);
    ibv_mr* mr = ibv_reg_mr_iova2(right->pd, start, kHuge, address, kAllAccess);
    ASSERT_NE(mr, nullptr);
    std::iota(left->memory.begin(), left->memory.end(), char{1});
    // Across the border of two huge pages.
    const std::size_t offset = kHuge / 2 - kBytes / 2;
    ASSERT_EQ(left->post(IBV_WR_RDMA_WRITE, left->sge(0, kBytes), address + offset, mr->rkey), 0);
    EXPECT_EQ(left->completion().status, IBV_WC_SUCCESS);
    EXPECT_EQ(std::memcmp(start + offset, left->memory.data(), kBytes), 0);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    ::munmap(start, kHuge);
}

}  // namespace
}  // namespace feroce::verbs
