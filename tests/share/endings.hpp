// Programs that end, in every way a process can end, while their peers watch: what exchanges of
// such processes share.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "verbs/test_pair.hpp"

namespace feroce::share {

using verbs::Endpoint;

// Enough for the device to learn that this program always comes back for more.
inline constexpr int kMessages = 200;
inline constexpr int kWindow = 16;  // Receives posted: what an Endpoint can hold.

enum class Ending : std::uint8_t { Exit, Kill, Terminate, Exec };
inline constexpr Ending kEndings[] = {Ending::Exit, Ending::Kill, Ending::Terminate, Ending::Exec};

[[noreturn]] inline void end(Ending how) {
    if (how == Ending::Kill) ::kill(::getpid(), SIGKILL);
    if (how == Ending::Terminate) ::kill(::getpid(), SIGTERM);
    if (how == Ending::Exec) ::execl("/bin/true", "true", nullptr);
    ::_exit(0);
}

// What each end tells the other.
struct Address {
    std::uint32_t qpn;
    std::uint32_t rkey;
    std::uint64_t memory;
    ibv_gid gid;
};

inline bool all(ssize_t done, std::size_t wanted) {
    return done == static_cast<ssize_t>(wanted);
}

// Connects by way of the socket, and returns when the peer is ready as well.
inline bool connect(Endpoint& own, int socket, Address& peer) {
    Address mine{own.qp->qp_num, own.mr->rkey, own.address(0), {}};
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

inline ibv_context* open(const std::string& interface) {
    ::setenv("FEROCE_DEVICES", interface.c_str(), 1);
    int count = 0;
    ibv_device** list = ibv_get_device_list(&count);
    return count == 1 ? ibv_open_device(list[0]) : nullptr;
}

// What became of a process that was to end so.
inline void expect_end(pid_t process, Ending how) {
    int status = 0;
    EXPECT_EQ(::waitpid(process, &status, 0), process);
    const int signal = how == Ending::Kill ? SIGKILL : how == Ending::Terminate ? SIGTERM : 0;
    EXPECT_EQ(WIFSIGNALED(status) ? WTERMSIG(status) : 0, signal);
    if (signal == 0) {
        EXPECT_EQ(WEXITSTATUS(status), 0) << "it did not get that far";
    }
}

// FEROCE_TEST_ROUNDS asks for more of them.
template <class Play>
void each_ending(int everyday, Play&& play) {
    const char* wanted = std::getenv("FEROCE_TEST_ROUNDS");
    const int rounds = wanted == nullptr ? everyday : std::atoi(wanted);
    for (int i = 0; i < rounds && !testing::Test::HasFailure(); ++i) {
        for (const Ending how : kEndings) {
            SCOPED_TRACE("ending " + std::to_string(static_cast<int>(how)));
            play(how);
        }
    }
    if (!testing::Test::HasFailure())
        std::printf("%d rounds of _exit, SIGKILL, SIGTERM and exec: 0 failed\n", rounds);
}

}  // namespace feroce::share
