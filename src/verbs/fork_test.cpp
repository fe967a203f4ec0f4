// Processes that fork: nothing of the parent is in the child's way.
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <thread>

#include "base/sanitizers.hpp"
#include "verbs/test_pair.hpp"

namespace feroce::verbs {
namespace {

// The exit status of a child that does this; -1 if it does not end.
int in_child(const std::function<int()>& body) {
    const pid_t child = ::fork();
    if (child == 0) {
        ::alarm(60);
        ::_exit(body());
    }
    int status = 0;
    if (::waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
    return WEXITSTATUS(status);
}

// Opens the domain that the file names and makes a receive queue in it.
int use_domain(ibv_context* context, int file) {
    ibv_pd* pd = ibv_alloc_pd(context);
    ibv_cq* cq = ibv_create_cq(context, 4, nullptr, nullptr, 0);
    ibv_xrcd_init_attr domain{};
    domain.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    domain.fd = file;
    domain.oflags = O_CREAT;
    ibv_xrcd* xrcd = ibv_open_xrcd(context, &domain);
    if (xrcd == nullptr) return errno;
    ibv_srq_init_attr_ex queue{};
    queue.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
                      IBV_SRQ_INIT_ATTR_CQ;
    queue.srq_type = IBV_SRQT_XRC;
    queue.pd = pd;
    queue.xrcd = xrcd;
    queue.cq = cq;
    queue.attr.max_wr = queue.attr.max_sge = 1;
    ibv_srq* srq = ibv_create_srq_ex(context, &queue);
    if (srq == nullptr) return errno;
    ibv_destroy_srq(srq);
    ibv_close_xrcd(xrcd);
    ibv_destroy_cq(cq);
    return ibv_dealloc_pd(pd);
}

TEST(Fork, AChildHasXrcDomainsOfItsOwn) {
    const int file = ::memfd_create("domain", MFD_CLOEXEC);
    ibv_context* context = open_loopback();
    ASSERT_NE(context, nullptr);
    ibv_xrcd_init_attr domain{};
    domain.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    domain.fd = file;
    domain.oflags = O_CREAT;
    ibv_xrcd* xrcd = ibv_open_xrcd(context, &domain);
    ASSERT_NE(xrcd, nullptr);
    EXPECT_EQ(use_domain(context, file), 0);
    EXPECT_EQ(in_child([file] {
                  ibv_context* own = open_loopback();
                  return own == nullptr ? errno : use_domain(own, file);
              }),
              0);
    EXPECT_EQ(ibv_close_xrcd(xrcd), 0);
    EXPECT_EQ(ibv_close_device(context), 0);
    ::close(file);
}

// It has none of its parent's threads, one of which stays in the parent's network.
TEST(Fork, AChildInAnotherNetworkMayAskForItsParentsPort) {
    ibv_context* context = open_loopback();
    ASSERT_NE(context, nullptr);
    const int status = in_child([context] {
        if (::unshare(CLONE_NEWNET) != 0) return errno;
        ibv_port_attr port{};
        return ___ibv_query_port(context, 1, &port);
    });
    EXPECT_EQ(ibv_close_device(context), 0);
    if (status == EPERM) GTEST_SKIP() << "network namespaces take root";
    EXPECT_EQ(status, 0);
}

TEST(Fork, AChildMayHaveDeviceMemoryOfItsParentsDevice) {
    ibv_context* context = open_loopback();
    ASSERT_NE(context, nullptr);
    EXPECT_EQ(in_child([context] {
                  ibv_alloc_dm_attr attributes{};
                  attributes.length = 64;
                  ibv_dm* dm = ibv_alloc_dm(context, &attributes);
                  if (dm == nullptr) return errno;
                  std::uint64_t in = 7, out = 0;
                  if (ibv_memcpy_to_dm(dm, 8, &in, sizeof in) != 0) return 1;
                  if (ibv_memcpy_from_dm(&out, dm, 8, sizeof out) != 0 || out != in) return 2;
                  if (ibv_free_dm(dm) != 0) return 3;
                  return ibv_free_dm(dm) != 0 ? 0 : 4;
              }),
              0);
    EXPECT_EQ(ibv_close_device(context), 0);
}

#if !defined(FEROCE_TSAN)  // Takes the child of a process with two threads for a mistake.
TEST(Fork, AForkDuringTheFirstUseLeavesTheChildUsable) {
    const auto first_use = [] {
        ibv_device** list = ibv_get_device_list(nullptr);
        ibv_free_device_list(list);
        return list == nullptr ? 1 : 0;
    };
    for (int round = 0; round < 40; ++round) {
        ASSERT_EQ(in_child([&] {
                      std::thread other(first_use);
                      for (int spin = 0; spin < round * 500; ++spin) asm volatile("");
                      const int status = in_child(first_use);
                      other.join();
                      return status;
                  }),
                  0)
            << round;
    }
}
#endif

}  // namespace
}  // namespace feroce::verbs
