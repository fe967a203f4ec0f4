// What programs written for other devices take for granted.
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <numeric>

#include "../share/net_space.hpp"
#include "verbs/test_pair.hpp"

namespace feroce::verbs {
namespace {

// Loopback with the MTU of Ethernet.
class Habits : public PairTest {
protected:
    static void SetUpTestSuite() {
        share::enter_private_network();
        ifreq request{};
        std::strcpy(request.ifr_name, "lo");
        request.ifr_mtu = 1500;
        const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        ASSERT_EQ(::ioctl(fd, SIOCSIFMTU, &request), 0);
        ::close(fd);
    }
};

TEST_F(Habits, CallsThatReturnAnErrorSetErrnoToo) {
    const auto told = [](auto&& call) {
        errno = 0;
        const int code = call();
        EXPECT_NE(code, 0);
        EXPECT_EQ(errno, code);
    };
    ibv_qp_attr attributes{};
    attributes.qp_state = static_cast<ibv_qp_state>(77);
    ibv_send_wr send{};
    send.opcode = static_cast<ibv_wr_opcode>(77);
    ibv_send_wr* bad = nullptr;
    const ibv_gid gid{};
    ibv_gid_entry entry{};
    told([&] { return ibv_modify_qp(left->qp, &attributes, IBV_QP_STATE); });
    told([&] { return ibv_dealloc_pd(left->pd); });
    told([&] { return ibv_destroy_cq(left->cq); });
    told([&] { return ibv_destroy_comp_channel(left->channel); });
    told([&] { return ibv_resize_cq(left->cq, 0); });
    told([&] { return ibv_post_send(left->qp, &send, &bad); });
    told([&] { return ibv_attach_mcast(left->qp, &gid, 0); });
    told([&] { return ibv_query_gid_ex(context, 1, 60, &entry, 0); });
}

TEST_F(Habits, RetryCountsMayHaveMoreThanThreeBits) {
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_RTS;
    a.retry_cnt = 10;
    a.rnr_retry = 200;
    a.timeout = 14;
    const Endpoint other(context);
    ASSERT_EQ(other.to_init(), 0);
    ASSERT_EQ(other.to_rtr(left->qp->qp_num), 0);
    ASSERT_EQ(ibv_modify_qp(other.qp, &a,
                            IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC),
              0);
    ibv_qp_attr now{};
    ibv_qp_init_attr init{};
    ASSERT_EQ(ibv_query_qp(other.qp, &now, IBV_QP_RETRY_CNT, &init), 0);
    EXPECT_EQ(now.retry_cnt, 10);
    EXPECT_EQ(now.rnr_retry, 200);
}

TEST_F(Habits, APathMtuBeyondTheInterfacesWorks) {
    ibv_port_attr port{};
    ASSERT_EQ(___ibv_query_port(context, 1, &port), 0);
    ASSERT_EQ(port.active_mtu, IBV_MTU_1024);
    ASSERT_EQ(port.max_mtu, IBV_MTU_4096);
    const Endpoint from(context), to(context);
    for (const Endpoint* end : {&from, &to}) {
        ASSERT_EQ(end->to_init(), 0);
        ASSERT_EQ(end->to_rtr((end == &from ? to : from).qp->qp_num, IBV_MTU_4096), 0);
        ASSERT_EQ(end->to_rts(), 0);
    }
    auto& bytes = const_cast<std::vector<char>&>(from.memory);
    std::iota(bytes.begin(), bytes.end(), char{1});
    ASSERT_EQ(from.post(IBV_WR_RDMA_WRITE, from.sge(0, 20000), to.address(0), to.mr->rkey), 0);
    ASSERT_EQ(from.completion().status, IBV_WC_SUCCESS);
    EXPECT_EQ(std::memcmp(from.memory.data(), to.memory.data(), 20000), 0);
    ibv_qp_attr a{};
    a.path_mtu = static_cast<ibv_mtu>(6);
    EXPECT_EQ(ibv_modify_qp(from.qp, &a, IBV_QP_PATH_MTU), EINVAL);
}

TEST_F(Habits, APortHasTheSpeedOfItsInterface) {
    ibv_port_attr port{};
    ASSERT_EQ(___ibv_query_port(context, 1, &port), 0);
    EXPECT_EQ(port.active_width, 2);   // Four lanes
    EXPECT_EQ(port.active_speed, 32);  // of 25 Gb/s each.
}

TEST_F(Habits, AtomicsAreThoseOfADevice) {
    ibv_device_attr attributes{};
    ASSERT_EQ(ibv_query_device(context, &attributes), 0);
    EXPECT_EQ(attributes.atomic_cap, IBV_ATOMIC_HCA);
    ibv_device_attr_ex more{};
    ASSERT_EQ(ibv_query_device_ex(context, nullptr, &more), 0);
    EXPECT_EQ(more.pci_atomic_caps.fetch_add, IBV_PCI_ATOMIC_OPERATION_8_BYTE_SIZE_SUP);
    EXPECT_EQ(more.pci_atomic_caps.compare_swap, IBV_PCI_ATOMIC_OPERATION_8_BYTE_SIZE_SUP);
}

TEST_F(Habits, ReregistrationSaysWhatRefused) {
    ibv_mr* mr = left->mr;
    EXPECT_EQ(ibv_rereg_mr(mr, 1 << 20, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
    EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, left->pd, nullptr, 0, 1),
              IBV_REREG_MR_ERR_INPUT);
    errno = 0;
    EXPECT_EQ(
        ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_REMOTE_WRITE),
        IBV_REREG_MR_ERR_CMD);
    EXPECT_EQ(errno, EINVAL);
}

}  // namespace
}  // namespace feroce::verbs
