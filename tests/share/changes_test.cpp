// The interface changes under an open device: GIDs follow its addresses, events tell the program,
// and what the interface cannot carry is refused. And a kernel without UDP_GRO: segments come one
// by one, and their IPv4 ids must be solved.
#include <gtest/gtest.h>
#include <linux/seccomp.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "attacks.hpp"
#include "base/sanitizers.hpp"
#include "ring.hpp"

namespace feroce::share {
namespace {

using std::chrono::seconds;

bool run(const std::string& command) {
    return std::system(command.c_str()) == 0;
}

class Changes : public testing::Test {
protected:
    void SetUp() override {
        enter_private_network();
        ASSERT_TRUE(run("ip link add eth0 type veth peer name eth1"));
        ASSERT_TRUE(run("ip link set eth1 up"));
        ASSERT_TRUE(run("ip link set eth0 up"));
        ASSERT_TRUE(run("ip address add 10.0.0.1/24 dev eth0"));
    }

    // In a child, since the process object looks at the environment once.
    static int in_child(const std::function<int(ibv_context*)>& body) {
        const pid_t child = ::fork();
        if (child == 0) {
            ::setenv("FEROCE_DEVICES", "eth0", 1);
            int count = 0;
            ibv_device** list = ibv_get_device_list(&count);
            ::_exit(count == 1 ? body(ibv_open_device(list[0])) : 99);
        }
        return exit_status(child);
    }
};

// Whether an event of that type comes; others before it are passed over.
bool event_comes(ibv_context* context, ibv_event_type type) {
    for (int i = 0; i < 20; ++i) {
        pollfd p{context->async_fd, POLLIN, 0};
        if (::poll(&p, 1, 10'000) != 1) return false;
        ibv_async_event event{};
        if (ibv_get_async_event(context, &event) != 0) return false;
        ibv_ack_async_event(&event);
        if (event.event_type == type) return true;
    }
    return false;
}

bool has_gid(ibv_context* context, std::uint32_t v4) {
    const Gid wanted = Gid::from_v4(v4);
    for (int i = 0; i < 16; ++i) {
        ibv_gid gid{};
        if (ibv_query_gid(context, 1, i, &gid) == 0 &&
            std::memcmp(gid.raw, wanted.raw.data(), 16) == 0)
            return true;
    }
    return false;
}

TEST_F(Changes, GidsFollowAddresses) {
    EXPECT_EQ(in_child([](ibv_context* context) {
                  if (!has_gid(context, 0x0a00'0001) || has_gid(context, 0x0a00'0009)) return 1;
                  run("ip address add 10.0.0.9/24 dev eth0");
                  if (!event_comes(context, IBV_EVENT_GID_CHANGE)) return 2;
                  if (!await(seconds(5), [&] { return has_gid(context, 0x0a00'0009); })) return 3;
                  run("ip address del 10.0.0.9/24 dev eth0");
                  if (!event_comes(context, IBV_EVENT_GID_CHANGE)) return 4;
                  return await(seconds(5), [&] { return !has_gid(context, 0x0a00'0009); }) ? 0 : 5;
              }),
              0);
}

TEST_F(Changes, ThePortFollowsTheLink) {
    EXPECT_EQ(in_child([](ibv_context* context) {
                  const auto state = [&] {
                      ibv_port_attr port{};  // Of which the function itself fills in the old part.
                      auto* old_part = reinterpret_cast<_compat_ibv_port_attr*>(&port);
                      return ibv_query_port(context, 1, old_part) == 0 ? port.state : IBV_PORT_NOP;
                  };
                  if (state() != IBV_PORT_ACTIVE) return 1;
                  run("ip link set eth0 down");
                  if (!event_comes(context, IBV_EVENT_PORT_ERR)) return 2;
                  if (state() == IBV_PORT_ACTIVE) return 3;
                  run("ip link set eth0 up");
                  if (!event_comes(context, IBV_EVENT_PORT_ACTIVE)) return 4;
                  return await(seconds(5), [&] { return state() == IBV_PORT_ACTIVE; }) ? 0 : 5;
              }),
              0);
}

// As by rxe: programs ask for 4096 everywhere.
TEST_F(Changes, APathMtuBeyondTheInterfacesBecomesTheLargestThatItCarries) {
    EXPECT_EQ(in_child([](ibv_context* context) {
                  const Endpoint end(context);
                  ibv_qp_attr a{};
                  a.qp_state = IBV_QPS_RTR;
                  a.path_mtu = IBV_MTU_4096;  // An interface of 1500 bytes carries 1024.
                  a.dest_qp_num = 0x01'0001;
                  a.ah_attr.is_global = 1;
                  a.ah_attr.port_num = 1;
                  ibv_query_gid(context, 1, 0, &a.ah_attr.grh.dgid);
                  const int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                   IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
                  if (end.to_init() != 0 || ibv_modify_qp(end.qp, &a, mask) != 0) return 1;
                  ibv_qp_init_attr unused{};
                  if (ibv_query_qp(end.qp, &a, IBV_QP_PATH_MTU, &unused) != 0) return 2;
                  return a.path_mtu == IBV_MTU_1024 ? 0 : 3;
              }),
              0);
}

// As on a kernel that does not know the option.
void switch_receive_offload_off() {
    const int off = 0;
    for (int fd = 3; fd < 1024; ++fd) ::setsockopt(fd, IPPROTO_UDP, UDP_GRO, &off, sizeof off);
}

// WRITEs within one process, and the bytes compared.
int transfer(ibv_context* context) {
    const Endpoint left(context), right(context);
    connect(left, right);
    for (int round = 0; round < 20; ++round) {
        auto* bytes = const_cast<char*>(left.memory.data());
        for (std::size_t i = 0; i < left.memory.size(); ++i)
            bytes[i] = static_cast<char>(i * 7 + static_cast<std::size_t>(round));
        left.post(IBV_WR_RDMA_WRITE, left.sge(0, 60'000), right.address(0), right.mr->rkey);
        if (left.completion().status != IBV_WC_SUCCESS) return 1;
        if (std::memcmp(bytes, right.memory.data(), 60'000) != 0) return 2;
    }
    return 0;
}

TEST_F(Changes, WithoutReceiveOffloadBytesStillArrive) {
    EXPECT_EQ(in_child([](ibv_context* context) {
                  switch_receive_offload_off();
                  return transfer(context);
              }),
              0);
}

// As on a kernel that does not know SO_ATTACH_REUSEPORT_CBPF, for this process and its children.
[[maybe_unused]] bool forbid_steering() {
    std::vector<sock_filter> program{
        {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
        {BPF_JMP | BPF_JEQ | BPF_K, 0, 3, SYS_setsockopt},
        {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, args[2])},
        {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SO_ATTACH_REUSEPORT_CBPF},
        {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | ENOPROTOOPT},
        {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
    const sock_fprog code{static_cast<unsigned short>(program.size()), program.data()};
    return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &code) == 0;
}

#if !defined(FEROCE_TSAN)  // Ends a child that starts a thread where its parent had one.
// One process works, with one engine or several, and a second one is told why it cannot.
TEST_F(Changes, WithoutSteeringThereIsOneProcess) {
    const auto alone = [](const char* shards) {
        const pid_t child = ::fork();
        if (child == 0) {
            ::setenv("FEROCE_SHARDS", shards, 1);
            ibv_context* context = forbid_steering() ? verbs::open_loopback() : nullptr;
            if (context == nullptr) ::_exit(1);
            if (const int status = transfer(context); status != 0) ::_exit(10 + status);
            const pid_t second = ::fork();
            if (second == 0) ::_exit(verbs::open_loopback() == nullptr ? errno : 0);
            ::_exit(exit_status(second));
        }
        return exit_status(child);
    };
    EXPECT_EQ(alone("1"), EBUSY);
    EXPECT_EQ(alone("2"), EBUSY);
}
#endif

}  // namespace
}  // namespace feroce::share
