// Both sides of a connection in one process, over the real loopback: what programs see of events,
// statuses and mistakes. Programs from Debian's packages are run by tests/rdmacm.
#include <fcntl.h>
#include <pthread.h>
#include <string_view>
#include <utility>

#include "rdmacm/test_connect.hpp"

namespace feroce::rdmacm {
namespace {

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

// A call that fails late has moved the queue pair. Made again it goes on, but not for other depths.
TEST_F(Connect, AnAcceptThatFailedIsMadeAgainAsItWas) {
    ASSERT_EQ(rdma_listen(listener, 0), 0);
    resolve(port);
    ask("hello");
    server = expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    ASSERT_NE(server, nullptr);
    make_qp(server);
    const char too_much[250] = {};
    rdma_conn_param parameters{};
    parameters.responder_resources = parameters.initiator_depth = 1;
    parameters.private_data = too_much;
    parameters.private_data_len = sizeof too_much;
    EXPECT_EQ(rdma_accept(server, &parameters), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(server->qp->state, IBV_QPS_RTS);
    parameters.private_data_len = 1;
    parameters.initiator_depth = 2;
    EXPECT_EQ(rdma_accept(server, &parameters), -1);
    EXPECT_EQ(errno, EINVAL);
    parameters.initiator_depth = 1;
    EXPECT_EQ(rdma_accept(server, &parameters), 0) << std::strerror(errno);
    expect(RDMA_CM_EVENT_ESTABLISHED);
    expect(RDMA_CM_EVENT_ESTABLISHED);
}

// As in the kernel, where it is a wildcard: any device can reach this machine. Only where there is
// no other device than loopback's it is that one.
TEST_F(Connect, ALoopbackAddressNamesNoDevice) {
    int count = 0;
    ibv_device** list = ibv_get_device_list(&count);
    const bool is_only = count == 1 && std::string_view(list[0]->name) == "feroce_lo";
    ibv_free_device_list(list);
    EXPECT_EQ(listener->verbs != nullptr, is_only);
    rdma_cm_id* other = nullptr;
    ASSERT_EQ(rdma_create_id(channel, &other, nullptr, RDMA_PS_TCP), 0);
    sockaddr_in second = loopback(0);
    second.sin_addr.s_addr = inet_addr("127.0.0.2");
    EXPECT_EQ(rdma_bind_addr(other, generic(second)), 0) << "no device has it, and none needs to";
    EXPECT_EQ(rdma_destroy_id(other), 0);
}

// Its Gids are those of a device that programs see, whatever addresses the program uses.
TEST_F(Connect, AConnectionToLoopbackUsesAListedDevice) {
    ASSERT_EQ(rdma_listen(listener, 0), 0);
    resolve(port);
    int count = 0;
    ibv_device** list = ibv_get_device_list(&count);
    bool listed = false;
    for (int i = 0; i < count; ++i) listed |= list[i] == client->verbs->device;
    ibv_free_device_list(list);
    EXPECT_TRUE(listed);
    bool known = false;
    ibv_gid gid;
    for (int i = 0; ibv_query_gid(client->verbs, 1, i, &gid) == 0; ++i)
        known |= std::memcmp(gid.raw, client->route.path_rec->sgid.raw, sizeof gid.raw) == 0;
    EXPECT_TRUE(known) << "the path's source is a Gid of the device";
    const auto* source = reinterpret_cast<sockaddr_in*>(rdma_get_local_addr(client));
    EXPECT_EQ(source->sin_addr.s_addr, htonl(INADDR_LOOPBACK));
    ask("");
    server = expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    const auto* peer = reinterpret_cast<sockaddr_in*>(rdma_get_peer_addr(server));
    EXPECT_EQ(peer->sin_addr.s_addr, htonl(INADDR_LOOPBACK));
    EXPECT_EQ(peer->sin_port, source->sin_port);
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

// As in the kernel: only requests that the program has not fetched count. rping, for one, forgets
// some where many come at once, and must not be deaf after that.
TEST_F(Connect, ARequestThatWasFetchedIsNoLongerInTheBacklog) {
    ASSERT_EQ(rdma_listen(listener, 1), 0);
    resolve(port);
    ask("first");
    rdma_cm_id* const forgotten = expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    rdma_cm_id* const first = std::exchange(client, nullptr);
    resolve(port);
    ask("second");
    server = expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    EXPECT_EQ(data.substr(0, 6), "second");
    ASSERT_EQ(rdma_destroy_id(forgotten), 0);
    EXPECT_EQ(expect(RDMA_CM_EVENT_REJECTED), first);
    rdma_destroy_qp(first);
    EXPECT_EQ(rdma_destroy_id(first), 0);
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
}  // namespace feroce::rdmacm
