// One manager and one message at a time: what each message does in each state, what the events
// carry, what is refused and why, and that strangers change nothing.
#include <gtest/gtest.h>

#include <cerrno>
#include <set>
#include <string>

#include "cm/test_net.hpp"

namespace feroce::cm {
namespace {

using namespace wire;

const Gid kUs = Gid::from_v4(0x0a000001), kPeer = Gid::from_v4(0x0a000002);
const Gid kStranger = Gid::from_v4(0x0a000003);
constexpr CommId kPeerId{0x77000001};
constexpr Duration kTimeout = timeout_of(20);

std::vector<std::byte> text(const char* words) {
    const ByteView bytes = std::as_bytes(std::span(words, std::char_traits<char>::length(words)));
    return {bytes.begin(), bytes.end()};
}

// Our node; the peer is played by the test, so nothing that is sent arrives anywhere.
class StateTest : public testing::Test {
protected:
    explicit StateTest(Config config = {}) : us(net.add(kUs, config)) {
        us.accepts = us.establishes = false;
    }

    template <class Message>
    void receive(const Message& message, const Gid& source = kPeer, const Gid& to = kUs) {
        manager.receive(net.now, source, to, make_cm_mad(0x1234, message));
    }
    template <class Message>
    Message last() const {
        EXPECT_FALSE(net.sent.empty());
        const auto mad = parse_cm_mad(net.sent.back().mad);
        EXPECT_EQ(mad->attribute, Message::kAttribute) << to_string(mad->attribute);
        return Message::parse(mad->message);
    }
    const Seen& last_event(EventType type) const {
        static const Seen none;
        EXPECT_FALSE(us.events.empty());
        if (us.events.empty()) return none;
        EXPECT_EQ(us.events.back().type, type) << to_string(us.events.back().type);
        return us.events.back();
    }
    std::uint64_t drops(Drop reason) const { return manager.counters().drops(reason); }
    void pass(Duration time) {
        net.now += time;
        manager.run(net.now);
    }

    static CmReq request(std::uint32_t id = kPeerId.raw, std::uint32_t qpn = 0x99) {
        return {.local_id = {id},
                .service_id = kService,
                .local_ca_guid = 0xabcdef,
                .local_qpn = {qpn},
                .responder_resources = 4,
                .initiator_depth = 5,
                .remote_response_timeout = 20,
                .starting_psn = Psn(0x123456),
                .local_response_timeout = 20,
                .retry_count = 6,
                .path_mtu = 4,
                .rnr_retry_count = 3,
                .max_cm_retries = 15,
                .srq = true,
                .primary = {.local_gid = kPeer,
                            .remote_gid = kUs,
                            .flow_label = 0xabcde,
                            .traffic_class = 7,
                            .hop_limit = 63,
                            .local_ack_timeout = 18}};
    }
    ConnectOptions options(std::uint32_t qpn = 0x11) const {
        return {.path = {.local = kUs, .remote = kPeer},
                .service = kService,
                .endpoint = {.qpn = {qpn}}};
    }
    ListenerId listen() { return *manager.listen(net.now, {.service = kService}); }
    // Ours, in the state the name says.
    CommId req_received(std::uint32_t id = kPeerId.raw, std::uint32_t qpn = 0x99) {
        if (!listening_) listen();
        listening_ = true;
        receive(request(id, qpn));
        return last_event(EventType::ConnectRequest).connection;
    }
    CommId rep_sent() {
        const CommId id = req_received();
        EXPECT_TRUE(manager.accept(net.now, id, {.endpoint = {.qpn = {0x55}}}));
        return id;
    }
    CommId passive_established() {
        const CommId id = rep_sent();
        receive(CmRtu{.local_id = kPeerId, .remote_id = id});
        last_event(EventType::Established);
        return id;
    }
    CommId req_sent() { return *manager.connect(net.now, options()); }
    CommId rep_received() {
        const CommId id = req_sent();
        receive(CmRep{.local_id = kPeerId, .remote_id = id, .local_qpn = {0x99}});
        last_event(EventType::ConnectResponse);
        return id;
    }
    CommId active_established() {
        const CommId id = rep_received();
        EXPECT_TRUE(manager.establish(net.now, id));
        return id;
    }

    Net net;
    Node& us;
    ConnectionManager& manager = us.manager;

private:
    bool listening_ = false;
};

TEST_F(StateTest, ARequestTellsAllThatTheQueuePairNeeds) {
    listen();
    CmReq req = request();
    req.private_data[91] = std::byte{0x42};
    receive(req);
    const Seen& seen = last_event(EventType::ConnectRequest);
    EXPECT_EQ(seen.service, kService);
    EXPECT_EQ(seen.path.local, kUs);
    EXPECT_EQ(seen.path.remote, kPeer);
    EXPECT_EQ(seen.path.mtu, 4);
    EXPECT_EQ(seen.path.flow_label, 0xabcdeu);
    EXPECT_EQ(seen.path.traffic_class, 7);
    EXPECT_EQ(seen.path.hop_limit, 63);
    EXPECT_EQ(seen.path.ack_timeout, 18);
    EXPECT_EQ(seen.peer.qpn.raw, 0x99u);
    EXPECT_EQ(seen.peer.starting_psn, Psn(0x123456));
    EXPECT_EQ(seen.peer.responder_resources, 4);
    EXPECT_EQ(seen.peer.initiator_depth, 5);
    EXPECT_EQ(seen.peer.retry_count, 6);
    EXPECT_EQ(seen.peer.rnr_retry_count, 3);
    EXPECT_TRUE(seen.peer.srq);
    EXPECT_EQ(seen.peer.ca_guid, 0xabcdefu);
    ASSERT_EQ(seen.private_data.size(), 92u);
    EXPECT_EQ(seen.private_data[91], std::byte{0x42});
}

TEST_F(StateTest, AResponseTellsAllThatTheQueuePairNeeds) {
    const CommId id = req_sent();
    CmRep rep{.local_id = kPeerId,
              .remote_id = id,
              .local_qpn = {0x99},
              .starting_psn = Psn(0x654321),
              .responder_resources = 2,
              .initiator_depth = 3,
              .target_ack_delay = 9,
              .rnr_retry_count = 5,
              .srq = true,
              .local_ca_guid = 0xfedcba};
    rep.private_data[195] = std::byte{0x17};
    receive(rep);
    const Seen& seen = last_event(EventType::ConnectResponse);
    EXPECT_EQ(seen.connection, id);
    EXPECT_EQ(seen.path.remote, kPeer);
    EXPECT_EQ(seen.peer.qpn.raw, 0x99u);
    EXPECT_EQ(seen.peer.starting_psn, Psn(0x654321));
    EXPECT_EQ(seen.peer.responder_resources, 2);
    EXPECT_EQ(seen.peer.initiator_depth, 3);
    EXPECT_EQ(seen.peer.target_ack_delay, 9);
    EXPECT_EQ(seen.peer.rnr_retry_count, 5);
    EXPECT_TRUE(seen.peer.srq);
    ASSERT_EQ(seen.private_data.size(), 196u);
    EXPECT_EQ(seen.private_data[195], std::byte{0x17});
}

TEST_F(StateTest, IdsCarryTheSlotAndDiffer) {
    const CommId first = req_sent(), second = *manager.connect(net.now, options(0x12));
    EXPECT_EQ(first.raw >> kCommIdLowBits, 1u);
    EXPECT_EQ(second.raw >> kCommIdLowBits, 1u);
    EXPECT_NE(first, second);
    EXPECT_EQ(last<CmReq>().local_id, second);
}

TEST_F(StateTest, AnUnservedRequestIsRefusedAfterItsGrace) {
    receive(request());
    EXPECT_TRUE(net.sent.empty());
    EXPECT_EQ(us.offers, 1);
    EXPECT_EQ(manager.next_wakeup(), net.now + 50ms);
    receive(request());  // Repeated meanwhile: one answer is enough.
    EXPECT_EQ(drops(Drop::WrongState), 1u);
    pass(49ms);
    EXPECT_TRUE(net.sent.empty());
    pass(1ms);
    ASSERT_EQ(net.sent.size(), 1u);
    const CmRej rej = last<CmRej>();
    EXPECT_EQ(rej.reason, RejectReason::InvalidServiceId);
    EXPECT_EQ(rej.remote_id, kPeerId);
    EXPECT_EQ(rej.local_id.raw, 0u);
    EXPECT_EQ(us.offers, 2);
    EXPECT_EQ(manager.next_wakeup(), kNever);
    EXPECT_EQ(manager.connections(), 0u);
}

TEST_F(StateTest, AListenerThatComesInTimeGetsTheRequest) {
    receive(request());
    receive(request(0x77000002, 0x9a));
    CmReq other = request(0x77000003, 0x9b);
    other.service_id.raw += 1;
    receive(other);
    pass(20ms);
    listen();
    EXPECT_EQ(us.events.size(), 2u);
    last_event(EventType::ConnectRequest);
    pass(30ms);
    EXPECT_EQ(us.events.size(), 2u);
    EXPECT_EQ(last<CmRej>().remote_id, other.local_id);
}

TEST_F(StateTest, AnotherProcessMayTakeTheRequest) {
    us.take_offers = true;
    receive(request());
    pass(1s);
    EXPECT_TRUE(net.sent.empty());
    EXPECT_EQ(us.offers, 1);
}

TEST_F(StateTest, AnUnservedResolutionIsRefusedAfterItsGrace) {
    receive(CmSidrReq{.request_id = kPeerId, .service_id = kService});
    pass(50ms);
    const CmSidrRep rep = last<CmSidrRep>();
    EXPECT_EQ(rep.status, SidrStatus::UnsupportedService);
    EXPECT_EQ(rep.request_id, kPeerId);
    EXPECT_EQ(rep.service_id, kService);
}

TEST_F(StateTest, WhatWeCannotServeIsRefusedWithItsReason) {
    listen();
    CmReq req = request();
    req.transport = TransportType::Rd;
    receive(req);
    EXPECT_EQ(last<CmRej>().reason, RejectReason::InvalidTransportType);
    req.transport = TransportType::Extended;
    receive(req);
    EXPECT_EQ(last<CmRej>().reason, RejectReason::InvalidTransportType);
    req.transport = TransportType::Rc;
    for (const std::uint8_t mtu : {0, 6, 15}) {
        req.path_mtu = mtu;
        receive(req);
        EXPECT_EQ(last<CmRej>().reason, RejectReason::InvalidPathMtu);
    }
    EXPECT_TRUE(us.events.empty());
    req.transport = TransportType::Extended;
    req.extended_transport = kExtendedTransportXrc;
    req.path_mtu = 5;
    receive(req);
    EXPECT_EQ(last_event(EventType::ConnectRequest).peer.transport, TransportType::Extended);
}

TEST_F(StateTest, ListenersAreFoundFromTheExactToTheGeneral) {
    const Gid v6{.raw = {0x20, 0x01}};
    const auto exact = manager.listen(net.now, {.service = kService, .address = kUs});
    const auto any_v4 = manager.listen(net.now, {.service = kService, .address = Gid::from_v4(0)});
    const auto any = manager.listen(net.now, {.service = kService});
    ASSERT_TRUE(exact && any_v4 && any);
    EXPECT_EQ(manager.listen(net.now, {.service = kService}).error().code, EADDRINUSE);
    std::uint32_t id = 1;
    const auto served_by = [&](const Gid& destination) {
        const std::size_t before = us.events.size();
        ++id;
        receive(request(id, id), kPeer, destination);
        return us.events.size() > before ? us.events.back().listener : ListenerId{};
    };
    EXPECT_EQ(served_by(kUs), *exact);
    EXPECT_EQ(served_by(kStranger), *any_v4);
    EXPECT_EQ(served_by(v6), *any);
    manager.unlisten(*exact);
    EXPECT_EQ(served_by(kUs), *any_v4);
    manager.unlisten(*any_v4);
    EXPECT_EQ(served_by(kUs), *any);
    manager.unlisten(*any);
    EXPECT_EQ(served_by(v6), ListenerId{});
    pass(1s);
    const auto only_v6 = manager.listen(net.now, {.service = kService, .v6_only = true});
    ASSERT_TRUE(only_v6);
    EXPECT_EQ(served_by(kUs), ListenerId{});
    EXPECT_EQ(served_by(v6), *only_v6);
}

TEST_F(StateTest, ARefusalCarriesReasonInfoAndPrivateData) {
    const CommId id = req_received();
    const auto info = text("info"), words = text("no thanks");
    ASSERT_TRUE(manager.reject(
        net.now, id,
        {.reason = RejectReason::InvalidPathMtu, .additional_info = info, .private_data = words}));
    const CmRej rej = last<CmRej>();
    EXPECT_EQ(rej.reason, RejectReason::InvalidPathMtu);
    EXPECT_EQ(rej.answered, CmAnswered::Req);
    EXPECT_EQ(rej.local_id, id);
    EXPECT_EQ(rej.remote_id, kPeerId);
    EXPECT_EQ(rej.additional_info_size, 4);
    EXPECT_TRUE(std::equal(info.begin(), info.end(), rej.additional_info.begin()));
    EXPECT_TRUE(std::equal(words.begin(), words.end(), rej.private_data.begin()));
    EXPECT_FALSE(manager.accept(net.now, id, {}));
}

TEST_F(StateTest, EveryReasonReachesTheUser) {
    for (std::uint16_t reason = 1; reason <= 33; ++reason) {
        const CommId id = *manager.connect(net.now, options(reason));
        CmRej rej{.remote_id = id, .reason = static_cast<RejectReason>(reason)};
        rej.private_data[147] = std::byte{9};
        receive(rej);
        const Seen& seen = last_event(EventType::Rejected);
        EXPECT_EQ(seen.connection, id);
        EXPECT_EQ(static_cast<std::uint16_t>(seen.reason), reason);
        ASSERT_EQ(seen.private_data.size(), 148u);
        EXPECT_EQ(seen.private_data[147], std::byte{9});
    }
}

TEST_F(StateTest, TheActiveSideMayRefuseAResponse) {
    const CommId id = rep_received();
    ASSERT_TRUE(manager.reject(net.now, id, {}));
    EXPECT_EQ(last<CmRej>().answered, CmAnswered::Rep);
    // The REJ was lost and the REP comes again.
    const std::size_t sent = net.sent.size();
    receive(CmRep{.local_id = kPeerId, .remote_id = id, .local_qpn = {0x99}});
    EXPECT_EQ(net.sent.size(), sent + 1);
    EXPECT_EQ(last<CmRej>().reason, RejectReason::ConsumerReject);
}

TEST_F(StateTest, ATimeoutIsToldToThePeerWithTheAdaptersName) {
    req_sent();
    for (int i = 0; i < 16; ++i) pass(kTimeout);
    last_event(EventType::Unreachable);
    const CmRej rej = last<CmRej>();
    EXPECT_EQ(rej.reason, RejectReason::Timeout);
    EXPECT_EQ(rej.remote_id.raw, 0u);
    EXPECT_EQ(rej.additional_info_size, 8);
    EXPECT_EQ(manager.counters().retried, 15u);
}

TEST_F(StateTest, APeersTimeoutIsFoundByItsOwnId) {
    const CommId id = req_received();
    receive(CmRej{.local_id = kPeerId, .reason = RejectReason::Timeout});
    EXPECT_EQ(last_event(EventType::Rejected).connection, id);
    receive(CmRej{.local_id = {0x1111}, .reason = RejectReason::Timeout});
    EXPECT_EQ(drops(Drop::UnknownConnection), 1u);
    EXPECT_EQ(us.offers, 1);
}

TEST_F(StateTest, AKnownQueuePairIsStaleAndItsConnectionIsEnded) {
    const CommId old = passive_established();
    receive(request(0x77000002, 0x99));
    EXPECT_EQ(manager.state(old), State::DreqSent);
    ASSERT_GE(net.sent.size(), 2u);
    const auto rej = CmRej::parse(std::span(net.sent[net.sent.size() - 2].mad).last<232>());
    EXPECT_EQ(rej.reason, RejectReason::StaleConnection);
    EXPECT_EQ(rej.remote_id.raw, 0x77000002u);
    EXPECT_EQ(last<CmDreq>().remote_qpn.raw, 0x99u);
    // Once it has ended the queue pair may come again.
    receive(CmDrep{.local_id = kPeerId, .remote_id = old});
    receive(request(0x77000003, 0x99));
    last_event(EventType::ConnectRequest);
}

TEST_F(StateTest, AKnownIdForAnotherQueuePairIsStale) {
    const CommId old = passive_established();
    receive(request(kPeerId.raw, 0x98));
    EXPECT_EQ(manager.state(old), State::DreqSent);
    EXPECT_EQ(manager.connections(), 1u);
}

TEST_F(StateTest, ALateRequestOfAnEndedConnectionIsStale) {
    const CommId id = passive_established();
    receive(CmDreq{.local_id = kPeerId, .remote_id = id, .remote_qpn = {0x55}});
    last_event(EventType::Disconnected);
    receive(request());
    EXPECT_EQ(last<CmRej>().reason, RejectReason::StaleConnection);
    EXPECT_EQ(manager.connections(), 1u);
}

TEST_F(StateTest, TheSameNumbersFromAnotherAddressAreAnotherPeer) {
    passive_established();
    receive(request(), kStranger);
    last_event(EventType::ConnectRequest);
    EXPECT_EQ(manager.connections(), 2u);
}

TEST_F(StateTest, RepeatedRequestsAreAnsweredAsBefore) {
    const CommId id = req_received();
    receive(request());
    EXPECT_TRUE(net.sent.empty());  // The user is still thinking.
    ASSERT_TRUE(manager.ask_for_time(net.now, id, 21));
    EXPECT_EQ(last<CmMra>().service_timeout, 21);
    EXPECT_EQ(last<CmMra>().answered, CmAnswered::Req);
    receive(request());
    EXPECT_EQ(net.sent.size(), 2u);
    last<CmMra>();
    ASSERT_TRUE(manager.accept(net.now, id, {.endpoint = {.qpn = {0x55}}}));
    receive(request());
    EXPECT_EQ(net.sent.size(), 4u);
    EXPECT_EQ(last<CmRep>().local_qpn.raw, 0x55u);
    EXPECT_EQ(manager.counters().replayed, 2u);
    EXPECT_EQ(us.events.size(), 1u);
}

TEST_F(StateTest, ANumberThatComesAgainAfterItsTimeIsANewRequest) {
    for (std::size_t round = 1; round <= 3; ++round) {
        const CommId id = req_received();
        receive(request());
        EXPECT_EQ(us.events.size(), round);
        EXPECT_EQ(drops(Drop::WrongState), round);  // Known as the same request.
        manager.release(net.now, id);
        pass(4 * kTimeout);
        EXPECT_EQ(manager.connections(), 0u);
    }
}

TEST_F(StateTest, AnMraGivesThePeerMoreTime) {
    const CommId id = req_sent();
    receive(CmMra{.local_id = kPeerId, .remote_id = id, .service_timeout = 22});
    EXPECT_EQ(manager.next_wakeup(), net.now + timeout_of(22) + kTimeout);
    receive(CmMra{.local_id = kPeerId, .remote_id = id, .answered = CmAnswered::Rep});
    EXPECT_EQ(drops(Drop::WrongState), 1u);
    // Even the longest that five bits can say is bounded.
    receive(CmMra{.local_id = kPeerId, .remote_id = id, .service_timeout = 31});
    EXPECT_EQ(manager.next_wakeup(), net.now + 68719476736ns + kTimeout);
}

TEST_F(StateTest, AnMraForARepIsRepeatedUntilTheUserIsReady) {
    const CommId id = rep_received();
    ASSERT_TRUE(manager.ask_for_time(net.now, id, 20));
    EXPECT_EQ(last<CmMra>().answered, CmAnswered::Rep);
    receive(CmRep{.local_id = kPeerId, .remote_id = id, .local_qpn = {0x99}});
    EXPECT_EQ(net.sent.size(), 3u);
    EXPECT_EQ(us.events.size(), 1u);
    ASSERT_TRUE(manager.establish(net.now, id));
    EXPECT_EQ(last<CmRtu>().remote_id, kPeerId);
    const CommId passive = req_received(0x77000009, 0x9f);
    ASSERT_TRUE(manager.accept(net.now, passive, {}));
    receive(CmMra{.local_id = {0x77000009},
                  .remote_id = passive,
                  .answered = CmAnswered::Rep,
                  .service_timeout = 22});
    EXPECT_EQ(manager.next_wakeup(), net.now + timeout_of(22) + kTimeout);
}

TEST_F(StateTest, DataBeforeTheRtuEstablishes) {
    const CommId id = rep_sent();
    ASSERT_TRUE(manager.establish(net.now, id));
    last_event(EventType::Established);
    EXPECT_EQ(manager.next_wakeup(), kNever);
    receive(CmRtu{.local_id = kPeerId, .remote_id = id});  // Late, and harmless.
    EXPECT_EQ(us.events.size(), 2u);
    EXPECT_EQ(drops(Drop::WrongState), 1u);
    EXPECT_TRUE(manager.establish(net.now, id));
    EXPECT_EQ(us.events.size(), 2u);
}

TEST_F(StateTest, AlternatePathsAreRefused) {
    const CommId id = active_established();
    receive(CmLap{.local_id = kPeerId, .remote_id = id});
    EXPECT_EQ(last<CmApr>().status, AprStatus::Unsupported);
    EXPECT_EQ(last<CmApr>().remote_id, kPeerId);
    EXPECT_EQ(manager.state(id), State::Established);
    receive(CmLap{.local_id = kPeerId, .remote_id = {0x5}});
    EXPECT_EQ(last<CmApr>().status, AprStatus::InvalidCommId);
    receive(CmApr{.local_id = kPeerId, .remote_id = id});
    EXPECT_EQ(drops(Drop::WrongState), 1u);
}

TEST_F(StateTest, MessagesForNoConnection) {
    receive(CmRep{.local_id = kPeerId, .remote_id = {0x01000005}, .local_qpn = {1}});
    EXPECT_EQ(last<CmRej>().reason, RejectReason::InvalidCommId);
    EXPECT_EQ(last<CmRej>().answered, CmAnswered::Rep);
    receive(CmDreq{.local_id = kPeerId, .remote_id = {0x01000005}});
    EXPECT_EQ(last<CmDrep>().local_id.raw, 0x01000005u);
    const std::size_t sent = net.sent.size();
    receive(CmRtu{.local_id = kPeerId, .remote_id = {0x01000005}});
    receive(CmDrep{.local_id = kPeerId, .remote_id = {0x01000005}});
    receive(CmMra{.local_id = kPeerId, .remote_id = {0x01000005}});
    receive(CmRej{.local_id = kPeerId, .remote_id = {0x01000005}});
    receive(CmSidrRep{.request_id = {0x01000005}});
    EXPECT_EQ(net.sent.size(), sent);
    EXPECT_EQ(drops(Drop::UnknownConnection), 7u);
}

TEST_F(StateTest, StrangersChangeNothing) {
    const CommId id = passive_established();
    const std::size_t sent = net.sent.size();
    const CmDreq dreq{.local_id = kPeerId, .remote_id = id, .remote_qpn = {0x55}};
    receive(dreq, kStranger);
    receive(CmRej{.local_id = kPeerId, .remote_id = id}, kStranger);
    CmDreq other_instance = dreq;
    other_instance.local_id.raw ^= 1;
    receive(other_instance);
    CmDreq other_qp = dreq;
    other_qp.remote_qpn.raw ^= 1;
    receive(other_qp);
    EXPECT_EQ(drops(Drop::WrongPeer), 4u);
    EXPECT_EQ(manager.state(id), State::Established);
    EXPECT_EQ(net.sent.size(), sent);
    receive(dreq);
    EXPECT_EQ(manager.state(id), State::Timewait);
}

TEST_F(StateTest, ADreqInPlaceOfTheRtuShowsBothEvents) {
    const CommId id = rep_sent();
    receive(CmDreq{.local_id = kPeerId, .remote_id = id, .remote_qpn = {0x55}});
    ASSERT_EQ(us.events.size(), 3u);
    EXPECT_EQ(us.events[1].type, EventType::Established);
    EXPECT_EQ(us.events[2].type, EventType::Disconnected);
    EXPECT_EQ(last<CmDrep>().remote_id, kPeerId);
}

TEST_F(StateTest, ADreqInPlaceOfTheRepIsARefusal) {
    const CommId id = req_sent();
    receive(CmDreq{.local_id = kPeerId, .remote_id = id, .remote_qpn = {0x11}});
    EXPECT_EQ(last_event(EventType::Rejected).reason, RejectReason::ConsumerReject);
    EXPECT_EQ(last<CmDrep>().remote_id, kPeerId);
}

TEST_F(StateTest, ADreqBeforeWeEstablishedIsADisconnect) {
    const CommId id = rep_received();
    receive(CmDreq{.local_id = kPeerId, .remote_id = id, .remote_qpn = {0x11}});
    last_event(EventType::Disconnected);
    EXPECT_EQ(manager.establish(net.now, id).error().code, ENOTCONN);
    EXPECT_TRUE(manager.disconnect(net.now, id));  // Nothing left to do.
}

TEST_F(StateTest, ARejOfAnEstablishedConnectionEndsIt) {
    const CommId id = active_established();
    receive(CmRej{.local_id = kPeerId, .remote_id = id, .reason = RejectReason::Timeout});
    last_event(EventType::Disconnected);
    pass(2 * timeout_of(19));
    last_event(EventType::TimewaitExit);
    EXPECT_EQ(manager.state(id), State::Closed);
    manager.release(net.now, id);
    EXPECT_EQ(manager.state(id), std::nullopt);
}

TEST_F(StateTest, ResolutionTellsQueuePairAndKey) {
    const auto words = text("who are you");
    const CommId id = *manager.sidr_request(
        net.now, {.path = options().path, .service = kService, .private_data = words});
    EXPECT_EQ(last<CmSidrReq>().request_id, id);
    EXPECT_TRUE(std::equal(words.begin(), words.end(), last<CmSidrReq>().private_data.begin()));
    CmSidrRep rep{.request_id = id, .qpn = {0x321}, .service_id = kService, .qkey = {0x01234567}};
    receive(rep, kStranger);
    EXPECT_EQ(drops(Drop::WrongPeer), 1u);
    receive(rep);
    const Seen& seen = last_event(EventType::SidrResponse);
    EXPECT_EQ(seen.peer.qpn.raw, 0x321u);
    EXPECT_EQ(seen.peer.qkey.raw, 0x01234567u);
    EXPECT_EQ(seen.private_data.size(), 136u);
    receive(rep);
    EXPECT_EQ(drops(Drop::WrongState), 1u);
    EXPECT_EQ(manager.next_wakeup(), kNever);
}

TEST_F(StateTest, ResolutionIsAnsweredOnceByTheUser) {
    listen();
    const CmSidrReq req{.request_id = kPeerId, .service_id = kService};
    receive(req);
    const CommId id = last_event(EventType::SidrRequest).connection;
    EXPECT_EQ(us.events.back().private_data.size(), 216u);
    receive(req);
    EXPECT_EQ(us.events.size(), 1u);
    EXPECT_FALSE(manager.accept(net.now, id, {}));
    ASSERT_TRUE(manager.sidr_reply(net.now, id, {.qpn = {0x77}, .qkey = {5}}));
    EXPECT_EQ(last<CmSidrRep>().request_id, kPeerId);
    EXPECT_EQ(last<CmSidrRep>().service_id, kService);
    receive(req);
    EXPECT_EQ(net.sent.size(), 2u);
    EXPECT_EQ(last<CmSidrRep>().qpn.raw, 0x77u);
    EXPECT_FALSE(manager.sidr_reply(net.now, id, {}));
    // A resolution and a connection may have the same number.
    receive(request());
    last_event(EventType::ConnectRequest);
    // Let go of without an answer it is refused.
    receive(CmSidrReq{.request_id = {0x66}, .service_id = kService});
    manager.release(net.now, last_event(EventType::SidrRequest).connection);
    EXPECT_EQ(last<CmSidrRep>().status, SidrStatus::Rejected);
}

TEST_F(StateTest, MalformedMadsAreCountedAndDropped) {
    const MadBytes mad = make_cm_mad(1, request());
    manager.receive(net.now, kPeer, kUs, ByteView(mad).first(100));
    manager.receive(net.now, kPeer, kUs, {});
    receive(request(0));
    receive(CmSidrReq{.service_id = kService});
    receive(CmRep{.remote_id = {1}});
    EXPECT_EQ(drops(Drop::Malformed), 5u);
    EXPECT_EQ(manager.counters().received, 5u);
    EXPECT_TRUE(net.sent.empty());
}

TEST_F(StateTest, CallersMistakesAreErrors) {
    const std::vector<std::byte> long_data(233);
    ConnectOptions bad = options();
    bad.private_data = ByteView(long_data).first(93);
    EXPECT_EQ(manager.connect(net.now, bad).error().code, EINVAL);
    bad = options();
    bad.path.remote = {};
    EXPECT_EQ(manager.connect(net.now, bad).error().code, EINVAL);
    bad.path.remote = Gid::from_v4(0xe0000001);
    EXPECT_EQ(manager.connect(net.now, bad).error().code, EINVAL);
    bad.path.remote = Gid{.raw = {0x20, 0x01}};
    EXPECT_EQ(manager.connect(net.now, bad).error().code, EAFNOSUPPORT);
    bad = options();
    bad.path.mtu = 6;
    EXPECT_EQ(manager.connect(net.now, bad).error().code, EINVAL);
    bad = options();
    bad.endpoint.transport = TransportType::Rd;
    EXPECT_EQ(manager.connect(net.now, bad).error().code, EINVAL);
    EXPECT_EQ(manager
                  .sidr_request(net.now, {.path = options().path,
                                          .private_data = ByteView(long_data).first(217)})
                  .error()
                  .code,
              EINVAL);
    EXPECT_EQ(manager.accept(net.now, {0x5}, {}).error().code, EINVAL);
    const CommId sent = req_sent();
    EXPECT_FALSE(manager.accept(net.now, sent, {}));
    EXPECT_FALSE(manager.reject(net.now, sent, {}));
    EXPECT_FALSE(manager.establish(net.now, sent));
    EXPECT_FALSE(manager.ask_for_time(net.now, sent, 20));
    EXPECT_FALSE(manager.disconnect(net.now, sent));
    const CommId asked = req_received();
    EXPECT_FALSE(manager.accept(net.now, asked, {.private_data = ByteView(long_data).first(197)}));
    EXPECT_FALSE(manager.reject(net.now, asked, {.private_data = ByteView(long_data).first(149)}));
    EXPECT_FALSE(
        manager.reject(net.now, asked, {.additional_info = ByteView(long_data).first(73)}));
    EXPECT_FALSE(manager.ask_for_time(net.now, asked, 32));
    EXPECT_EQ(manager.state(asked), State::ReqReceived);
    EXPECT_FALSE(manager.listen(net.now, {.service = {1}, .address = Gid::from_v4(0xe0000001)}));
}

TEST_F(StateTest, AnAddressThatGoesTakesEverythingWithIt) {
    const auto listener = manager.listen(net.now, {.service = {7}, .address = kUs});
    ASSERT_TRUE(listener);
    const CommId active = active_established();
    const CommId asking = req_sent();
    const CommId passive = req_received(0x77000008, 0x98);
    CmReq waiting = request(0x77000009, 0x97);
    waiting.service_id = {8};
    receive(waiting);
    const std::size_t sent = net.sent.size(), told = us.events.size();
    manager.remove_address(kStranger);
    EXPECT_EQ(us.events.size(), told);
    manager.remove_address(kUs);
    ASSERT_EQ(us.events.size(), told + 7);
    EXPECT_EQ(us.events[told].type, EventType::AddressRemoved);
    EXPECT_EQ(us.count(EventType::AddressRemoved, active), 1u);
    EXPECT_EQ(us.count(EventType::Disconnected, active), 1u);
    EXPECT_EQ(us.count(EventType::TimewaitExit, active), 1u);
    EXPECT_EQ(us.count(EventType::AddressRemoved, asking), 1u);
    EXPECT_EQ(us.count(EventType::Unreachable, asking), 1u);
    EXPECT_EQ(us.count(EventType::AddressRemoved, passive), 1u);
    EXPECT_EQ(net.sent.size(), sent);
    EXPECT_EQ(manager.next_wakeup(), kNever);
    EXPECT_EQ(manager.state(active), State::Closed);
    for (const CommId id : {active, asking, passive}) manager.release(net.now, id);
    EXPECT_EQ(manager.connections(), 0u);
}

TEST_F(StateTest, AnAddressThatGoesEndsWhatWasEnding) {
    const CommId leaving = active_established();
    ASSERT_TRUE(manager.disconnect(net.now, leaving));
    EXPECT_TRUE(manager.disconnect(net.now, leaving)) << "twice is once";
    const CommId left = req_received(0x77000008, 0x98);
    ASSERT_TRUE(manager.accept(net.now, left, {.endpoint = {.qpn = {0x55}}}));
    receive(CmDreq{.local_id = {0x77000008}, .remote_id = left, .remote_qpn = {0x55}});
    ASSERT_EQ(manager.state(left), State::Timewait);
    EXPECT_TRUE(manager.disconnect(net.now, left));
    const CommId refused = req_received(0x77000009, 0x97);
    ASSERT_TRUE(manager.reject(net.now, refused, {}));
    const CommId resolving = *manager.sidr_request(net.now, {.path = options().path});
    receive(CmSidrReq{.request_id = {0x66}, .service_id = kService});
    const CommId resolved = last_event(EventType::SidrRequest).connection;
    const std::size_t told = us.events.size();
    manager.remove_address(kUs);
    EXPECT_EQ(us.events.size(), told + 7);
    const auto only = [&](CommId id, EventType type) { return us.count(type, id) == 1; };
    EXPECT_TRUE(only(leaving, EventType::AddressRemoved) && only(leaving, EventType::Disconnected));
    EXPECT_TRUE(only(leaving, EventType::TimewaitExit));
    // It has ended, and its user knows: only the number is free now.
    EXPECT_TRUE(only(left, EventType::TimewaitExit) && !only(left, EventType::AddressRemoved));
    EXPECT_TRUE(only(resolving, EventType::AddressRemoved));
    EXPECT_TRUE(only(resolving, EventType::Unreachable));
    EXPECT_TRUE(only(resolved, EventType::AddressRemoved));
    manager.remove_address(kUs);
    EXPECT_EQ(us.events.size(), told + 7);
    EXPECT_TRUE(manager.disconnect(net.now, leaving)) << "it is over";
    for (const CommId id : {leaving, left, refused, resolving, resolved})
        manager.release(net.now, id);
    EXPECT_EQ(manager.connections(), 0u);
}

TEST_F(StateTest, EveryEventHasAName) {
    std::set<std::string> names;
    for (int type = 0; type <= static_cast<int>(EventType::AddressRemoved); ++type)
        EXPECT_TRUE(names.insert(to_string(static_cast<EventType>(type))).second) << type;
}

class SmallTables : public StateTest {
protected:
    SmallTables()
        : StateTest({.max_connections = 3, .max_listeners = 2, .max_waiting_requests = 2}) {}
};

TEST_F(SmallTables, ConnectionsAreBounded) {
    req_received();
    req_sent();
    ASSERT_TRUE(manager.connect(net.now, options(0x12)));
    EXPECT_EQ(manager.connect(net.now, options(0x13)).error().code, ENOMEM);
    EXPECT_EQ(manager.sidr_request(net.now, {.path = options().path}).error().code, ENOMEM);
    receive(request(0x77000002, 0x98));
    EXPECT_EQ(last<CmRej>().reason, RejectReason::NoResources);
    receive(CmSidrReq{.request_id = {5}, .service_id = kService});
    EXPECT_EQ(last<CmSidrRep>().status, SidrStatus::Rejected);
    EXPECT_EQ(drops(Drop::TableFull), 2u);
    EXPECT_EQ(manager.connections(), 3u);
}

TEST_F(SmallTables, ListenersAreBounded) {
    ASSERT_TRUE(manager.listen(net.now, {.service = {1}}));
    const auto second = manager.listen(net.now, {.service = {2}});
    ASSERT_TRUE(second);
    EXPECT_EQ(manager.listen(net.now, {.service = {3}}).error().code, ENOMEM);
    manager.unlisten(*second);
    EXPECT_TRUE(manager.listen(net.now, {.service = {3}}));
}

TEST_F(SmallTables, WaitingRequestsAreBounded) {
    receive(request(1, 1));
    receive(request(2, 2));
    EXPECT_TRUE(net.sent.empty());
    receive(request(3, 3));
    EXPECT_EQ(last<CmRej>().remote_id.raw, 3u);
    EXPECT_EQ(net.sent.size(), 1u);
}

TEST_F(StateTest, ABacklogIsBoundedAndFreedByAnswers) {
    ASSERT_TRUE(manager.listen(net.now, {.service = kService, .backlog = 2}));
    receive(request(1, 1));
    const CommId first = last_event(EventType::ConnectRequest).connection;
    receive(request(2, 2));
    const CommId second = last_event(EventType::ConnectRequest).connection;
    receive(request(3, 3));
    EXPECT_EQ(last<CmRej>().reason, RejectReason::NoResources);
    ASSERT_TRUE(manager.accept(net.now, first, {}));
    receive(request(4, 4));
    EXPECT_EQ(us.events.size(), 3u);
    manager.release(net.now, second);
    receive(request(5, 5));
    EXPECT_EQ(us.events.size(), 4u);
    receive(request(6, 6));
    EXPECT_EQ(us.events.size(), 4u);
    // Nor does one count that the program has, though it never answers it. Told twice, once.
    manager.taken(us.events.back().connection);
    manager.taken(us.events.back().connection);
    receive(request(7, 7));
    EXPECT_EQ(us.events.size(), 5u);
    receive(request(8, 8));
    EXPECT_EQ(us.events.size(), 5u);
}

}  // namespace
}  // namespace feroce::cm
