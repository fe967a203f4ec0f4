// Every call in every stage of an id, against what the kernel answers; and the calls that wait.
#include <sys/wait.h>

#include <atomic>
#include <functional>
#include <thread>

#include "base/sanitizers.hpp"
#include "process/cm_service.hpp"
#include "rdmacm/stage.hpp"
#include "rdmacm/test_connect.hpp"

extern "C" feroce::process::CmService* feroce_cm_service(bool start);

namespace feroce::rdmacm {
namespace {

constexpr int kBad = EINVAL;

class Stages : public Connect {
protected:
    void SetUp() override {
        Connect::SetUp();
        servers = rdma_create_event_channel();
        ASSERT_NE(servers, nullptr);
        ASSERT_EQ(rdma_migrate_id(listener, servers), 0);
        ASSERT_EQ(rdma_listen(listener, 0), 0);
    }
    void TearDown() override {
        clear();
        Connect::TearDown();
        rdma_destroy_event_channel(servers);
    }

    void clear() {
        for (rdma_cm_id** id : {&client, &server, &other}) {
            if (*id == nullptr) continue;
            rdma_destroy_qp(*id);
            EXPECT_EQ(rdma_destroy_id(*id), 0);
            *id = nullptr;
        }
    }

    // That of the client; what came of clients before it is refused.
    void take_request() {
        for (;;) {
            server = expect(RDMA_CM_EVENT_CONNECT_REQUEST, servers);
            ASSERT_NE(server, nullptr);
            if (rdma_get_dst_port(server) == rdma_get_src_port(client)) return;
            EXPECT_EQ(rdma_destroy_id(server), 0);
        }
    }
    void request() {
        resolve(port);
        ask("");
        take_request();
        make_qp(server);
    }
    void accept() {
        request();
        ASSERT_EQ(rdma_accept(server, nullptr), 0);
    }
    void answer() {
        resolve_route(port);
        ask("", ++foreign_qpn);
        take_request();
        make_qp(server);
        ASSERT_EQ(rdma_accept(server, nullptr), 0);
        expect(RDMA_CM_EVENT_CONNECT_RESPONSE);
    }
    void connect() {
        accept();
        expect(RDMA_CM_EVENT_ESTABLISHED);
    }

    // An id in that stage.
    rdma_cm_id* make(Stage stage) {
        switch (stage) {
            case Stage::Idle:
            case Stage::Bound:
            case Stage::Listening: {
                EXPECT_EQ(rdma_create_id(channel, &other, nullptr, RDMA_PS_TCP), 0);
                sockaddr_in any_port = loopback(0);
                if (stage == Stage::Idle) return other;
                EXPECT_EQ(rdma_bind_addr(other, generic(any_port)), 0);
                if (stage == Stage::Bound) return other;
                EXPECT_EQ(rdma_listen(other, 0), 0);
                return other;
            }
            case Stage::Resolved:
                resolve_address(port);
                return client;
            case Stage::Routed:
                resolve(port);
                return client;
            case Stage::Asked:
                request();
                return client;
            case Stage::Answered:
                answer();
                return client;
            case Stage::Requested:
                request();
                return server;
            case Stage::Accepted:
                accept();
                return server;
            case Stage::Connected:
                connect();
                return client;
            case Stage::Over:
            case Stage::Count:
                connect();
                EXPECT_EQ(rdma_disconnect(client), 0);
                return client;
        }
        return nullptr;
    }

    rdma_event_channel* servers = nullptr;
    rdma_cm_id* other = nullptr;
    std::uint32_t foreign_qpn = 0x123;  // Of queue pairs that the id does not know.
};

struct Column {
    const char* name;
    std::function<int(rdma_cm_id*, std::uint16_t port)> call;
    std::array<int, 11> wanted;  // By stage.
};

// clang-format off
const Column kColumns[] = {
    {"rdma_bind_addr", [](rdma_cm_id* id, std::uint16_t) {
         sockaddr_in any_port = loopback(0);
         return rdma_bind_addr(id, generic(any_port));
     }, {0, kBad, kBad, kBad, kBad, kBad, kBad, kBad, kBad, kBad, kBad}},
    {"rdma_resolve_addr", [](rdma_cm_id* id, std::uint16_t port) {
         sockaddr_in to = loopback(port);
         return rdma_resolve_addr(id, nullptr, generic(to), 1000);
     }, {0, 0, kBad, kBad, kBad, kBad, kBad, kBad, kBad, kBad, kBad}},
    {"rdma_resolve_route", [](rdma_cm_id* id, std::uint16_t) {
         return rdma_resolve_route(id, 1000);
     }, {kBad, kBad, 0, kBad, kBad, kBad, kBad, kBad, kBad, kBad, kBad}},
    {"rdma_listen", [](rdma_cm_id* id, std::uint16_t) {
         return rdma_listen(id, 1);
     }, {0, 0, kBad, kBad, kBad, kBad, kBad, kBad, kBad, kBad, kBad}},
    {"rdma_connect", [](rdma_cm_id* id, std::uint16_t) {
         return rdma_connect(id, nullptr);
     }, {kBad, kBad, kBad, 0, kBad, kBad, kBad, kBad, kBad, kBad, kBad}},
    {"rdma_accept", [](rdma_cm_id* id, std::uint16_t) {
         return rdma_accept(id, nullptr);
     }, {kBad, kBad, kBad, kBad, kBad, kBad, kBad, 0, kBad, kBad, kBad}},
    {"rdma_reject", [](rdma_cm_id* id, std::uint16_t) {
         return rdma_reject(id, nullptr, 0);
     }, {kBad, kBad, kBad, kBad, kBad, kBad, 0, 0, 0, kBad, kBad}},
    {"rdma_establish", [](rdma_cm_id* id, std::uint16_t) {
         return rdma_establish(id);
     }, {kBad, kBad, kBad, kBad, kBad, kBad, 0, kBad, kBad, kBad, kBad}},
    {"rdma_notify", [](rdma_cm_id* id, std::uint16_t) {
         return rdma_notify(id, IBV_EVENT_COMM_EST);
     }, {kBad, kBad, kBad, kBad, kBad, kBad, kBad, kBad, 0, EISCONN, kBad}},
    {"rdma_disconnect", [](rdma_cm_id* id, std::uint16_t) {
         return rdma_disconnect(id);
     }, {kBad, kBad, kBad, kBad, kBad, 0, 0, 0, 0, 0, 0}},
    {"rdma_init_qp_attr", [](rdma_cm_id* id, std::uint16_t) {
         ibv_qp_attr attributes{};
         attributes.qp_state = IBV_QPS_RTR;
         int mask = 0;
         return rdma_init_qp_attr(id, &attributes, &mask);
     }, {kBad, kBad, kBad, kBad, kBad, kBad, 0, 0, 0, 0, kBad}},
    {"rdma_set_option", [](rdma_cm_id* id, std::uint16_t) {
         int one = 1;
         return rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &one, sizeof one);
     }, {0, 0, kBad, kBad, kBad, kBad, kBad, kBad, kBad, kBad, kBad}},
    {"rdma_join_multicast", [](rdma_cm_id* id, std::uint16_t) {
         sockaddr_in group = loopback(0);
         group.sin_addr.s_addr = inet_addr("239.1.2.3");
         return rdma_join_multicast(id, generic(group), nullptr);  // Never for a connected id.
     }, {kBad, kBad, kBad, kBad, kBad, kBad, kBad, kBad, kBad, kBad, kBad}},
};
// clang-format on

TEST_F(Stages, EveryCallInEveryStage) {
    for (const Column& column : kColumns) {
        for (std::size_t i = 0; i < column.wanted.size(); ++i) {
            SCOPED_TRACE(std::string(column.name) + " in stage " + std::to_string(i));
            rdma_cm_id* id = make(static_cast<Stage>(i));
            if (HasFatalFailure()) return;
            errno = 0;
            const int result = column.call(id, port);
            EXPECT_EQ(result, column.wanted[i] == 0 ? 0 : -1);
            EXPECT_EQ(result == 0 ? 0 : errno, column.wanted[i]);
            clear();
        }
    }
}

// A call that fails for another reason leaves the id where it was.
TEST_F(Stages, AFailedCallChangesNothing) {
    rdma_cm_id* id = make(Stage::Idle);
    sockaddr_in foreign = loopback(0);
    foreign.sin_addr.s_addr = inet_addr("203.0.113.7");
    EXPECT_EQ(rdma_bind_addr(id, generic(foreign)), -1);
    sockaddr_in any_port = loopback(0);
    EXPECT_EQ(rdma_bind_addr(id, generic(any_port)), 0);
    clear();
    resolve_route(port);
    EXPECT_EQ(rdma_connect(client, nullptr), -1) << "there is no queue pair";
    EXPECT_EQ(errno, EINVAL);
    make_qp(client);
    EXPECT_EQ(rdma_connect(client, nullptr), 0);
}

rdma_cm_id* endpoint(std::uint16_t port, int flags) {
    rdma_addrinfo hints{};
    hints.ai_port_space = RDMA_PS_TCP;
    hints.ai_flags = flags | RAI_NUMERICHOST;
    rdma_addrinfo* info = nullptr;
    EXPECT_EQ(rdma_getaddrinfo("127.0.0.1", std::to_string(port).c_str(), &hints, &info), 0);
    ibv_qp_init_attr qp{};
    qp.qp_type = IBV_QPT_RC;
    qp.cap = {4, 4, 1, 1, 0};
    rdma_cm_id* id = nullptr;
    EXPECT_EQ(rdma_create_ep(&id, info, nullptr, &qp), 0) << std::strerror(errno);
    rdma_freeaddrinfo(info);
    return id;
}

// Often: a refused call still stops the queue pair, and what that does to errno is a matter of
// which thread finds the sockets empty.
void refused_each_time(rdma_cm_id* id) {
    for (int again = 0; again < 1000; ++again) {
        ASSERT_EQ(rdma_disconnect(id), -1);
        ASSERT_EQ(errno, EINVAL);
    }
}

// It waits for an event, and the end of a connection is told once.
TEST(Waiting, DisconnectingTwiceDoesNotWaitForEver) {
    rdma_cm_id* listener = endpoint(0, RAI_PASSIVE);
    ASSERT_EQ(rdma_listen(listener, 1), 0);
    const std::uint16_t port = ntohs(rdma_get_src_port(listener));
    std::thread serving([&] {
        rdma_cm_id* id = nullptr;
        ASSERT_EQ(rdma_get_request(listener, &id), 0);
        ASSERT_EQ(rdma_accept(id, nullptr), 0);
        EXPECT_EQ(rdma_disconnect(id), 0);
        refused_each_time(id);
        rdma_destroy_ep(id);
    });
    rdma_cm_id* id = endpoint(port, 0);
    ASSERT_EQ(rdma_connect(id, nullptr), 0);
    EXPECT_EQ(rdma_disconnect(id), 0);
    refused_each_time(id);
    serving.join();
    rdma_destroy_ep(id);
    rdma_destroy_ep(listener);
}

TEST(Waiting, RequestsAreNotWaitedForWithoutListening) {
    rdma_cm_id* id = endpoint(0, RAI_PASSIVE);
    rdma_cm_id* request = nullptr;
    EXPECT_EQ(rdma_get_request(id, &request), -1);
    EXPECT_EQ(errno, EINVAL);
    rdma_destroy_ep(id);
}

#if !defined(FEROCE_ASAN) && !defined(FEROCE_TSAN)
bool resolve_on(rdma_event_channel* channel) {
    rdma_cm_id* id = nullptr;
    sockaddr_in to = loopback(1);
    rdma_cm_event* event = nullptr;
    const bool good = rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) == 0 &&
                      rdma_resolve_addr(id, nullptr, generic(to), 1000) == 0 &&
                      rdma_get_cm_event(channel, &event) == 0 && rdma_ack_cm_event(event) == 0;
    return good && rdma_destroy_id(id) == 0;
}

// Whatever another thread was doing, the child finds no lock held and nothing half done. Not under
// sanitizers: their allocators' own locks may be held by that thread, and stay so in the child.
TEST(Forked, AChildHasItsOwn) {
    rdma_event_channel* channel = rdma_create_event_channel();
    ASSERT_NE(channel, nullptr);
    std::atomic<bool> stop{false};
    std::thread busy([&] {
        while (!stop.load()) EXPECT_TRUE(resolve_on(channel));
    });
    rdma_event_channel* idle = rdma_create_event_channel();
    for (int i = 0; i < 8; ++i) {
        const pid_t child = ::fork();
        if (child == 0) {
            ::alarm(60);
            rdma_cm_event* event = nullptr;
            if (rdma_get_cm_event(idle, &event) != -1 || errno != ENODEV) ::_exit(1);
            rdma_destroy_event_channel(idle);
            rdma_event_channel* own = rdma_create_event_channel();
            ::_exit(own != nullptr && resolve_on(own) ? 0 : 2);
        }
        int status = -1;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        EXPECT_EQ(status, 0);
    }
    stop.store(true);
    busy.join();
    rdma_destroy_event_channel(idle);
    rdma_destroy_event_channel(channel);
}
#endif

// The manager also runs for the sake of other users' processes, before this one uses rdma_cm.
void ask_a_manager_that_runs() {
    if (feroce_cm_service(true) == nullptr) ::_exit(2);
    rdma_event_channel* channel = rdma_create_event_channel();
    rdma_cm_id *listener = nullptr, *client = nullptr;
    sockaddr_in address = loopback(0);
    rdma_cm_event* event = nullptr;
    if (rdma_create_id(channel, &listener, nullptr, RDMA_PS_UDP) != 0 ||
        rdma_bind_addr(listener, generic(address)) != 0 || rdma_listen(listener, 1) != 0 ||
        rdma_create_id(channel, &client, nullptr, RDMA_PS_UDP) != 0)
        ::_exit(3);
    address.sin_port = rdma_get_src_port(listener);
    if (rdma_resolve_addr(client, nullptr, generic(address), 1000) != 0 ||
        rdma_get_cm_event(channel, &event) != 0 || rdma_ack_cm_event(event) != 0 ||
        rdma_resolve_route(client, 1000) != 0 || rdma_get_cm_event(channel, &event) != 0 ||
        rdma_ack_cm_event(event) != 0 || rdma_connect(client, nullptr) != 0)
        ::_exit(4);
    pollfd waiting{channel->fd, POLLIN, 0};
    ::_exit(::poll(&waiting, 1, kPatienceMs) == 1 ? 0 : 5);
}

TEST(ManagerDeathTest, ThatRanBeforeTellsItsEvents) {
    testing::FLAGS_gtest_death_test_style = "threadsafe";  // A process of its own.
    EXPECT_EXIT(ask_a_manager_that_runs(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace feroce::rdmacm
