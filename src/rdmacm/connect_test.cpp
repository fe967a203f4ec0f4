// Both sides of a connection in one process, over the real loopback: what programs see of events,
// statuses and mistakes. Programs from Debian's packages are run by tests/rdmacm.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "rdmacm/abi.hpp"

namespace {

constexpr int kPatienceMs = 30'000;

sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in out{};
    out.sin_family = AF_INET;
    out.sin_port = htons(port);
    out.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return out;
}

sockaddr* generic(sockaddr_in& address) {
    return reinterpret_cast<sockaddr*>(&address);
}

class Connect : public testing::Test {
protected:
    void SetUp() override {
        channel = rdma_create_event_channel();
        ASSERT_NE(channel, nullptr) << std::strerror(errno);
        ASSERT_EQ(rdma_create_id(channel, &listener, nullptr, RDMA_PS_TCP), 0);
        sockaddr_in any_port = loopback(0);
        ASSERT_EQ(rdma_bind_addr(listener, generic(any_port)), 0);
        port = ntohs(rdma_get_src_port(listener));
        ASSERT_NE(port, 0);
    }
    void TearDown() override {
        for (rdma_cm_id** id : {&client, &server, &listener}) {
            if (*id == nullptr) continue;
            rdma_destroy_qp(*id);
            EXPECT_EQ(rdma_destroy_id(*id), 0);
        }
        rdma_destroy_event_channel(channel);
    }

    // The next event, which must be `type`; its id, and its status in `status`.
    rdma_cm_id* expect(rdma_cm_event_type type) {
        pollfd waiting{channel->fd, POLLIN, 0};
        if (::poll(&waiting, 1, kPatienceMs) != 1) {
            ADD_FAILURE() << "no event, but expected " << rdma_event_str(type);
            return nullptr;
        }
        rdma_cm_event* event = nullptr;
        EXPECT_EQ(rdma_get_cm_event(channel, &event), 0);
        EXPECT_STREQ(rdma_event_str(event->event), rdma_event_str(type));
        rdma_cm_id* id = event->id;
        status = event->status;
        data.assign(static_cast<const char*>(event->param.conn.private_data),
                    event->param.conn.private_data_len);
        EXPECT_EQ(rdma_ack_cm_event(event), 0);
        return id;
    }

    void make_qp(rdma_cm_id* id) {
        ibv_qp_init_attr wanted{};
        wanted.qp_type = IBV_QPT_RC;
        wanted.cap = {4, 4, 1, 1, 0};
        ASSERT_EQ(rdma_create_qp(id, nullptr, &wanted), 0) << std::strerror(errno);
    }

    void resolve(std::uint16_t to) {
        ASSERT_EQ(rdma_create_id(channel, &client, nullptr, RDMA_PS_TCP), 0);
        sockaddr_in destination = loopback(to);
        ASSERT_EQ(rdma_resolve_addr(client, nullptr, generic(destination), 1000), 0);
        expect(RDMA_CM_EVENT_ADDR_RESOLVED);
        ASSERT_EQ(status, 0);
        ASSERT_EQ(rdma_resolve_route(client, 1000), 0);
        expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
        ASSERT_EQ(client->route.num_paths, 1);
        make_qp(client);
    }

    void ask(const char* greeting) {
        rdma_conn_param p{};
        p.private_data = greeting;
        p.private_data_len = static_cast<std::uint8_t>(std::strlen(greeting));
        p.responder_resources = 3;
        p.initiator_depth = 2;
        p.retry_count = 5;
        ASSERT_EQ(rdma_connect(client, &p), 0) << std::strerror(errno);
    }

    rdma_event_channel* channel = nullptr;
    rdma_cm_id* listener = nullptr;
    rdma_cm_id* client = nullptr;
    rdma_cm_id* server = nullptr;
    std::uint16_t port = 0;
    int status = 0;
    std::string data;
};

TEST_F(Connect, FromRequestToTimewait) {
    ASSERT_EQ(rdma_listen(listener, 0), 0);
    resolve(port);
    ask("hello");
    server = expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    ASSERT_NE(server, nullptr);
    EXPECT_EQ(data.size(), 56u);  // The field of the message: its used length is not on the wire.
    EXPECT_EQ(data.substr(0, 6), std::string("hello\0", 6));
    EXPECT_EQ(rdma_get_dst_port(server), rdma_get_src_port(client));
    EXPECT_EQ(server->verbs, client->verbs);
    make_qp(server);
    ASSERT_EQ(rdma_accept(server, nullptr), 0) << std::strerror(errno);
    const rdma_cm_id* first = expect(RDMA_CM_EVENT_ESTABLISHED);
    const rdma_cm_id* second = expect(RDMA_CM_EVENT_ESTABLISHED);
    EXPECT_NE(first, second);

    ibv_qp_attr attributes;
    ibv_qp_init_attr unused;
    ASSERT_EQ(ibv_query_qp(client->qp, &attributes, IBV_QP_STATE, &unused), 0);
    EXPECT_EQ(attributes.qp_state, IBV_QPS_RTS);
    EXPECT_EQ(attributes.dest_qp_num, server->qp->qp_num);
    EXPECT_EQ(attributes.max_rd_atomic, 2);
    EXPECT_EQ(attributes.max_dest_rd_atomic, 3);
    EXPECT_EQ(attributes.retry_cnt, 5);
    ASSERT_EQ(ibv_query_qp(server->qp, &attributes, IBV_QP_STATE, &unused), 0);
    EXPECT_EQ(attributes.max_rd_atomic, 3);
    EXPECT_EQ(attributes.max_dest_rd_atomic, 2);

    ASSERT_EQ(rdma_disconnect(client), 0);
    expect(RDMA_CM_EVENT_DISCONNECTED);
    expect(RDMA_CM_EVENT_DISCONNECTED);
    EXPECT_EQ(rdma_disconnect(server), 0) << "the peer was faster";
    expect(RDMA_CM_EVENT_TIMEWAIT_EXIT);
    expect(RDMA_CM_EVENT_TIMEWAIT_EXIT);
}

TEST_F(Connect, RefusedByTheProgram) {
    ASSERT_EQ(rdma_listen(listener, 0), 0);
    resolve(port);
    ask("");
    server = expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    ASSERT_EQ(rdma_reject(server, "no", 2), 0);
    EXPECT_EQ(expect(RDMA_CM_EVENT_REJECTED), client);
    EXPECT_EQ(status, 28);
    EXPECT_EQ(data.size(), 148u);
    EXPECT_EQ(data.substr(0, 2), "no");
}

TEST_F(Connect, RefusedBecauseNobodyListens) {
    resolve(port);
    ask("");
    EXPECT_EQ(expect(RDMA_CM_EVENT_REJECTED), client);
    EXPECT_EQ(status, 8);
}

TEST_F(Connect, RequestThatNobodyFetchedIsRefusedWithItsListener) {
    ASSERT_EQ(rdma_listen(listener, 0), 0);
    rdma_event_channel* other = rdma_create_event_channel();
    ASSERT_EQ(rdma_migrate_id(listener, other), 0);
    resolve(port);
    ask("");
    pollfd waiting{other->fd, POLLIN, 0};
    ASSERT_EQ(::poll(&waiting, 1, kPatienceMs), 1);
    ASSERT_EQ(rdma_destroy_id(listener), 0);
    listener = nullptr;
    EXPECT_EQ(expect(RDMA_CM_EVENT_REJECTED), client);
    EXPECT_EQ(::poll(&waiting, 1, 0), 0) << "the request is still counted";
    rdma_destroy_event_channel(other);
}

TEST_F(Connect, MigrationTakesQueuedEventsAlong) {
    ASSERT_EQ(rdma_create_id(channel, &client, nullptr, RDMA_PS_TCP), 0);
    sockaddr_in destination = loopback(port);
    ASSERT_EQ(rdma_resolve_addr(client, nullptr, generic(destination), 1000), 0);
    rdma_event_channel* other = rdma_create_event_channel();
    ASSERT_EQ(rdma_migrate_id(client, other), 0);
    std::swap(channel, other);
    EXPECT_EQ(expect(RDMA_CM_EVENT_ADDR_RESOLVED), client);
    std::swap(channel, other);
    ASSERT_EQ(::fcntl(channel->fd, F_SETFL, O_NONBLOCK), 0);
    rdma_cm_event* event = nullptr;
    EXPECT_EQ(rdma_get_cm_event(channel, &event), -1);
    EXPECT_EQ(errno, EAGAIN);
    ASSERT_EQ(rdma_migrate_id(client, channel), 0);
    rdma_destroy_event_channel(other);
}

// libiscsi has a thread that waits for events, and ends it so.
TEST_F(Connect, AThreadThatWaitsForEventsCanBeCancelled) {
    const auto wait = [](void* here) -> void* {
        rdma_cm_event* event = nullptr;
        rdma_get_cm_event(static_cast<rdma_event_channel*>(here), &event);
        return nullptr;
    };
    pthread_t waiting{};
    ASSERT_EQ(::pthread_create(&waiting, nullptr, wait, channel), 0);
    ASSERT_EQ(::pthread_cancel(waiting), 0);
    void* result = nullptr;
    ASSERT_EQ(::pthread_join(waiting, &result), 0);
    EXPECT_EQ(result, PTHREAD_CANCELED);
    resolve(port);  // Nothing was lost or left locked.
}

// rping's thread acknowledges its last event and asks for the next one, while the program's end
// destroys the channel.
TEST_F(Connect, AThreadThatComesLateToADestroyedChannelWaits) {
    rdma_event_channel* other = rdma_create_event_channel();
    ASSERT_NE(other, nullptr);
    ASSERT_EQ(::fcntl(other->fd, F_SETFL, O_NONBLOCK), 0);  // So that waiting can be told.
    rdma_destroy_event_channel(other);
    rdma_cm_event* event = nullptr;
    EXPECT_EQ(rdma_get_cm_event(other, &event), -1);
    EXPECT_EQ(errno, EAGAIN);
    rdma_destroy_event_channel(nullptr);
}

TEST_F(Connect, MistakesAreRefusedWithTheRightErrno) {
    rdma_cm_id* twin = nullptr;
    ASSERT_EQ(rdma_create_id(channel, &twin, nullptr, RDMA_PS_TCP), 0);
    sockaddr_in taken = loopback(port);
    EXPECT_EQ(rdma_bind_addr(twin, generic(taken)), -1);
    EXPECT_EQ(errno, EADDRINUSE);
    EXPECT_EQ(rdma_destroy_id(twin), 0);

    ASSERT_EQ(rdma_create_id(channel, &twin, nullptr, RDMA_PS_TCP), 0);
    sockaddr_in foreign = loopback(0);
    foreign.sin_addr.s_addr = inet_addr("203.0.113.7");
    EXPECT_EQ(rdma_bind_addr(twin, generic(foreign)), -1);
    EXPECT_EQ(errno, ENODEV);
    ibv_qp_init_attr wanted{};
    wanted.qp_type = IBV_QPT_RC;
    EXPECT_EQ(rdma_create_qp(twin, nullptr, &wanted), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(rdma_connect(twin, nullptr), -1);
    EXPECT_EQ(rdma_accept(twin, nullptr), -1);
    EXPECT_EQ(rdma_disconnect(twin), -1);
    std::uint8_t timeout = 32;
    EXPECT_EQ(rdma_set_option(twin, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(rdma_destroy_id(twin), 0);
    EXPECT_EQ(rdma_create_id(channel, &twin, nullptr, static_cast<rdma_port_space>(7)), -1);
}

}  // namespace
