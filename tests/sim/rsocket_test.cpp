// Streams of rsockets on queue pairs of two simulated nodes, over a network that loses, repeats and
// reorders frames. Both sides send random numbers of bytes in random pieces, and read slowly or
// fast. Checked: every byte arrives once and in order, and the end after the last; no message comes
// without a credit, since the stream would fail; nothing stays behind. Packets name memory that
// mmap() gave, so what two runs of a seed share is how long they take and how many frames they
// need.
#include <gtest/gtest.h>
#include <rdma/rdma_cma.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <tuple>
#include <vector>

#include "base/random.hpp"
#include "rsocket/link.hpp"
#include "sim/abi_world.hpp"
#include "sim/cm_peer.hpp"
#include "sim/seeds.hpp"

namespace feroce::sim::rsocket_test {
namespace {

using namespace std::chrono_literals;
using rsockets::Greeting;
using rsockets::Link;

constexpr std::uint16_t kPort = 7471;
constexpr std::uint8_t kRetries = 7;

// What the two sides know of each other by other means than the network.
struct Side {
    unsigned salt = 0;
    std::size_t total = 0;  // Bytes that it sends.
    bool done = false;
};

std::byte byte_at(std::size_t position, unsigned salt) {
    return static_cast<std::byte>((position * 2654435761U + salt) >> 11);
}

rsockets::Options random_options(Prng& random) {
    rsockets::Options out;
    out.send_buffer = 8192 * (1 + random.below(8));
    out.receive_buffer = 8192 * (1 + random.below(8));
    out.send_queue = 16 + static_cast<std::uint32_t>(random.below(100));
    out.receive_queue = 16 + static_cast<std::uint32_t>(random.below(100));
    out.inline_bytes = static_cast<std::uint32_t>(random.below(65));
    return out;
}

// One end of the connection, as a program that polls.
class Program {
public:
    Program(Prng& random, rdma_cm_id* id, Side& own, const Side& peer)
        : random_(random),
          link_(Link::create(id, random_options(random)).value()),
          own_(own),
          peer_(peer),
          slow_(random.chance(0.3)),
          largest_(random.chance(0.3) ? 6 : 17) {}

    // The parameters of a request or an answer, which hold the greeting.
    rdma_conn_param parameters() {
        greeting_ = link_->stream().greeting().emit();
        rdma_conn_param out{};
        out.retry_count = kRetries;
        out.rnr_retry_count = kRetries;
        out.private_data = greeting_.data();
        out.private_data_len = greeting_.size();
        return out;
    }

    void meet(const rdma_cm_event& event) {
        const rdma_conn_param& told = event.param.conn;
        const auto greeting = Greeting::parse(
            {static_cast<const std::byte*>(told.private_data), told.private_data_len});
        ASSERT_TRUE(greeting.has_value());
        ASSERT_TRUE(link_->stream().meet(*greeting).has_value());
    }

    // Until all is sent and read, and the peer says the same.
    void run() {
        link_->stream().open(link_->outlet());
        while (!(own_.done && peer_.done) && link_->stream().error() == 0) {
            const bool moved = link_->progress();
            if (!write() && !read() && !moved) pause();
            own_.done = own_.done || is_over();
        }
        EXPECT_EQ(link_->stream().error(), 0);
        EXPECT_EQ(got_, peer_.total);
        EXPECT_EQ(sent_, own_.total);
    }

private:
    bool is_over() {
        return ended_ && !link_->stream().is_readable() && !link_->stream().has_data() &&
               link_->stream().is_quiet();
    }

    bool write() {
        if (ended_) return false;
        if (sent_ == own_.total) {
            ended_ = true;
            link_->stream().shut_writing(link_->outlet());
            return true;
        }
        if (!link_->stream().can_send()) return false;
        std::vector<std::byte> bytes(std::min(own_.total - sent_, random_piece()));
        for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = byte_at(sent_ + i, own_.salt);
        const ByteView place = bytes;
        const std::size_t count = link_->stream().send({&place, 1}, 0, link_->outlet());
        sent_ += count;
        return count != 0;
    }

    bool read() {
        if (slow_ && !random_.chance(0.05)) return false;
        std::vector<std::byte> to(random_piece());
        const std::size_t count = link_->stream().receive(to);
        for (std::size_t i = 0; i < count; ++i) {
            if (to[i] == byte_at(got_ + i, peer_.salt)) continue;
            ADD_FAILURE() << "byte " << got_ + i;
            break;
        }
        got_ += count;
        link_->stream().flush(link_->outlet());
        return count != 0;
    }

    std::size_t random_piece() { return std::size_t{1} << random_.below(largest_); }

    Prng& random_;
    std::unique_ptr<Link> link_;
    Side& own_;
    const Side& peer_;
    const bool slow_;
    const std::uint64_t largest_;
    Greeting::Bytes greeting_{};
    std::size_t sent_ = 0;
    std::size_t got_ = 0;
    bool ended_ = false;
};

void serve(std::uint64_t seed, Side& own, const Side& peer) {
    Prng random(seed);
    rdma_cm_id* listener = nullptr;
    ASSERT_EQ(rdma_create_id(nullptr, &listener, nullptr, RDMA_PS_TCP), 0);
    sockaddr_storage address = socket_address(here().address(), kPort);
    ASSERT_EQ(rdma_bind_addr(listener, reinterpret_cast<sockaddr*>(&address)), 0);
    ASSERT_EQ(rdma_listen(listener, 1), 0);
    rdma_cm_id* id = nullptr;
    ASSERT_EQ(rdma_get_request(listener, &id), 0);
    {
        Program program(random, id, own, peer);
        program.meet(*id->event);
        rdma_conn_param parameters = program.parameters();
        ASSERT_EQ(rdma_accept(id, &parameters), 0);
        program.run();
        EXPECT_EQ(rdma_disconnect(id), 0);
    }
    rdma_destroy_id(id);
    rdma_destroy_id(listener);
}

// The server may not listen yet, and no connection manager of its machine then answers.
void connect_and_run(std::uint64_t seed, const Gid& server, Side& own, const Side& peer) {
    Prng random(seed);
    rdma_cm_id* id = nullptr;
    sockaddr_storage address = socket_address(server, kPort);
    ASSERT_EQ(rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP), 0);
    ASSERT_EQ(rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&address), 1000), 0);
    ASSERT_EQ(rdma_resolve_route(id, 1000), 0);
    {
        Program program(random, id, own, peer);
        rdma_conn_param parameters = program.parameters();
        ASSERT_EQ(rdma_connect(id, &parameters), 0) << std::strerror(errno);
        program.meet(*id->event);
        program.run();
        EXPECT_EQ(rdma_disconnect(id), 0);
    }
    rdma_destroy_id(id);
}

using Outcome = std::tuple<Instant, std::uint64_t, std::uint64_t>;

Outcome run_once(std::uint64_t seed) {
    AbiWorld world(seed, {.shards = seed % 3 == 2 ? 2u : 1u, .ipv6 = seed % 2 == 1});
    const double worst = static_cast<double>(seed % 11) / 100;
    world.world().set_faults({.loss = worst / 2, .duplicate = worst / 2, .reorder = worst});
    Prng random(seed);
    const std::uint64_t most = random.chance(0.3) ? 3'000 : 60'000;
    Side server{1, random.below(most), false}, client{2, random.below(most), false};
    world.node(0).start("server", [&] { serve(3 * seed + 1, server, client); });
    world.node(1).start("client", [&] {
        sleep_for(1ms);
        connect_and_run(3 * seed + 2, world.node(0).address(), client, server);
    });
    EXPECT_EQ(world.run_all(600s), "");
    EXPECT_TRUE(server.done && client.done);
    world.run_for(120s);  // Timewait.
    for (std::size_t i = 0; i < world.size(); ++i) EXPECT_EQ(world.node(i).leaks(), "");
    return {world.now(), world.world().uplink(0).stats().frames,
            world.world().uplink(1).stats().frames};
}

TEST(RsocketSim, StreamsSurviveLossDuplicatesAndReordering) {
    for (const std::uint64_t seed : seeds(50)) {
        SCOPED_TRACE(seed);
        const Outcome first = run_once(seed);
        ASSERT_FALSE(testing::Test::HasFailure());
        ASSERT_EQ(first, run_once(seed));
    }
}

}  // namespace
}  // namespace feroce::sim::rsocket_test
