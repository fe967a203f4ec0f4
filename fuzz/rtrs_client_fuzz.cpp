// A client's session under a server that says anything: the private data of its answers, INFO,
// messages, immediates and keys, and connections that it closes. Both are programs of simulated
// nodes over the whole soft device. The input is the server's program: one byte says what to do,
// the next ones are its operands. Every request must end once, and no memory but its own change.
#include <endian.h>

#include <array>
#include <memory>
#include <vector>

#include "base/assert.hpp"
#include "feroce/rdma.hpp"
#include "feroce/rtrs/session.hpp"
#include "program.hpp"
#include "rtrs/handshake.hpp"
#include "rtrs/immediate.hpp"
#include "sim/abi_world.hpp"
#include "sim/sim_runtime.hpp"

namespace {

using namespace feroce;
using namespace feroce::rtrs;
using namespace std::chrono_literals;

constexpr Geometry kGeometry{4, 4096, 1024};
constexpr std::uint16_t kPort = 1234;
constexpr std::uint32_t kReceives = 32, kReceiveSize = 512, kOutgoing = 4096;
constexpr std::size_t kMaxPeers = 16;

rdma::Operation ignored{[](rdma::Operation&, const ibv_wc&) {}};

// A connection of the client at the server.
struct Peer {
    std::optional<rdma::Buffer> memory;  // Chunks, what is sent, receives.
    std::optional<rdma::Connection> connection;
};

class HostileServer {
public:
    HostileServer(rdma::Loop& loop, fuzz::Program& program, bool extended, bool new_keys)
        : loop_(loop),
          program_(program),
          listener_(
              rdma::Listener::listen(loop, rdma::Address("0.0.0.0").with_port(kPort)).value()),
          tasks_(loop) {
        response_.geometry = kGeometry;
        response_.extension = extended ? kExtensionLevel : 0;
        response_.epoch = extended ? 1 : 0;
        response_.new_keys = new_keys;
        tasks_.spawn(accept_all());
    }

    rdma::Task<void> play(const bool& over) {
        while (!over && !program_.done()) {
            step();
            (void)co_await loop_.sleep(std::chrono::microseconds(200));
        }
        while (!over) (void)co_await loop_.sleep(10ms);
    }

private:
    rdma::Task<void> accept_all() {
        while (peers_.size() < kMaxPeers) {
            auto request = co_await listener_.next();
            if (!request) co_return;
            std::array<std::byte, ConnectResponse::kSize> bytes;
            response_.emit(bytes);
            mutate(bytes);
            const std::size_t cut = program_.number(1) % 4;
            const rdma::PrivateData answer{ByteView(bytes).first(bytes.size() - cut)};
            if (program_.number(1) % 8 == 7) {
                std::move(*request).reject(answer);
                continue;
            }
            auto made = std::move(*request).prepare(loop_, {.domain = nullptr, .recv_depth = 64});
            if (!made) continue;
            take(*std::move(made));
            tasks_.spawn(serve(*peers_.back(), answer));
        }
    }
    void take(rdma::Connection connection) {
        auto peer = std::make_unique<Peer>();
        const std::size_t bytes = kGeometry.total_size() + kOutgoing + kReceives * kReceiveSize;
        peer->memory = connection.allocate(bytes, rdma::Access::RemoteWrite).value();
        peer->connection = std::move(connection);
        for (std::uint32_t i = 0; i < kReceives; ++i)
            (void)peer->connection->post_receive(
                peer->memory->local(kGeometry.total_size() + kOutgoing + i * kReceiveSize,
                                    kReceiveSize),
                ignored);
        peers_.push_back(std::move(peer));
    }
    rdma::Task<void> serve(Peer& peer, rdma::PrivateData answer) {
        if (auto accepted = co_await peer.connection->accept(answer); !accepted) co_return;
        // INFO, before it is asked for if need be.
        InfoResponse info;
        const rdma::RemoteRegion all = peer.memory->remote();
        info.runs.push_back(
            {all.address, all.rkey, static_cast<std::uint32_t>(kGeometry.total_size())});
        std::vector<std::byte> bytes(info.size());
        info.emit(bytes);
        mutate(bytes);
        send(peer, bytes, std::nullopt);
    }
    void mutate(std::span<std::byte> bytes) {
        for (std::uint32_t left = program_.number(1) % 8; left > 4; --left)
            bytes[program_.number(1) % bytes.size()] = static_cast<std::byte>(program_.number(1));
    }
    void step() {
        if (peers_.empty()) return;
        Peer& peer = *peers_[program_.number(1) % peers_.size()];
        switch (program_.number(1) % 6) {
            case 0:
                return send_immediate(peer, program_.number(4));
            case 1: {
                const Response response{static_cast<std::uint16_t>(program_.number(1) % 5),
                                        static_cast<int>(program_.number(1)), false};
                return send_immediate(peer, response.immediate().raw());
            }
            case 2:
                return send(peer, program_.bytes(program_.number(1)), std::nullopt);
            case 3: {
                std::array<std::byte, KeyResponse::kSize> key;
                const auto chunk = static_cast<std::uint16_t>(program_.number(1) % 5);
                KeyResponse{chunk, program_.number(4)}.emit(key);
                mutate(key);
                return send(peer, key, Response{chunk, 0, false}.immediate().raw());
            }
            case 4: {
                std::array<std::byte, Fence::kSize> fence;
                Fence{{}, static_cast<std::uint16_t>(program_.number(1)), false}.emit(
                    fence, MessageType::FenceResponse);
                mutate(fence);
                return send(peer, fence, std::nullopt);
            }
            default:
                peer.connection->close();
        }
    }
    void send_immediate(Peer& peer, std::uint32_t value) {
        ibv_send_wr wr{};
        wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
        wr.imm_data = htobe32(value);
        post(peer, wr);
    }
    void send(Peer& peer, ByteView bytes, std::optional<std::uint32_t> immediate) {
        const std::size_t at = kGeometry.total_size() + sent_++ % 8 * (kOutgoing / 8);
        std::copy(bytes.begin(), bytes.end(),
                  peer.memory->bytes().begin() + static_cast<std::ptrdiff_t>(at));
        const rdma::LocalRegion from =
            peer.memory->local(at, static_cast<std::uint32_t>(bytes.size()));
        ibv_sge sge = from.raw();
        ibv_send_wr wr{};
        wr.opcode = immediate ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
        wr.imm_data = htobe32(immediate.value_or(0));
        wr.sg_list = &sge;
        wr.num_sge = 1;
        post(peer, wr);
    }
    static void post(Peer& peer, ibv_send_wr& wr) {
        ibv_send_wr* bad = nullptr;
        wr.wr_id = rdma::to_wr_id(&ignored);
        // A connection that is closed refuses, which is as good.
        (void)ibv_post_send(peer.connection->queue_pair(), &wr, &bad);
    }

    rdma::Loop& loop_;
    fuzz::Program& program_;
    ConnectResponse response_;
    std::size_t sent_ = 0;
    std::vector<std::unique_ptr<Peer>> peers_;
    rdma::Listener listener_;
    rdma::TaskGroup tasks_;  // Ends first: its tasks use the rest.
};

constexpr std::size_t kData = 600, kGuard = 64;
constexpr std::byte kUntouched{0x5a};

// A request with memory around it that nobody may change.
rdma::Task<void> request(Session session, bool read, int& ended) {
    std::vector<std::byte> memory(kData + 2 * kGuard, kUntouched);
    const std::span<std::byte> data = std::span(memory).subspan(kGuard, kData);
    const std::array<std::byte, 8> message{};
    if (read)
        (void)co_await session.read(message, data).within(300ms);
    else
        (void)co_await session.write(message, data).within(300ms);
    ++ended;
    for (std::size_t i = 0; i < kGuard; ++i)
        ASSERT(memory[i] == kUntouched && memory[kGuard + kData + i] == kUntouched);
}

void use_session(rdma::Loop& loop, const std::string& server, bool extended) {
    Client client(loop);
    SessionOptions options;
    options.port = kPort;
    options.connect_timeout = 50ms;
    options.heartbeat = HeartbeatOptions{20ms, 1};
    options.reconnect = {1ms, 5ms, 3};
    options.queue_if_no_path = 100ms;
    options.extension = extended;
    auto session = loop.run(client.open("fuzzed", {{server}}, options));
    if (!session) return;
    int ended = 0;
    constexpr int kRequests = 6;  // More than there are chunks.
    rdma::TaskGroup requests(loop);
    for (int i = 0; i < kRequests; ++i) requests.spawn(request(*session, i % 2 == 0, ended));
    ASSERT(loop.run(requests.join()));
    ASSERT(ended == kRequests);
    ASSERT(session->statistics().permits_taken <= kGeometry.queue_depth);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
    const ByteView data(reinterpret_cast<const std::byte*>(bytes), size);
    if (data.empty()) return 0;
    const auto flags = std::to_integer<unsigned>(data[0]);
    fuzz::Program program(data.subspan(1));
    bool over = false;
    sim::AbiWorld world(1, {.nodes = 2});
    world.node(0).start("server", [&] {
        sim::SimRuntime runtime(1);
        rdma::Loop loop(runtime);
        HostileServer server(loop, program, (flags & 1) != 0, (flags & 2) != 0);
        loop.run(server.play(over));
    });
    world.node(1).start("client", [&] {
        sim::SimRuntime runtime(2);
        rdma::Loop loop(runtime);
        use_session(loop, to_string(world.node(0).address()), (flags & 4) != 0);
        over = true;
    });
    ASSERT(world.run_all(60s).empty());
    return 0;
}
