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

#include "endings.hpp"
#include "net_space.hpp"

namespace feroce::share {
namespace {

int receive(const std::string& interface, int socket, Ending how) {
    ibv_context* context = open(interface);
    if (context == nullptr) return 2;
    auto* own = new Endpoint(context);
    Address peer{};
    if (!connect(*own, socket, peer)) return 3;
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
    Address peer{};
    if (!connect(*own, socket, peer)) return 3;
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
    expect_end(receiver, how);
}

void play_all(const Place& place, int everyday) {
    each_ending(everyday, [&](Ending how) { play(place, how); });
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
