// Many queue pairs in one process, and an open device that costs nothing while idle.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <vector>

#include "verbs/test_pair.hpp"

namespace feroce::verbs {
namespace {

long resident_kib() {
    long pages = 0;
    std::FILE* file = std::fopen("/proc/self/statm", "re");
    if (file == nullptr || std::fscanf(file, "%*s %ld", &pages) != 1) pages = 0;
    if (file != nullptr) std::fclose(file);
    return pages * 4;
}

std::chrono::microseconds cpu_time() {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return std::chrono::seconds(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           std::chrono::microseconds(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

TEST(Scale, TenThousandQueuePairsOpenWorkAndClose) {
    constexpr int kCount = 10'000;
    ibv_context* context = open_loopback();
    ASSERT_NE(context, nullptr);
    {
        Endpoint left(context), right(context);
        const long before = resident_kib();
        std::vector<ibv_qp*> qps;
        ibv_qp_init_attr init{};
        init.send_cq = init.recv_cq = left.cq;
        init.qp_type = IBV_QPT_RC;
        init.cap = {16, 16, 1, 1, 0};
        for (int i = 0; i < kCount; ++i) {
            qps.push_back(ibv_create_qp(left.pd, &init));
            ASSERT_NE(qps.back(), nullptr) << i;
        }
        std::printf("%.1f KiB an idle queue pair\n",
                    static_cast<double>(resident_kib() - before) / kCount);
        connect(left, right);
        ASSERT_EQ(left.post(IBV_WR_RDMA_WRITE, left.sge(0, 1000), right.address(0), right.mr->rkey),
                  0);
        EXPECT_EQ(left.completion().status, IBV_WC_SUCCESS);
        for (ibv_qp* qp : qps) EXPECT_EQ(ibv_destroy_qp(qp), 0);
    }
    EXPECT_EQ(ibv_close_device(context), 0);
}

TEST(Scale, AnIdleDeviceUsesNoCpu) {
    ibv_context* context = open_loopback();
    ASSERT_NE(context, nullptr);
    {
        Endpoint left(context), right(context);
        connect(left, right);
        ASSERT_EQ(left.post(IBV_WR_RDMA_WRITE, left.sge(0, 8), right.address(0), right.mr->rkey),
                  0);
        EXPECT_EQ(left.completion().status, IBV_WC_SUCCESS);
        const auto before = cpu_time();
        ::poll(nullptr, 0, 2000);  // Being idle is what is tested.
        // A busy thread would take two seconds; ten milliseconds are far more than a few timers.
        EXPECT_LT((cpu_time() - before).count(), 10'000);
    }
    EXPECT_EQ(ibv_close_device(context), 0);
}

}  // namespace
}  // namespace feroce::verbs
