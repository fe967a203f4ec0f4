// A server of the connection manager is killed: every client on its machine is told, whichever of
// them speaks for the dead. Keep-alives are off, so nothing else could tell them.
#include <gtest/gtest.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "net_space.hpp"

namespace feroce::share {
namespace {

constexpr int kClients = 4;

rdma_cm_id* endpoint(bool passive) {
    rdma_addrinfo hints{};
    hints.ai_port_space = RDMA_PS_TCP;
    if (passive) hints.ai_flags = RAI_PASSIVE;
    rdma_addrinfo* found = nullptr;
    if (rdma_getaddrinfo("127.0.0.1", "7471", &hints, &found) != 0) return nullptr;
    ibv_qp_init_attr attributes{};
    attributes.cap = {4, 4, 1, 1, 0};
    attributes.qp_type = IBV_QPT_RC;
    rdma_cm_id* id = nullptr;
    return rdma_create_ep(&id, found, nullptr, &attributes) == 0 ? id : nullptr;
}

// Accepts all clients, and waits for its end. Tells by a byte each how far it is.
int serve(int told) {
    rdma_cm_id* listener = endpoint(true);
    if (listener == nullptr || rdma_listen(listener, kClients) != 0) return 1;
    if (::write(told, "l", 1) != 1) return 2;
    for (int i = 0; i < kClients; ++i) {
        rdma_cm_id* id = nullptr;
        if (rdma_get_request(listener, &id) != 0 || rdma_accept(id, nullptr) != 0) return 3;
    }
    for (;;) ::pause();
}

int connect_and_wait(int told) {
    rdma_cm_id* id = endpoint(false);
    if (id == nullptr || rdma_connect(id, nullptr) != 0) return 1;
    rdma_event_channel* channel = rdma_create_event_channel();
    if (channel == nullptr || rdma_migrate_id(id, channel) != 0) return 2;
    if (::write(told, "c", 1) != 1) return 3;
    pollfd polled{channel->fd, POLLIN, 0};
    rdma_cm_event* event = nullptr;
    if (::poll(&polled, 1, 30'000) != 1 || rdma_get_cm_event(channel, &event) != 0) return 4;
    return event->event == RDMA_CM_EVENT_DISCONNECTED ? 0 : 5;
}

TEST(Farewell, ReachesEveryPeerOfTheDead) {
    enter_private_network();
    ::setenv("FEROCE_KEEPALIVE", "0", 1);
    int told[2];
    ASSERT_EQ(::pipe(told), 0);
    const auto begin = [&](auto&& what) {
        const pid_t pid = ::fork();
        if (pid == 0) ::alarm(60);  // Nobody outlives the test for long.
        if (pid == 0) ::_exit(what(told[1]));
        return pid;
    };
    const auto hear = [&](int count) {
        char byte;
        for (int i = 0; i < count; ++i)
            if (::read(told[0], &byte, 1) != 1) return false;
        return true;
    };
    const pid_t server = begin(serve);
    ASSERT_TRUE(hear(1));
    pid_t clients[kClients];
    for (pid_t& client : clients) client = begin(connect_and_wait);
    ::close(told[1]);
    ASSERT_TRUE(hear(kClients));
    ::kill(server, SIGKILL);
    ::waitpid(server, nullptr, 0);
    for (const pid_t client : clients) {
        int status = -1;
        ASSERT_EQ(::waitpid(client, &status, 0), client);
        EXPECT_EQ(status, 0);
    }
}

}  // namespace
}  // namespace feroce::share
