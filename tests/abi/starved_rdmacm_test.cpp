// librdmacm without memory; see starved.hpp.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/rdma_cma.h>

#include <cstdlib>
#include <deque>
#include <map>

#include "starved.hpp"

namespace feroce::starved {
namespace {

constexpr int kTimeoutMs = 2000;

sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in out{};
    out.sin_family = AF_INET;
    out.sin_port = htons(port);
    out.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return out;
}

class StarvedRdmaCm : public testing::Test {
protected:
    void SetUp() override {
        ::setenv("FEROCE_DEVICES", "lo", 1);
        ::setenv("FEROCE_LOG", "off", 1);
        // The first time the connection manager is started, so this is a case of its own.
        for (long n = 0; channel == nullptr && n < kAllocationsMax; ++n) {
            fail_allocation(n);
            channel = rdma_create_event_channel();
            const int code = errno;
            const bool failed = end_failing();
            if (channel == nullptr) {
                ASSERT_TRUE(failed) << n << ": " << code;
            }
        }
        ASSERT_NE(channel, nullptr);
    }
    void TearDown() override { rdma_destroy_event_channel(channel); }

    void create() { ASSERT_EQ(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP), 0); }
    void destroy() { EXPECT_EQ(rdma_destroy_id(id), 0); }
    // Whether the next event is this one; errno says what else it tells.
    bool gets(rdma_cm_event_type wanted) {
        rdma_cm_event* event = nullptr;
        if (rdma_get_cm_event(channel, &event) != 0) return false;
        const bool good = event->event == wanted;
        const int code = -event->status;
        rdma_ack_cm_event(event);
        if (!good) errno = code;
        return good;
    }
    bool resolve_address() {
        sockaddr_in to = loopback(7471);
        return rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&to), kTimeoutMs) == 0 &&
               gets(RDMA_CM_EVENT_ADDR_RESOLVED);
    }
    bool resolve_route() {
        return rdma_resolve_route(id, kTimeoutMs) == 0 && gets(RDMA_CM_EVENT_ROUTE_RESOLVED);
    }
    bool create_qp() {
        ibv_qp_init_attr init{};
        init.qp_type = IBV_QPT_RC;
        init.cap = {16, 16, 2, 2, 64};
        return rdma_create_qp(id, nullptr, &init) == 0;
    }
    bool bind() {
        sockaddr_in to = loopback(0);
        return rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&to)) == 0;
    }

    rdma_event_channel* channel = nullptr;
    rdma_cm_id* id = nullptr;
};

TEST_F(StarvedRdmaCm, Ids) {
    rdma_event_channel* made = nullptr;
    starve({.name = "rdma_create_event_channel",
            .call =
                [&] {
                    made = rdma_create_event_channel();
                    return made != nullptr;
                },
            .undo = [&] { rdma_destroy_event_channel(made); }});
    starve({.name = "rdma_create_id",
            .call = [&] { return rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) == 0; },
            .undo = [&] { destroy(); }});
    starve({.name = "rdma_create_id, synchronous",
            .call = [&] { return rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP) == 0; },
            .undo = [&] { destroy(); }});
    starve({.name = "rdma_migrate_id",
            .prepare = [&] { create(); },
            .call = [&] { return rdma_migrate_id(id, nullptr) == 0; },
            .undo = [&] { destroy(); }});
    ibv_context** list = nullptr;
    starve({.name = "rdma_get_devices",
            .call =
                [&] {
                    list = rdma_get_devices(nullptr);
                    return list != nullptr;
                },
            .undo = [&] { rdma_free_devices(list); }});
}

TEST_F(StarvedRdmaCm, Addresses) {
    starve({.name = "rdma_bind_addr",
            .prepare = [&] { create(); },
            .call = [&] { return bind(); },
            .undo = [&] { destroy(); }});
    starve({.name = "rdma_resolve_addr",
            .prepare = [&] { create(); },
            .call = [&] { return resolve_address(); },
            .undo = [&] { destroy(); }});
    starve({.name = "rdma_resolve_route",
            .prepare =
                [&] {
                    create();
                    ASSERT_TRUE(resolve_address());
                },
            .call = [&] { return resolve_route(); },
            .undo = [&] { destroy(); }});
}

TEST_F(StarvedRdmaCm, Groups) {
    sockaddr_in group = loopback(0);
    group.sin_addr.s_addr = inet_addr("239.1.2.3");
    auto* address = reinterpret_cast<sockaddr*>(&group);
    starve({.name = "rdma_join_multicast",
            .prepare =
                [&] {
                    ASSERT_EQ(rdma_create_id(channel, &id, nullptr, RDMA_PS_UDP), 0);
                    ASSERT_TRUE(resolve_address());
                },
            .call = [&] { return rdma_join_multicast(id, address, nullptr) == 0; },
            .undo =
                [&] {
                    EXPECT_TRUE(gets(RDMA_CM_EVENT_MULTICAST_JOIN));
                    EXPECT_EQ(rdma_leave_multicast(id, address), 0);
                    destroy();
                }});
}

TEST_F(StarvedRdmaCm, Endpoints) {
    rdma_addrinfo hints{};
    hints.ai_port_space = RDMA_PS_TCP;
    hints.ai_flags = RAI_PASSIVE | RAI_NUMERICHOST;
    rdma_addrinfo* info = nullptr;
    const auto resolve = [&] { return rdma_getaddrinfo("127.0.0.1", "7472", &hints, &info) == 0; };
    starve({.name = "rdma_getaddrinfo",
            .call = resolve,
            .undo = [&] { rdma_freeaddrinfo(info); },
            .needs_memory = true,
            .tells_codes_of_its_own = true});
    ASSERT_TRUE(resolve());
    starve({.name = "rdma_create_ep",
            .call = [&] { return rdma_create_ep(&id, info, nullptr, nullptr) == 0; },
            .undo = [&] { rdma_destroy_ep(id); }});
    rdma_freeaddrinfo(info);
}

TEST_F(StarvedRdmaCm, Connections) {
    starve({.name = "rdma_listen",
            .prepare =
                [&] {
                    create();
                    ASSERT_TRUE(bind());
                },
            .call = [&] { return rdma_listen(id, 8) == 0; },
            .undo = [&] { destroy(); }});
    starve({.name = "rdma_create_qp",
            .prepare =
                [&] {
                    create();
                    ASSERT_TRUE(resolve_address());
                },
            .call = [&] { return create_qp(); },
            .undo =
                [&] {
                    rdma_destroy_qp(id);
                    destroy();
                }});
    starve({.name = "rdma_connect",
            .prepare =
                [&] {
                    create();
                    ASSERT_TRUE(resolve_address() && resolve_route() && create_qp());
                },
            .call =
                [&] {
                    rdma_conn_param parameters{};
                    parameters.responder_resources = parameters.initiator_depth = 1;
                    return rdma_connect(id, &parameters) == 0;
                },
            .undo =
                [&] {
                    rdma_destroy_qp(id);
                    destroy();
                }});
}

// Connections between two channels of this process.
class StarvedConnections : public StarvedRdmaCm {
protected:
    void SetUp() override {
        StarvedRdmaCm::SetUp();
        events = rdma_create_event_channel();
        ASSERT_EQ(rdma_create_id(events, &listener, nullptr, RDMA_PS_TCP), 0);
        sockaddr_in any = loopback(0);
        ASSERT_EQ(rdma_bind_addr(listener, reinterpret_cast<sockaddr*>(&any)), 0);
        ASSERT_EQ(rdma_listen(listener, 0), 0);
        port = ntohs(rdma_get_src_port(listener));
    }
    void TearDown() override {
        EXPECT_EQ(rdma_destroy_id(listener), 0);
        rdma_destroy_event_channel(events);
        StarvedRdmaCm::TearDown();
    }
    static void make_qp(rdma_cm_id* of) {
        ibv_qp_init_attr init{};
        init.qp_type = IBV_QPT_RC;
        init.cap = {16, 16, 2, 2, 64};
        ASSERT_EQ(rdma_create_qp(of, nullptr, &init), 0);
    }
    // The next event of a channel, acknowledged; null if none comes in time.
    rdma_cm_id* next(rdma_event_channel* from, rdma_cm_event_type wanted,
                     int patience_ms = 20'000) {
        pollfd readable{from->fd, POLLIN, 0};
        rdma_cm_event* event = nullptr;
        if (::poll(&readable, 1, patience_ms) != 1 || rdma_get_cm_event(from, &event) != 0)
            return nullptr;
        EXPECT_EQ(event->event, wanted) << event->status;
        rdma_cm_id* about = event->id;
        rdma_ack_cm_event(event);
        return about;
    }
    rdma_cm_id* make_client() {
        rdma_cm_id* out = nullptr;
        sockaddr_in to = loopback(port);
        EXPECT_EQ(rdma_create_id(channel, &out, nullptr, RDMA_PS_TCP), 0);
        EXPECT_EQ(rdma_resolve_addr(out, nullptr, reinterpret_cast<sockaddr*>(&to), kTimeoutMs), 0);
        EXPECT_EQ(next(channel, RDMA_CM_EVENT_ADDR_RESOLVED), out);
        EXPECT_EQ(rdma_resolve_route(out, kTimeoutMs), 0);
        EXPECT_EQ(next(channel, RDMA_CM_EVENT_ROUTE_RESOLVED), out);
        make_qp(out);
        return out;
    }
    static bool connect(rdma_cm_id* client, std::uint8_t depth) {
        rdma_conn_param parameters{};
        parameters.responder_resources = parameters.initiator_depth = depth;
        return rdma_connect(client, &parameters) == 0;
    }
    void ask(std::uint8_t depth = 1) {
        client = make_client();
        ASSERT_TRUE(connect(client, depth));
        server = next(events, RDMA_CM_EVENT_CONNECT_REQUEST);
        ASSERT_NE(server, nullptr);
        make_qp(server);
    }
    void establish() {
        ASSERT_EQ(next(channel, RDMA_CM_EVENT_ESTABLISHED), client);
        ASSERT_EQ(next(events, RDMA_CM_EVENT_ESTABLISHED), server);
    }
    void part() {
        for (rdma_cm_id* one : {client, server}) {
            rdma_destroy_qp(one);
            EXPECT_EQ(rdma_destroy_id(one), 0);
        }
    }

    rdma_event_channel* events = nullptr;  // Of the listening side.
    rdma_cm_id* listener = nullptr;
    rdma_cm_id* client = nullptr;
    rdma_cm_id* server = nullptr;
    std::uint16_t port = 0;
};

// The queue pair stays in RTR if there is no memory for RTS.
TEST_F(StarvedConnections, Accept) {
    for (const std::uint8_t depth : {1, 16}) {
        starve({.name = "rdma_accept",
                .prepare = [&] { ask(depth); },
                .call = [&] { return rdma_accept(server, nullptr) == 0; },
                .undo =
                    [&] {
                        establish();
                        part();
                    },
                .goes_on = true});
    }
}

TEST_F(StarvedConnections, Ends) {
    starve({.name = "rdma_disconnect",
            .prepare =
                [&] {
                    ask();
                    ASSERT_EQ(rdma_accept(server, nullptr), 0);
                    establish();
                },
            .call = [&] { return rdma_disconnect(client) == 0; },
            .undo =
                [&] {
                    EXPECT_EQ(next(events, RDMA_CM_EVENT_DISCONNECTED), server);
                    EXPECT_EQ(next(channel, RDMA_CM_EVENT_DISCONNECTED), client);
                    part();
                },
            .needs_memory = false,
            .may_fail = false});
}

// A request for which the manager's thread has no memory is lost like a packet; what follows, up to
// the end, needs none.
TEST_F(StarvedConnections, ThreadsOfOursGoOn) {
    constexpr long kRequests = 40;
    std::map<rdma_cm_id*, rdma_cm_id*> pairs;  // Clients, and whom they are connected to.
    std::deque<rdma_cm_id*> accepted;
    const auto serve = [&](int patience_ms) {
        rdma_cm_id* request = next(events, RDMA_CM_EVENT_CONNECT_REQUEST, patience_ms);
        if (request == nullptr) return false;
        make_qp(request);
        accepted.push_back(request);
        return true;
    };
    for (long n = 0; n < kRequests; ++n) {
        rdma_cm_id* asking = make_client();
        pairs[asking] = nullptr;
        fail_allocation_of_others(n);
        ASSERT_TRUE(connect(asking, 1));
        // Until one of the two has happened; what was lost comes again by and by.
        for (int i = 0; i < 500 && !others_have_failed(); ++i)
            if (serve(10)) break;
        feed_others();
    }
    while (accepted.size() < pairs.size()) ASSERT_TRUE(serve(30'000));
    fail_all_of_others();
    for (rdma_cm_id* one : accepted) {
        ASSERT_EQ(rdma_accept(one, nullptr), 0);
        rdma_cm_id* whose = next(channel, RDMA_CM_EVENT_ESTABLISHED);
        ASSERT_TRUE(pairs.contains(whose));
        EXPECT_EQ(next(events, RDMA_CM_EVENT_ESTABLISHED), one);
        EXPECT_EQ(rdma_disconnect(whose), 0);
        EXPECT_EQ(next(events, RDMA_CM_EVENT_DISCONNECTED), one);
        EXPECT_EQ(next(channel, RDMA_CM_EVENT_DISCONNECTED), whose);
        client = whose;
        server = one;
        part();
    }
    feed_others();
}

}  // namespace
}  // namespace feroce::starved
