// Calls of rdma-core's releases 60 to 65: names that are resolved by an event, and events of the
// program's own.
#include <dlfcn.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>

#include "rdmacm/test_connect.hpp"

namespace feroce::rdmacm {
namespace later_calls_test {

// Whether SIGALRM was blocked when a name was last resolved; -1: none was.
std::atomic<int> blocked_alarm{-1};

namespace {

// As a program of C or of newer headers calls them, which have the value.
__attribute__((no_sanitize("enum"))) int write_user_event(rdma_cm_id* id, int status,
                                                          std::uint64_t value) {
    rdma_cm_event_type type{};
    std::memcpy(&type, &kUserEvent, sizeof type);
    return rdma_write_cm_event(id, type, status, value);
}
__attribute__((no_sanitize("enum"))) const char* name_of(const rdma_cm_event& event) {
    return rdma_event_str(event.event);
}

class LaterCalls : public Connect {
protected:
    void SetUp() override {
        Connect::SetUp();
        ASSERT_EQ(rdma_create_id(channel, &client, nullptr, RDMA_PS_TCP), 0);
    }
};

TEST_F(LaterCalls, ANameIsResolvedByAnEvent) {
    rdma_addrinfo* found = nullptr;
    EXPECT_EQ(rdma_query_addrinfo(client, &found), -1);
    EXPECT_EQ(errno, ENOENT);
    ASSERT_EQ(rdma_resolve_addrinfo(client, "127.0.0.1", "7471", nullptr), 0)
        << std::strerror(errno);
    EXPECT_EQ(rdma_resolve_addrinfo(client, "127.0.0.1", "7471", nullptr), -1);
    EXPECT_EQ(errno, EBUSY) << "the first answer was not taken";
    EXPECT_EQ(expect(kAddrinfoResolved), client);
    EXPECT_EQ(status, 0);
    ASSERT_EQ(rdma_query_addrinfo(client, &found), 0);
    ASSERT_NE(found, nullptr);
    const auto* address = reinterpret_cast<const sockaddr_in*>(found->ai_dst_addr);
    EXPECT_EQ(address->sin_port, htons(7471));
    EXPECT_EQ(address->sin_addr.s_addr, htonl(INADDR_LOOPBACK));
    rdma_freeaddrinfo(found);
    EXPECT_EQ(rdma_query_addrinfo(client, &found), -1) << "it was taken";
    // Again, and not taken: the id frees it.
    EXPECT_EQ(rdma_resolve_addrinfo(client, "127.0.0.1", "7471", nullptr), 0);
    EXPECT_EQ(expect(kAddrinfoResolved), client);
}

TEST_F(LaterCalls, ANameThatIsNoneIsToldAtOnce) {
    rdma_addrinfo hints{};
    hints.ai_flags = RAI_NUMERICHOST;
    hints.ai_port_space = RDMA_PS_TCP;
    for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(rdma_resolve_addrinfo(client, "no address", "7471", &hints), -1);
        EXPECT_EQ(errno, ENODATA);
    }
    hints.ai_flags = kFromSubnetAdministration;
    EXPECT_EQ(rdma_resolve_addrinfo(client, nullptr, "7471", &hints), -1);
    EXPECT_EQ(errno, ENOTSUP);
    EXPECT_EQ(rdma_resolve_addrinfo(nullptr, "127.0.0.1", "1", nullptr), -1);
    EXPECT_EQ(errno, EINVAL);
}

TEST_F(LaterCalls, ASynchronousIdWaitsForItsAnswer) {
    rdma_cm_id* alone = nullptr;
    ASSERT_EQ(rdma_create_id(nullptr, &alone, nullptr, RDMA_PS_TCP), 0);
    ASSERT_EQ(rdma_resolve_addrinfo(alone, "127.0.0.1", "7471", nullptr), 0);
    rdma_addrinfo* found = nullptr;
    EXPECT_EQ(rdma_query_addrinfo(alone, &found), 0);
    rdma_freeaddrinfo(found);
    EXPECT_EQ(rdma_destroy_id(alone), 0);
}

// A resolver may need many seconds, in which a program's alarm must come through.
TEST_F(LaterCalls, SignalsComeThroughWhileANameIsResolved) {
    rdma_cm_id* alone = nullptr;
    ASSERT_EQ(rdma_create_id(nullptr, &alone, nullptr, RDMA_PS_TCP), 0);
    blocked_alarm = -1;
    EXPECT_EQ(rdma_resolve_addrinfo(alone, "127.0.0.1", "7471", nullptr), 0);
    EXPECT_EQ(blocked_alarm, 0);
    EXPECT_EQ(rdma_destroy_id(alone), 0);
}

TEST_F(LaterCalls, AProgramWritesEventsOfItsOwn) {
    EXPECT_EQ(rdma_write_cm_event(client, RDMA_CM_EVENT_ESTABLISHED, 0, 0), -1);
    EXPECT_EQ(errno, EINVAL);
    ASSERT_EQ(write_user_event(client, -7, 0x1234'5678'9abc'def0), 0);
    rdma_cm_event* event = nullptr;
    ASSERT_EQ(rdma_get_cm_event(channel, &event), 0);
    EXPECT_EQ(event->id, client);
    EXPECT_EQ(number_of(event->event), kUserEvent);
    EXPECT_EQ(event->status, -7);
    std::uint64_t value = 0;
    std::memcpy(&value, &event->param, sizeof value);
    EXPECT_EQ(value, 0x1234'5678'9abc'def0u);
    EXPECT_STREQ(name_of(*event), "RDMA_CM_EVENT_USER");
    EXPECT_EQ(rdma_ack_cm_event(event), 0);
}

}  // namespace
}  // namespace later_calls_test
}  // namespace feroce::rdmacm

// Before that of libc, for the library in this program.
extern "C" int getaddrinfo(const char* node, const char* service, const addrinfo* hints,
                           addrinfo** out) {
    sigset_t mask;
    ::pthread_sigmask(SIG_BLOCK, nullptr, &mask);
    feroce::rdmacm::later_calls_test::blocked_alarm = ::sigismember(&mask, SIGALRM);
    static const auto next =
        reinterpret_cast<decltype(&::getaddrinfo)>(::dlsym(RTLD_NEXT, "getaddrinfo"));
    return next(node, service, hints, out);
}
