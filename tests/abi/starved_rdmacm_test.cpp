// librdmacm without memory; see starved.hpp.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>

#include <cstdlib>

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

}  // namespace
}  // namespace feroce::starved
