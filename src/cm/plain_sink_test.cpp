// A manager whose user keeps nothing but events, and sometimes has no memory for them.
#include <gtest/gtest.h>

#include <algorithm>
#include <new>
#include <vector>

#include "cm/connection_manager.hpp"

namespace feroce::cm::plain_sink_test {
namespace {

using namespace std::chrono_literals;

const Gid kUs = Gid::from_v4(0x0a00'0001), kPeer = Gid::from_v4(0x0a00'0002);
constexpr wire::ServiceId kOffered{0x0106'4321};
constexpr CommId kPeerId{0x7700'0001};
constexpr Duration kKeepAlive = 10s;

class PlainSink final : public MadPort, public EventSink {
public:
    void send(const Gid&, const Gid&, ByteView mad) override {
        sent.emplace_back();
        std::copy(mad.begin(), mad.end(), sent.back().begin());
    }
    bool offer(const Gid&, const Gid&, ByteView, Origin) override { return false; }
    void on_event(const Event& event) override {
        if (has_no_memory) throw std::bad_alloc();
        events.push_back(event);
        events.back().private_data = events.back().additional_info = {};
    }

    bool has_no_memory = false;
    std::vector<Event> events;
    std::vector<wire::MadBytes> sent;
};

class PlainSinkTest : public testing::Test {
protected:
    template <class Message>
    void receive(const Message& message) {
        manager.receive(now, kPeer, kUs, wire::make_cm_mad(0x1234, message));
    }
    static wire::CmReq request() {
        wire::CmReq req;
        req.local_id = kPeerId;
        req.service_id = kOffered;
        req.local_qpn = Qpn{0x99};
        req.path_mtu = 3;
        req.local_response_timeout = 20;
        return req;
    }
    // The peer's half of a connection that we ask for.
    CommId connect(std::uint64_t peers_guid) {
        const CommId id = *manager.connect(now, {.path = {.local = kUs, .remote = kPeer},
                                                 .service = kOffered,
                                                 .endpoint = {.qpn = {0x11}}});
        wire::CmRep rep;
        rep.local_id = kPeerId;
        rep.remote_id = id;
        rep.local_qpn = Qpn{0x99};
        rep.local_ca_guid = peers_guid;
        receive(rep);
        EXPECT_TRUE(manager.establish(now, id));
        return id;
    }
    void pass(Duration time) {
        for (const Instant end = now + time; now < end;) {
            now = std::min(end, manager.next_wakeup());
            manager.run(now);
        }
    }

    Instant now{1s};
    Prng random{1};
    PlainSink sink;
    ConnectionManager manager{{.keepalive = kKeepAlive}, random, sink, sink};
};

// The peer repeats it: nothing of the first try may be in its way.
TEST_F(PlainSinkTest, ARequestThatThereIsNoMemoryForHasNeverArrived) {
    ASSERT_TRUE(manager.listen(now, {.service = kOffered, .backlog = 1}));
    sink.has_no_memory = true;
    receive(request());
    receive(wire::CmSidrReq{.request_id = kPeerId, .service_id = kOffered});
    EXPECT_EQ(manager.counters().drops(Drop::NoMemory), 2U);
    EXPECT_EQ(manager.connections(), 0U);
    EXPECT_TRUE(sink.sent.empty());
    EXPECT_EQ(manager.next_wakeup(), kNever);
    sink.has_no_memory = false;
    receive(request());
    ASSERT_EQ(sink.events.size(), 1U);
    EXPECT_EQ(sink.events[0].type, EventType::ConnectRequest);
    manager.taken(sink.events[0].connection);
    receive(wire::CmSidrReq{.request_id = kPeerId, .service_id = kOffered});
    ASSERT_EQ(sink.events.size(), 2U);
    EXPECT_EQ(sink.events[1].type, EventType::SidrRequest);
}

TEST_F(PlainSinkTest, ARequestForXrcSaysSo) {
    ASSERT_TRUE(manager.connect(now, {.path = {.local = kUs, .remote = kPeer},
                                      .service = kOffered,
                                      .endpoint = {.transport = TransportType::Extended}}));
    ASSERT_EQ(sink.sent.size(), 1U);
    const wire::CmReq req = wire::CmReq::parse(wire::parse_cm_mad(sink.sent[0])->message);
    EXPECT_EQ(req.transport, TransportType::Extended);
    EXPECT_EQ(req.extended_transport, wire::kExtendedTransportXrc);
}

// Its queue pair is the only one that a foreign peer answers, and the user has none to ask with.
TEST_F(PlainSinkTest, AForeignPeerThatCannotBeAskedIsKept) {
    const CommId id = connect(0x1234);
    pass(20 * kKeepAlive);
    EXPECT_EQ(manager.state(id), State::Established);
}

TEST_F(PlainSinkTest, ASilentFeroceIsTakenForDead) {
    const CommId id = connect(std::uint64_t{kFeroceGuid} << 32);
    pass(3 * kKeepAlive);
    ASSERT_GE(sink.events.size(), 2U);
    const auto ended = std::find_if(sink.events.begin(), sink.events.end(), [](const Event& e) {
        return e.type == EventType::Disconnected;
    });
    ASSERT_NE(ended, sink.events.end());
    EXPECT_EQ(ended->connection, id);
    EXPECT_TRUE(ended->timed_out);
}

}  // namespace
}  // namespace feroce::cm::plain_sink_test
