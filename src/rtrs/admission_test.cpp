// Which clients get into a server, and what is left of those that went or were refused.
#include <gtest/gtest.h>
#include <rdma/rdma_cma.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "feroce/rtrs/server.hpp"
#include "feroce/rtrs/session.hpp"
#include "feroce/task_group.hpp"
#include "rdma/test_until.hpp"
#include "rtrs/handshake.hpp"
#include "rtrs/runtime_random.hpp"
#include "rtrs/server_registry.hpp"

namespace feroce::rtrs {
namespace {

using namespace std::chrono_literals;

class Admission : public testing::Test {
protected:
    Server serve(ServerOptions options) {
        options.address = "127.0.0.1";
        options.port = 0;
        options.queue_depth = 16;
        options.chunk_size = 16 << 10;
        return Server::open(loop, options, [](ServerRequest& request) { request.respond(); })
            .value();
    }
    rdma::Result<Session> open(Client& by, const Server& server, const std::string& name) {
        return loop.run(by.open(name, {{"127.0.0.1"}}, {.port = server.port()}));
    }
    template <class Condition>
    bool until(Condition condition) {
        return rdma::poll_until(loop, condition);
    }

    rdma::RealRuntime runtime;
    rdma::Loop loop{runtime};
    RuntimeRandom random{runtime};
    Client client{loop};
};

TEST_F(Admission, ASessionThatWasClosedIsForgottenAtOnce) {
    int ended = 0;
    ServerOptions options;
    options.max_sessions = 2;
    options.on_path = [](const Visitor&) { return 0; };
    options.on_session_end = [&](std::uint64_t) { ++ended; };
    Server server = serve(options);
    for (int i = 0; i < 20; ++i) {
        {
            auto session = open(client, server, "client-" + std::to_string(i));
            ASSERT_TRUE(session) << i << ": " << session.error().why;
            ASSERT_TRUE(session->write({}, ConstSegment{}).wait());
            ASSERT_TRUE(loop.run(session->close()));
        }
        ASSERT_TRUE(until([&] { return server.statistics().sessions == 0; })) << i;
    }
    EXPECT_EQ(ended, 20);
}

TEST_F(Admission, AClientThatIsCutOffIsRemembered) {
    Server server = serve({});
    auto session = open(client, server, "cut");
    ASSERT_TRUE(session) << session.error().why;
    ASSERT_TRUE(session->disconnect_path(0));
    ASSERT_TRUE(until([&] { return server.statistics().paths == 0; }));
    EXPECT_EQ(server.statistics().sessions, 1u);
    ASSERT_TRUE(session->reconnect_path(0));
    EXPECT_TRUE(session->write({}, ConstSegment{}).wait());
    EXPECT_EQ(session->statistics().epochs_lost, 0u);
}

rdma::Task<void> ask(Session session) {
    static_cast<void>(co_await session.write({}, ConstSegment{}));
}

// It may still change what the next client of its session's name works with, and its own client may
// send it again.
TEST_F(Admission, ASessionIsNotForgottenWhileARequestRuns) {
    std::map<std::uint64_t, std::string> known;
    std::optional<Responder> kept;
    ServerOptions options{.address = "127.0.0.1", .port = 0, .queue_depth = 16};
    options.session_linger = 20ms;
    options.on_path = [&](const Visitor& visitor) {
        known[visitor.session] = visitor.name;
        return 0;
    };
    options.on_session_end = [&](std::uint64_t session) { known.erase(session); };
    Server server = Server::open(loop, options, [&](ServerRequest& request) {
                        kept.emplace(request.defer());
                    }).value();
    auto slow = open(client, server, "slow");
    ASSERT_TRUE(slow) << slow.error().why;
    rdma::TaskGroup tasks(loop);
    tasks.spawn(ask(*slow));
    ASSERT_TRUE(until([&] { return kept.has_value(); }));
    ASSERT_TRUE(slow->disconnect_path(0));
    ASSERT_TRUE(until([&] { return server.statistics().paths == 0; }));
    // One that is cut off later is forgotten.
    auto other = open(client, server, "other");
    ASSERT_TRUE(other) << other.error().why;
    EXPECT_EQ(known.size(), 2u);
    ASSERT_TRUE(other->disconnect_path(0));
    const auto knows = [&](const std::string& name) {
        return std::any_of(known.begin(), known.end(),
                           [&](const auto& one) { return one.second == name; });
    };
    ASSERT_TRUE(until([&] { return !knows("other"); }));
    EXPECT_TRUE(knows("slow"));
    kept->respond();
    EXPECT_TRUE(until([&] { return server.statistics().sessions == 0; }));
}

TEST_F(Admission, ARefusedClientLeavesNothingAndIsToldWhy) {
    ServerOptions options;
    options.max_sessions = 2;
    options.on_path = [](const Visitor&) { return EACCES; };
    Server server = serve(options);
    for (int i = 0; i < 10; ++i) {
        auto session = open(client, server, "unwanted");
        ASSERT_FALSE(session);
        EXPECT_EQ(session.error().code, EACCES) << session.error().why;
        EXPECT_NE(session.error().why.find("does not let this client in"), std::string::npos);
        ASSERT_TRUE(until([&] { return server.statistics().sessions == 0; })) << i;
    }
}

TEST_F(Admission, ANameInUseIsAClearError) {
    Server server = serve({});
    auto holder = open(client, server, "disk");
    ASSERT_TRUE(holder) << holder.error().why;
    Client other(loop);
    auto second = open(other, server, "disk");
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code, EPERM);
    EXPECT_NE(second.error().why.find("disk is in use here by a live client at 127.0.0.1"),
              std::string::npos)
        << second.error().why;
    EXPECT_TRUE(holder->write({}, ConstSegment{}).wait());
    EXPECT_EQ(holder->statistics().paths[0].connects, 1u);
    holder = rdma::Error(EAGAIN, "");
    auto third = open(other, server, "disk");
    EXPECT_TRUE(third) << third.error().why;
}

// Two paths of one session, and no memory for its chunks: the second found it admitted.
TEST_F(Admission, ASessionThatGotNoMemoryMayTryAgain) {
    ServerRegistry registry(1, {.sessions = 1, .bytes = 100}, 100);
    const Uuid session = Uuid::random(random), other = Uuid::random(random);
    EXPECT_EQ(registry.shard_of(session), 0u);
    ASSERT_TRUE(registry.admit(session, 0));
    registry.dismiss(session);
    registry.dismiss(session);
    ASSERT_TRUE(registry.admit(session, 0));
    EXPECT_FALSE(registry.admit(other, 0)) << "it counts once";
    registry.dismiss(session);
    EXPECT_TRUE(registry.admit(other, 0));
}

// A peer that sends a connection request and then nothing: what a forged one looks like.
class Forger {
public:
    static ConnectRequest request(RandomSource& random) {
        ConnectRequest request;
        request.connection_count = 2;
        request.reconnects = 1;
        request.path = Uuid::random(random);
        request.session = Uuid::random(random);
        request.may_create = true;
        request.extension = kExtensionLevel;
        return request;
    }
    Forger(std::uint16_t port, RandomSource& random) : Forger(port, request(random)) {}
    Forger(std::uint16_t port, const ConnectRequest& request) {
        channel_.reset(::rdma_create_event_channel());
        rdma_cm_id* id = nullptr;
        if (::rdma_create_id(channel_.get(), &id, nullptr, RDMA_PS_TCP) != 0) return;
        id_.reset(id);
        sockaddr_in to{};
        to.sin_family = AF_INET;
        to.sin_port = htons(port);
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (::rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&to), 1000) != 0) return;
        if (!event() || ::rdma_resolve_route(id, 1000) != 0 || !event()) return;
        ibv_qp_init_attr wanted{};
        wanted.qp_type = IBV_QPT_RC;
        wanted.cap = {1, 1, 1, 1, 0};
        if (::rdma_create_qp(id, nullptr, &wanted) != 0) return;
        std::array<std::byte, ConnectRequest::kSize> bytes;
        request.emit(bytes);
        rdma_conn_param parameters{};
        parameters.private_data = bytes.data();
        parameters.private_data_len = bytes.size();
        sent_ = ::rdma_connect(id, &parameters) == 0;
    }
    ~Forger() {
        if (id_ && id_->qp != nullptr) ::rdma_destroy_qp(id_.get());
    }
    Forger(Forger&&) = default;
    bool sent() const { return sent_; }

private:
    bool event() {
        rdma_cm_event* event = nullptr;
        if (::rdma_get_cm_event(channel_.get(), &event) != 0) return false;
        const bool good = event->status == 0;
        ::rdma_ack_cm_event(event);
        return good;
    }
    struct Destroy {
        void operator()(rdma_event_channel* channel) const {
            ::rdma_destroy_event_channel(channel);
        }
        void operator()(rdma_cm_id* id) const { ::rdma_destroy_id(id); }
    };
    std::unique_ptr<rdma_event_channel, Destroy> channel_;
    std::unique_ptr<rdma_cm_id, Destroy> id_;
    bool sent_ = false;
};

TEST_F(Admission, RequestsOfPeersThatAreNotThereTakeNoSessionsPlace) {
    ServerOptions options;
    options.max_sessions = 2;
    Server server = serve(options);
    auto first = open(client, server, "first");
    ASSERT_TRUE(first) << first.error().why;
    std::vector<Forger> forgers;
    for (int i = 0; i < 80; ++i) {
        forgers.emplace_back(server.port(), random);
        ASSERT_TRUE(forgers.back().sent());
        loop.poll();
    }
    ASSERT_TRUE(until([&] { return server.statistics().paths_closed >= 10; })) << "the oldest go";
    EXPECT_LE(server.statistics().paths, 70u);
    auto second = open(client, server, "second");
    ASSERT_TRUE(second) << second.error().why;
    EXPECT_TRUE(second->write({}, ConstSegment{}).wait());
    EXPECT_TRUE(first->write({}, ConstSegment{}).wait());
    EXPECT_EQ(first->statistics().paths[0].connects, 1u);
}

// Listens on a channel of its own. Managers take one peer's messages in their order, so that when
// its request has come those before it have, too.
class Witness {
public:
    Witness() {
        sockaddr_in at{};
        at.sin_family = AF_INET;
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        channel_ = ::rdma_create_event_channel();
        listens_ = ::rdma_create_id(channel_, &id_, nullptr, RDMA_PS_TCP) == 0 &&
                   ::rdma_bind_addr(id_, reinterpret_cast<sockaddr*>(&at)) == 0 &&
                   ::rdma_listen(id_, 1) == 0;
    }
    ~Witness() {
        ::rdma_destroy_id(id_);
        ::rdma_destroy_event_channel(channel_);
    }
    Witness(const Witness&) = delete;

    bool all_came(RandomSource& random) {
        const Forger last(ntohs(::rdma_get_src_port(id_)), random);
        rdma_cm_event* event = nullptr;
        if (!listens_ || !last.sent() || ::rdma_get_cm_event(channel_, &event) != 0) return false;
        const bool request = event->event == RDMA_CM_EVENT_CONNECT_REQUEST;
        rdma_cm_id* const id = event->id;
        ::rdma_ack_cm_event(event);
        if (request) ::rdma_destroy_id(id);
        return request;
    }

private:
    rdma_event_channel* channel_ = nullptr;
    rdma_cm_id* id_ = nullptr;
    bool listens_ = false;
};

class Floods : public Admission {
protected:
    void forge(int count) {
        for (int i = 0; i < count; ++i) {
            forgers.emplace_back(server.port(), random);
            ASSERT_TRUE(forgers.back().sent());
        }
        ASSERT_TRUE(Witness().all_came(random));
    }
    // Looked at so far.
    std::uint64_t greeted() const {
        const ServerStatistics seen = server.statistics();
        return seen.paths + seen.paths_closed + seen.refused - 1;  // But for the client's path.
    }

    Server server = serve({});
    std::vector<Forger> forgers;
    rdma::Result<Session> in = open(client, server, "in");
};

TEST_F(Floods, ARoundTakesOneNewcomer) {
    ASSERT_TRUE(in) << in.error().why;
    forge(40);
    std::uint64_t before = greeted();
    EXPECT_EQ(before, 0u);
    ASSERT_TRUE(until([&] {
        const std::uint64_t now = greeted();
        EXPECT_LE(now - before, 1u);
        before = now;
        return now == 40;
    }));
}

TEST_F(Floods, AClientThatIsInDoesNotWaitForThem) {
    ASSERT_TRUE(in) << in.error().why;
    forge(100);
    EXPECT_TRUE(in->write({}, ConstSegment{}).wait());
    EXPECT_LT(greeted(), 100u);
    EXPECT_TRUE(until([&] { return greeted() == 100; }));
    EXPECT_TRUE(in->write({}, ConstSegment{}).wait());
    EXPECT_EQ(in->statistics().paths[0].connects, 1u);
}

TEST_F(Floods, MoreThanWaitAreRefused) {
    ASSERT_TRUE(in) << in.error().why;
    for (int i = 0; i < 3; ++i) {
        forge(100);
        loop.poll();
        loop.poll();
    }
    EXPECT_GT(server.statistics().refused, 100u);
    EXPECT_NE(server.statistics().last_refusal.find("too many"), std::string::npos);
    ASSERT_TRUE(until([&] { return greeted() == 300; }));
    auto next = open(client, server, "next");
    EXPECT_TRUE(next) << next.error().why;
}

// Each connection has a queue pair: of one path that is not there as few as of many.
TEST_F(Floods, ConnectionsOfOnePathAreBoundedAsWell) {
    ASSERT_TRUE(in) << in.error().why;
    ConnectRequest request = Forger::request(random);
    request.connection_count = 100;
    for (int i = 0; i < 100; ++i) {
        request.connection = static_cast<std::uint16_t>(i);
        forgers.emplace_back(server.port(), request);
        ASSERT_TRUE(forgers.back().sent());
    }
    ASSERT_TRUE(until([&] { return server.statistics().refused == 36; }))
        << server.statistics().refused;
    EXPECT_EQ(server.statistics().paths, 1u) << "the client's own";
    EXPECT_TRUE(in->write({}, ConstSegment{}).wait());
}

}  // namespace
}  // namespace feroce::rtrs
