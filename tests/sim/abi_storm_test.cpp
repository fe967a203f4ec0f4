// Storms of rdma_cm connections between eight nodes that lose up to a fifth of all frames: connect,
// an echo, disconnect, each from either side and in every rude way programs have. Every connection
// ends established or with a stated reason, bytes arrive as sent, and when timewait is over nothing
// is left: no id, no queue pair, no timer.
#include <gtest/gtest.h>
#include <rdma/rdma_cma.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "sim/abi_world.hpp"
#include "sim/cm_peer.hpp"

namespace feroce::sim::abi_storm_test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kNodes = 8;
constexpr int kClientsANode = 3;
constexpr int kRounds = 3;
constexpr std::uint16_t kPort = 7000;
constexpr std::uint16_t kDeafPort = 7001;  // Nobody listens here.
// Longer than all retries of a request, 16 times 4.3 s, and of a queue pair.
constexpr Duration kPatience = 200s;

struct Storm {
    explicit Storm(std::uint64_t seed)
        : world(seed, {.nodes = kNodes, .shards = seed % 4 == 3 ? 2u : 1u, .ipv6 = seed % 3 == 2}),
          random(seed ^ 0x5707'4d00) {}

    AbiWorld world;
    Prng random;  // Of the programs; drawn in the order in which they run, which the seed gives.
    int clients = 0;
    bool over = false;
    std::map<std::string, int> ends;  // How connections ended, at either side.
};

// What one side has to say about the end of its connection.
std::string name_of(const std::optional<CmNews>& news) {
    if (!news) return "";
    return std::string(rdma_event_str(news->type)) + " " + std::to_string(news->status);
}

bool is_end(const CmNews& news) {
    return news.type != RDMA_CM_EVENT_ESTABLISHED && news.type != RDMA_CM_EVENT_TIMEWAIT_EXIT;
}

// Waits for a completion of that opcode, or for what comes instead: then says so.
std::string await(CmPeer& peer, ibv_wc_opcode opcode) {
    Machine& machine = here().machine();
    const Instant end = machine.now() + kPatience;
    while (machine.now() < end) {
        while (const std::optional<ibv_wc> wc = peer.completion_now()) {
            if (wc->status != IBV_WC_SUCCESS) return ibv_wc_status_str(wc->status);
            if (wc->opcode == opcode) return "";
        }
        if (const std::optional<CmNews> news = peer.event_now(); news && is_end(*news))
            return name_of(news);
        wait_for_news(end - machine.now());
    }
    return "silence";
}

// Ends an established connection politely and waits until the other side agrees.
std::string part(CmPeer& peer) {
    if (rdma_disconnect(peer.id()) != 0) return "rdma_disconnect failed";
    for (;;) {
        const std::optional<CmNews> news = peer.event(kPatience);
        if (!news) return "no DISCONNECTED";
        if (is_end(*news)) return name_of(news);
    }
}

std::uint8_t byte_of(std::uint32_t salt, std::size_t index) {
    return static_cast<std::uint8_t>(salt + index * 7);
}

std::string echo(Storm& storm, CmPeer& peer) {
    const auto length = static_cast<std::uint32_t>(1 + storm.random.below(CmPeer::kBytes));
    const auto salt = static_cast<std::uint32_t>(storm.random.next());
    for (std::size_t i = 0; i < length; ++i) peer.outgoing()[i] = byte_of(salt, i);
    peer.send(length);
    if (std::string bad = await(peer, IBV_WC_RECV); !bad.empty()) return bad;
    EXPECT_EQ(std::memcmp(peer.incoming(), peer.outgoing(), length), 0) << "another echo";
    return "";
}

std::string one_connection(Storm& storm) {
    const std::size_t to = storm.random.below(kNodes);  // Perhaps the node itself.
    const bool deaf = storm.random.chance(0.05);
    CmPeer peer;
    const std::uint16_t port = deaf ? kDeafPort : kPort;
    if (const auto bad = peer.connect(storm.world.node(to).address(), port, kPatience))
        return name_of(bad);
    if (storm.random.chance(0.05)) return "gave up at once";
    const std::optional<CmNews> news = peer.event(kPatience);
    if (!news) return "";
    if (news->type != RDMA_CM_EVENT_ESTABLISHED) return name_of(news);
    if (storm.random.chance(0.05)) return "left without a word";
    if (std::string bad = echo(storm, peer); !bad.empty()) {
        part(peer);
        return bad;
    }
    if (storm.random.chance(0.2)) {  // Let the other side begin.
        const std::optional<CmNews> end = peer.event(10s);
        if (end && is_end(*end)) return name_of(end);
    }
    return part(peer);
}

void client(Storm& storm) {
    for (int round = 0; round < kRounds; ++round) {
        sleep_for(Duration(static_cast<Duration::rep>(storm.random.below(2'000'000'000))));
        const std::string end = one_connection(storm);
        EXPECT_NE(end, "") << "a connection without an end";
        ++storm.ends[end];
    }
    --storm.clients;
}

std::string one_service(Storm& storm, rdma_cm_id* id) {
    CmPeer peer(id);
    if (!peer.make_qp() || peer.accept() != 0) return "could not accept";
    std::optional<CmNews> news = peer.event(kPatience);
    if (!news) return "";
    if (news->type != RDMA_CM_EVENT_ESTABLISHED) return name_of(news);
    if (std::string bad = await(peer, IBV_WC_RECV); !bad.empty()) {
        part(peer);
        return bad;
    }
    std::memcpy(peer.outgoing(), peer.incoming(), CmPeer::kBytes);
    peer.send(CmPeer::kBytes);
    if (std::string bad = await(peer, IBV_WC_SEND); !bad.empty()) {
        part(peer);
        return bad;
    }
    if (storm.random.chance(0.3)) return part(peer);
    news = peer.event(kPatience);
    return news ? name_of(news) : "silence";
}

// A listener, and a program for every request, as servers with a thread a connection are.
void server(Storm& storm) {
    rdma_cm_id* listener = nullptr;
    CmPeer channel_owner;  // Its channel does not block.
    rdma_event_channel* channel = channel_owner.id()->channel;
    ASSERT_EQ(rdma_create_id(channel, &listener, nullptr, RDMA_PS_TCP), 0);
    sockaddr_storage address = socket_address(here().address(), kPort);
    ASSERT_EQ(rdma_bind_addr(listener, reinterpret_cast<sockaddr*>(&address)), 0);
    ASSERT_EQ(rdma_listen(listener, 0), 0);
    while (!storm.over) {
        const std::optional<CmNews> news = next_event(channel);
        if (!news) {
            wait_for_news(1000s);
            continue;
        }
        if (news->type != RDMA_CM_EVENT_CONNECT_REQUEST) continue;
        if (storm.random.chance(0.1)) {
            rdma_reject(news->id, "no", 2);
            rdma_destroy_id(news->id);
            continue;
        }
        here().start("service", [&storm, id = news->id] {
            const std::string end = one_service(storm, id);
            EXPECT_NE(end, "") << "a service without an end";
            ++storm.ends["service: " + end];
        });
    }
    rdma_destroy_id(listener);
}

struct Outcome {
    std::uint64_t trace = 0;
    std::map<std::string, int> ends;
    bool operator==(const Outcome&) const = default;
};

Outcome run_once(std::uint64_t seed) {
    Storm storm(seed);
    AbiWorld& world = storm.world;
    const double loss = 0.2 * static_cast<double>(seed % 5) / 4;
    world.world().set_faults({.loss = loss, .duplicate = loss / 4, .reorder = loss / 2});
    for (std::size_t i = 0; i < kNodes; ++i) {
        world.node(i).start("server", [&] { server(storm); });
        for (int c = 0; c < kClientsANode; ++c, ++storm.clients)
            world.node(i).start("client", [&] { client(storm); });
    }
    EXPECT_TRUE(world.world().scheduler().run_until(world.now() + 4000s,
                                                    [&] { return storm.clients == 0; }))
        << storm.clients << " clients still run";
    storm.over = true;
    world.world().heal();
    for (std::size_t i = 0; i < kNodes; ++i) world.node(i).poke();
    EXPECT_EQ(world.run_all(1000s), "");
    world.run_for(300s);  // Timewait.
    for (std::size_t i = 0; i < kNodes; ++i) EXPECT_EQ(world.node(i).leaks(), "") << "node " << i;
    return {world.trace_hash(), storm.ends};
}

std::uint64_t seeds() {
    const char* wanted = std::getenv("FEROCE_STORMS");
    return wanted == nullptr ? 5 : std::strtoull(wanted, nullptr, 10);
}

TEST(AbiStorm, EveryConnectionEndsWithAReasonAndLeavesNothing) {
    std::map<std::string, int> ends;
    for (std::uint64_t seed = 0; seed < seeds(); ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        const Outcome first = run_once(seed);
        ASSERT_EQ(first, run_once(seed));
        if (HasFailure()) return;
        for (const auto& [end, count] : first.ends) ends[end] += count;
    }
    for (const auto& [end, count] : ends) std::printf("%6d %s\n", count, end.c_str());
    // Most make their way whatever is lost.
    const auto connections = static_cast<int>(seeds()) * kRounds * kClientsANode * int{kNodes};
    EXPECT_GT(ends["RDMA_CM_EVENT_DISCONNECTED 0"], connections / 2);
}

}  // namespace
}  // namespace feroce::sim::abi_storm_test
