// The fixture of tests that connect two ids of one process over the real loopback.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "rdmacm/abi.hpp"

namespace feroce::rdmacm {

inline constexpr int kPatienceMs = 30'000;

inline sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in out{};
    out.sin_family = AF_INET;
    out.sin_port = htons(port);
    out.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return out;
}

inline sockaddr* generic(sockaddr_in& address) {
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
        if (server == client) server = nullptr;  // Of a test that failed: it took another event.
        for (rdma_cm_id** id : {&client, &server, &listener}) {
            if (*id == nullptr) continue;
            rdma_destroy_qp(*id);
            EXPECT_EQ(rdma_destroy_id(*id), 0);
        }
        rdma_destroy_event_channel(channel);
    }

    // The next event, which must be `type`; its id, and its status in `status`.
    rdma_cm_id* expect(std::uint32_t type) { return expect(type, channel); }
    rdma_cm_id* expect(std::uint32_t type, rdma_event_channel* on) {
        pollfd waiting{on->fd, POLLIN, 0};
        if (::poll(&waiting, 1, kPatienceMs) != 1) {
            ADD_FAILURE() << "no event, but expected " << type;
            return nullptr;
        }
        rdma_cm_event* event = nullptr;
        EXPECT_EQ(rdma_get_cm_event(on, &event), 0);
        EXPECT_EQ(number_of(event->event), type) << "after a wait for event " << type;
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

    void resolve_address(std::uint16_t to) {
        ASSERT_EQ(rdma_create_id(channel, &client, nullptr, RDMA_PS_TCP), 0);
        sockaddr_in destination = loopback(to);
        ASSERT_EQ(rdma_resolve_addr(client, nullptr, generic(destination), 1000), 0);
        expect(RDMA_CM_EVENT_ADDR_RESOLVED);
        ASSERT_EQ(status, 0);
    }
    void resolve_route(std::uint16_t to) {
        resolve_address(to);
        ASSERT_EQ(rdma_resolve_route(client, 1000), 0);
        expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
        ASSERT_EQ(client->route.num_paths, 1);
    }
    void resolve(std::uint16_t to) {
        resolve_route(to);
        make_qp(client);
    }

    void ask(const char* greeting, std::uint32_t qpn = 0) {
        rdma_conn_param p{};
        p.qp_num = qpn;
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

}  // namespace feroce::rdmacm
