// A receiver ends the moment it has polled its last completion, in every way a process can end. Its
// peer must not notice: what the receiver had polled was acknowledged before. On one machine, and
// between two network namespaces.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdlib>
#include <string>

#include "net_space.hpp"
#include "verbs/test_pair.hpp"

namespace feroce::share {
namespace {

using verbs::Endpoint;

// Enough for the device to learn that this program always comes back for more.
constexpr int kMessages = 200;
constexpr int kWindow = 16;  // Receives posted: what an Endpoint can hold.

enum class Ending : std::uint8_t { Exit, Kill, Terminate, Exec };
constexpr Ending kEndings[] = {Ending::Exit, Ending::Kill, Ending::Terminate, Ending::Exec};

[[noreturn]] void end(Ending how) {
    if (how == Ending::Kill) ::kill(::getpid(), SIGKILL);
    if (how == Ending::Terminate) ::kill(::getpid(), SIGTERM);
    if (how == Ending::Exec) ::execl("/bin/true", "true", nullptr);
    ::_exit(0);
}

struct Address {
    std::uint32_t qpn;
    ibv_gid gid;
};

bool all(ssize_t done, std::size_t wanted) {
    return done == static_cast<ssize_t>(wanted);
}

// Connects by way of the socket, and returns when the peer is ready as well.
bool connect(Endpoint& own, int socket) {
    Address mine{own.qp->qp_num, {}}, peer{};
    if (ibv_query_gid(own.context, 1, 0, &mine.gid) != 0 || own.to_init() != 0) return false;
    for (int i = 0; i < kWindow; ++i)
        if (own.post_receive(0, 64) != 0) return false;
    if (!all(::write(socket, &mine, sizeof mine), sizeof mine) ||
        !all(::read(socket, &peer, sizeof peer), sizeof peer))
        return false;
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = IBV_MTU_1024;
    a.dest_qp_num = peer.qpn;
    a.min_rnr_timer = 1;
    a.ah_attr.is_global = 1;
    a.ah_attr.port_num = 1;
    a.ah_attr.grh.hop_limit = 64;
    a.ah_attr.grh.dgid = peer.gid;
    if (ibv_modify_qp(own.qp, &a,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) != 0)
        return false;
    a = {};
    a.qp_state = IBV_QPS_RTS;
    a.timeout = 15;  // With seven retries some seconds: longer than a busy machine keeps a process.
    a.retry_cnt = 7;
    a.rnr_retry = 7;
    char ready = 1;
    return ibv_modify_qp(own.qp, &a,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                             IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0 &&
           all(::write(socket, &ready, 1), 1) && all(::read(socket, &ready, 1), 1);
}

ibv_context* open(const std::string& interface) {
    ::setenv("FEROCE_DEVICES", interface.c_str(), 1);
    int count = 0;
    ibv_device** list = ibv_get_device_list(&count);
    return count == 1 ? ibv_open_device(list[0]) : nullptr;
}

int receive(const std::string& interface, int socket, Ending how) {
    ibv_context* context = open(interface);
    if (context == nullptr) return 2;
    auto* own = new Endpoint(context);
    if (!connect(*own, socket)) return 3;
    for (int i = 0; i < kMessages; ++i) {
        if (own->completion().status != IBV_WC_SUCCESS) return 4;
        if (i + 1 == kMessages) end(how);
        if (own->post_receive(0, 64) != 0) return 5;
    }
    return 6;
}

int send(const std::string& interface, int socket) {
    ibv_context* context = open(interface);
    if (context == nullptr) return 2;
    auto* own = new Endpoint(context);
    if (!connect(*own, socket)) return 3;
    for (int i = 0; i < kMessages; ++i) {
        if (own->post(IBV_WR_SEND, own->sge(64, 64), 0, 0) != 0) return 4;
        const ibv_wc wc = own->completion();
        if (wc.status == IBV_WC_SUCCESS) continue;
        std::fprintf(stderr, "message %d: %s\n", i, ibv_wc_status_str(wc.status));
        return 1;
    }
    return 0;
}

// Where the receiver runs: here, or in a namespace that is joined to ours by net0.
struct Place {
    std::string interface;
    std::string space;  // A file of /proc; empty: here.
};

void play(const Place& place, Ending how) {
    int sockets[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    const pid_t receiver = ::fork();
    if (receiver == 0) {
        if (!place.space.empty() &&
            ::setns(::open(place.space.c_str(), O_RDONLY | O_CLOEXEC), CLONE_NEWNET) != 0)
            ::_exit(7);
        ::close(sockets[0]);
        ::_exit(receive(place.interface, sockets[1], how));
    }
    const pid_t sender = ::fork();
    if (sender == 0) {
        ::close(sockets[1]);
        ::_exit(send(place.interface, sockets[0]));
    }
    ::close(sockets[0]);
    ::close(sockets[1]);
    int status = 0;
    EXPECT_EQ(::waitpid(sender, &status, 0), sender);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0) << "the sender's last message was not acknowledged";
    EXPECT_EQ(::waitpid(receiver, &status, 0), receiver);
    const int signal = how == Ending::Kill ? SIGKILL : how == Ending::Terminate ? SIGTERM : 0;
    EXPECT_EQ(WIFSIGNALED(status) ? WTERMSIG(status) : 0, signal);
    if (signal == 0) {
        EXPECT_EQ(WEXITSTATUS(status), 0) << "the receiver did not get that far";
    }
}

// FEROCE_TEST_ROUNDS asks for more of them.
void play_all(const Place& place, int everyday) {
    const char* wanted = std::getenv("FEROCE_TEST_ROUNDS");
    const int rounds = wanted == nullptr ? everyday : std::atoi(wanted);
    for (int i = 0; i < rounds && !testing::Test::HasFailure(); ++i) {
        for (const Ending how : kEndings) {
            SCOPED_TRACE("ending " + std::to_string(static_cast<int>(how)));
            play(place, how);
        }
    }
    if (!testing::Test::HasFailure())
        std::printf("%d rounds of _exit, SIGKILL, SIGTERM and exec: 0 failed\n", rounds);
}

bool run(const std::string& command) {
    return std::system(command.c_str()) == 0;
}

TEST(Exit, WhatWasPolledWasAcknowledged) {
    enter_private_network();
    play_all({"lo", ""}, 6);
}

TEST(Exit, WhatWasPolledWasAcknowledgedToAnotherMachine) {
    enter_private_network();
    int sockets[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    // Holds the other namespace until our end of the socket closes.
    const pid_t holder = ::fork();
    char ready = 1;
    if (holder == 0) {
        ::close(sockets[0]);
        enter_private_network();
        const bool told = ::write(sockets[1], &ready, 1) == 1;
        ::_exit(told && ::read(sockets[1], &ready, 1) == 0 ? 0 : 1);
    }
    ::close(sockets[1]);
    ASSERT_EQ(::read(sockets[0], &ready, 1), 1);
    const std::string space = "/proc/" + std::to_string(holder) + "/ns/net";
    const std::string there = "nsenter --net=" + space + " ip ";
    ASSERT_TRUE(run("ip link add net0 type veth peer name net0 netns " + std::to_string(holder)));
    ASSERT_TRUE(run("ip address add 10.47.91.1/24 dev net0 && ip link set net0 up"));
    ASSERT_TRUE(run(there + "address add 10.47.91.2/24 dev net0 && " + there + "link set net0 up"));
    play_all({"net0", space}, 4);
    ::close(sockets[0]);
    int status = 0;
    EXPECT_EQ(::waitpid(holder, &status, 0), holder);
    EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace feroce::share
