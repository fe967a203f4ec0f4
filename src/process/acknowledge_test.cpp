// A program may end the moment it has a receive completion. So whoever takes a message from the
// port, the program's thread or ours, passes its acknowledgement to the port before any thread can
// see the completion.
#include <gtest/gtest.h>

#include <deque>

#include "process/shard.hpp"
#include "process/test_host.hpp"
#include "wire/icrc.hpp"
#include "wire/packet.hpp"

namespace feroce::process {
namespace {

using namespace std::chrono_literals;
using transport::Attribute;

const Gid kOurs = Gid::from_v4(0x7f000001), kPeers = Gid::from_v4(0x7f000002);

// A READ of 72 packets, where a turn of the engine sends 64; within the peer's first window.
constexpr std::uint32_t kMoreThanATurn = 72 * 256;

struct Packet {
    std::vector<std::byte> bytes;
    std::uint16_t id = 0;  // Its place in a segmented send.
    std::uint16_t source_port = 0;

    wire::Verb verb() const {
        wire::Packet parsed;
        EXPECT_EQ(wire::parse_packet(bytes, parsed), wire::ParseError::None);
        return parsed.info->verb;
    }
};

// What a port does: seals the packets of the runs.
std::vector<Packet> sealed(std::span<const transport::TransmitRun> runs) {
    std::vector<Packet> out;
    for (const transport::TransmitRun& run : runs) {
        const auto port = static_cast<std::uint16_t>(0xc000 | (run.path.flow & 0x3fff));
        wire::seal_run(
            {.source = run.path.source, .destination = run.path.destination, .source_port = port},
            run.bytes, run.segment_size);
        std::uint16_t id = 0;
        for (std::size_t at = 0; at < run.bytes.size(); at += run.segment_size, ++id) {
            const auto part = run.bytes.subspan(
                at, std::min<std::size_t>(run.segment_size, run.bytes.size() - at));
            out.push_back({{part.begin(), part.end()}, id, port});
        }
    }
    return out;
}

class PeerPort final : public device::Port {
public:
    void transmit(std::span<const transport::TransmitRun> runs) override {
        for (Packet& packet : sealed(runs)) sent.push_back(std::move(packet));
    }
    bool join_group(const Gid&) override { return false; }
    void leave_group(const Gid&) override {}
    std::deque<Packet> sent;
};

// One end's memory, completion queue and queue pair.
struct Side {
    explicit Side(mem::Memory& memory)
        : pd(*memory.alloc_pd()),
          keys(
              *memory.register_region({.pd = pd,
                                       .address = words.data(),
                                       .length = 8 * words.size(),
                                       .iova = reinterpret_cast<std::uint64_t>(words.data()),
                                       .access = mem::Access::LocalWrite | mem::Access::RemoteRead |
                                                 mem::Access::RemoteWrite})) {}

    void connect(device::Engine& engine, Instant now, const Gid& source, const Gid& destination,
                 Qpn peer) {
        transport::QpAttributes a;
        a.address.source = source;
        a.address.destination = destination;
        a.destination_qpn = peer;
        a.path_mtu = 256;
        a.access = mem::Access::RemoteRead | mem::Access::RemoteWrite;
        a.timeout = 14;
        a.retry_count = a.rnr_retry = 7;
        a.read_atomic_max = a.dest_read_atomic_max = 4;
        for (const auto to :
             {transport::QpState::Init, transport::QpState::Rtr, transport::QpState::Rts}) {
            transport::AttributeMask mask =
                transport::transition(transport::QpType::Rc, qp->state(), to).required;
            mask.raw |= static_cast<std::uint32_t>(Attribute::State);
            a.state = to;
            ASSERT_TRUE(engine.modify_qp(now, *qp, a, mask));
        }
    }
    void create(device::Engine& engine) {
        transport::QpInit init;
        init.pd = pd;
        init.send_cq = init.receive_cq = &cq;
        init.capabilities = {.send_wr_max = 64, .receive_wr_max = 64};
        qp = *engine.create_qp(init);
    }
    mem::Sge sge(std::uint32_t length) const {
        return {reinterpret_cast<std::uint64_t>(words.data()), length, keys.lkey};
    }

    std::vector<std::uint64_t> words = std::vector<std::uint64_t>(64 * 1024);
    PdId pd;
    mem::RegionKeys keys;
    device::CompletionQueue cq{256, nullptr, nullptr};
    transport::QueuePair* qp = nullptr;
};

class Acknowledge : public testing::Test {
public:
    Acknowledge() {
        world.bed.await_sleep();
        peer.create(peer_engine);
        Shard::Session session(*shard);
        own.create(session.engine());
        own.connect(session.engine(), session.now(), kOurs, kPeers, peer.qp->qpn());
        peer.connect(peer_engine, world.now, kPeers, kOurs, own.qp->qpn());
        const mem::Sge sge = own.sge(8);
        for (std::uint64_t i = 0; i < 64; ++i)
            EXPECT_TRUE(session.engine().post_receive(session.now(), *own.qp, {i, {&sge, 1}}));
        world.deliver = [this](Instant now, device::Engine& engine) { return hand(now, engine); };
        world.transmit = [this](std::span<const transport::TransmitRun> runs) {
            ++transmits;
            for (Packet& packet : sealed(runs)) {
                if (packet.verb() != wire::Verb::Ack) continue;
                ++acks;
                seen_before_ack = std::max(seen_before_ack, own.cq.size());
            }
        };
    }
    ~Acknowledge() override {
        world.deliver = [](Instant, device::Engine&) { return false; };
        Shard::Session session(*shard);
        session.engine().destroy_qp(*own.qp);
    }

    void peer_posts(transport::SendOp op, std::uint32_t length) {
        transport::SendWr wr;
        const mem::Sge sge = peer.sge(length);
        wr.op = op;
        wr.sges = {&sge, 1};
        wr.remote_address = reinterpret_cast<std::uint64_t>(own.words.data());
        wr.rkey = own.keys.rkey;
        ASSERT_TRUE(peer_engine.post_send(world.now, *peer.qp, wr));
        do peer_engine.run(world.now);
        while (peer_engine.has_work());
        std::move(peer_port.sent.begin(), peer_port.sent.end(), std::back_inserter(in_flight));
        peer_port.sent.clear();
    }
    bool hand(Instant now, device::Engine& engine) {
        if (in_flight.empty()) return false;
        for (; !in_flight.empty(); in_flight.pop_front())
            engine.receive(now, {.bytes = in_flight.front().bytes,
                                 .source = kPeers,
                                 .destination = kOurs,
                                 .source_port = in_flight.front().source_port,
                                 .id_hint = in_flight.front().id});
        return true;
    }
    void poll() {
        world.now = world.now.load() + 1us;
        shard->drive(own.cq);
    }

    World world;
    FakeHost host{world};
    Prng random{1};
    mem::Memory memory{{}, random};
    mem::Memory peer_memory{{}, random};
    device::XrcDomains xrc;
    Deaf events;
    std::function<void()> changed = [] {};
    std::function<void(const cm::Suspects&)> told = [](const cm::Suspects&) {};
    PeerPort peer_port;
    static device::Engine::Config slot_two() {
        device::Engine::Config config;
        config.slot = 2;
        return config;
    }
    device::Engine peer_engine{slot_two(), {peer_memory, xrc, peer_port, events, random}};
    Side own{memory}, peer{peer_memory};
    std::deque<Packet> in_flight;
    int transmits = 0;
    int acks = 0;
    std::uint32_t seen_before_ack = 0;  // Completions that others could see when an ack left.
    std::unique_ptr<Shard> shard = *Shard::start({host, memory, xrc, events, changed, told});
};

TEST_F(Acknowledge, LeavesBeforeTheCompletionIsThere) {
    peer_posts(transport::SendOp::Send, 8);
    poll();
    EXPECT_EQ(acks, 1);
    EXPECT_EQ(own.cq.size(), 1U);
    EXPECT_EQ(seen_before_ack, 0U);
}

TEST_F(Acknowledge, LeavesFirstForAProgramThatAlwaysComesBack) {
    // Polls, takes its completion and posts again: what makes a driver trust a program.
    for (int i = 0; i < 40; ++i) {
        poll();
        peer_posts(transport::SendOp::Send, 8);
        poll();
        ASSERT_EQ(acks, i + 1);
        ASSERT_EQ(own.cq.size(), 1U);
        transport::Completion taken;
        ASSERT_EQ(own.cq.poll({&taken, 1}), 1U);
        poll();
    }
    EXPECT_EQ(seen_before_ack, 0U);
}

TEST_F(Acknowledge, LeavesFirstWhenTheThreadTakesTheMessage) {
    peer_posts(transport::SendOp::Send, 8);
    world.bed.wake(Bed::End::Arrival);
    EXPECT_EQ(acks, 1);
    EXPECT_EQ(own.cq.size(), 1U);
    EXPECT_EQ(seen_before_ack, 0U);
}

TEST_F(Acknowledge, CoversABatchWithOneTransmit) {
    for (int i = 0; i < 32; ++i) peer_posts(transport::SendOp::Send, 8);
    poll();
    EXPECT_EQ(acks, 1);
    EXPECT_EQ(transmits, 1);
    EXPECT_EQ(own.cq.size(), 32U);
    EXPECT_EQ(seen_before_ack, 0U);
}

TEST_F(Acknowledge, WaitsForTheReadThatWasAskedForBefore) {
    peer_posts(transport::SendOp::Read, kMoreThanATurn);
    peer_posts(transport::SendOp::Send, 8);
    poll();
    EXPECT_EQ(acks, 0);
    EXPECT_EQ(own.cq.size(), 0U) << "the completion is there before its acknowledgement";
    for (int i = 0; i < 64 && own.cq.empty(); ++i) poll();
    EXPECT_EQ(acks, 1);
    EXPECT_EQ(own.cq.size(), 1U);
    EXPECT_EQ(seen_before_ack, 0U);
}

TEST_F(Acknowledge, KeepsTheOrderOfAReceiveThatFails) {
    peer_posts(transport::SendOp::Send, 8);
    peer_posts(transport::SendOp::Send, 16);  // Longer than the receive.
    poll();
    transport::Completion taken[2];
    ASSERT_EQ(own.cq.poll(taken), 2U);
    EXPECT_EQ(taken[0].status, transport::WcStatus::Success);
    EXPECT_EQ(taken[1].status, transport::WcStatus::LocalLengthError);
    EXPECT_EQ(seen_before_ack, 0U);
}

// Of a WRITE: what waits for the program is left behind, until it is sent. So it is where a ring
// was full lately, and packets go by UDP for a while.
TEST_F(Acknowledge, IsLeftBehindWhileItWaits) {
    world.inherits = true;
    Shard::Session session(*shard, Shard::Work::Receives);
    device::Engine& engine = session.engine();
    for (int i = 0; i < 2; ++i) {
        peer_posts(transport::SendOp::Write, 8);
        ASSERT_TRUE(hand(session.now(), engine));
        ASSERT_TRUE(engine.leave_acks_behind());
        ASSERT_EQ(world.left_behind.size(), 1U);
        EXPECT_EQ(acks, i) << "nothing leaves";
        wire::Packet left;
        ASSERT_EQ(wire::parse_packet(world.left_behind[0], left), wire::ParseError::None);
        EXPECT_EQ(left.info->verb, wire::Verb::Ack);
        EXPECT_EQ(left.bth.destination, peer.qp->qpn());
        EXPECT_EQ(left.bth.psn, Psn(static_cast<std::uint32_t>(2 * i)));
        EXPECT_EQ(left.aeth().msn, static_cast<std::uint32_t>(2 * i + 1));
        peer_posts(transport::SendOp::Write, 8);
        ASSERT_TRUE(hand(session.now(), engine));
        EXPECT_FALSE(engine.leave_acks_behind()) << "there is one place";
        engine.run(session.now());
        EXPECT_EQ(acks, i + 1);
        EXPECT_TRUE(world.left_behind.empty()) << "it was sent";
    }
}

TEST_F(Acknowledge, IsNotLeftBehindBeforeTheReadThatWasAskedForBefore) {
    world.by_rings = world.inherits = true;
    Shard::Session session(*shard, Shard::Work::Receives);
    session.engine().run(session.now());
    peer_posts(transport::SendOp::Read, kMoreThanATurn);
    peer_posts(transport::SendOp::Write, 8);
    ASSERT_TRUE(hand(session.now(), session.engine()));
    EXPECT_FALSE(session.engine().leave_acks_behind()) << "the answers leave at once";
    EXPECT_TRUE(world.left_behind.empty());
}

TEST_F(Acknowledge, IsNotLeftBehindByTheNetwork) {
    Shard::Session session(*shard, Shard::Work::Receives);
    peer_posts(transport::SendOp::Write, 8);
    ASSERT_TRUE(hand(session.now(), session.engine()));
    EXPECT_TRUE(session.engine().leave_acks_behind());
    EXPECT_TRUE(world.left_behind.empty());
}

TEST_F(Acknowledge, DropsWhatIsHeldForAQueuePairThatIsReset) {
    peer_posts(transport::SendOp::Read, kMoreThanATurn);
    peer_posts(transport::SendOp::Send, 8);
    poll();
    ASSERT_EQ(own.cq.size(), 0U);
    {
        Shard::Session session(*shard, Shard::Work::Receives);
        transport::QpAttributes reset;
        const transport::AttributeMask mask{static_cast<std::uint32_t>(Attribute::State)};
        EXPECT_TRUE(session.engine().modify_qp(session.now(), *own.qp, reset, mask));
    }
    poll();
    EXPECT_EQ(own.cq.size(), 0U);
}

}  // namespace
}  // namespace feroce::process
