// What a client gets by the level that it announces, seen by a raw connection: the kernel's client
// (0) and one of our first level (1) get the messages they always got, and no other.
#include <endian.h>
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <functional>
#include <optional>
#include <vector>

#include "feroce/rdma.hpp"
#include "feroce/rtrs/server.hpp"
#include "rdma/test_until.hpp"
#include "rtrs/handshake.hpp"
#include "rtrs/immediate.hpp"
#include "rtrs/request_header.hpp"
#include "rtrs/runtime_random.hpp"

namespace feroce::rtrs {
namespace {

using namespace std::chrono_literals;

constexpr Geometry kGeometry{4, 12 << 10, 4 << 10};
constexpr std::uint32_t kReadSize = 100;
// Places in the client's memory.
constexpr std::uint32_t kDataAt = 1024, kInfoAt = 2048, kReceivesAt = 4096, kReceiveSize = 256;
constexpr char kText[] = "the disk is full";

struct Received : rdma::Operation {
    std::optional<ibv_wc> wc;
    Received() {
        complete = [](rdma::Operation& self, const ibv_wc& done) {
            static_cast<Received&>(self).wc = done;
        };
    }
};

class Dialects : public testing::TestWithParam<std::uint8_t> {
protected:
    Dialects() {
        ServerOptions options{.address = "127.0.0.1", .port = 0, .queue_depth = 4};
        options.chunk_size = 16 << 10;
        options.heartbeat = HeartbeatOptions{.interval = 60s};
        options.answer_within = 20ms;
        server = Server::open(loop, options, [this](ServerRequest& r) { handle(r); }).value();
    }
    // A read is filled to its half, a write fails with a text; `keep`: the answer comes later.
    void handle(ServerRequest& request) {
        if (keep) {
            kept = request.defer();
        } else if (request.direction() == Direction::Read) {
            request.respond_filled(kReadSize / 2);
        } else {
            request.respond(rdma::Error(ENOSPC, kText));
        }
    }
    static std::uint8_t level() { return GetParam(); }

    void introduce() {
        RuntimeRandom random{runtime};
        ConnectRequest request;
        request.connection_count = 1;
        request.reconnects = 1;
        request.path = Uuid::random(random);
        request.session = Uuid::random(random);
        request.may_create = true;
        request.extension = level();
        std::array<std::byte, ConnectRequest::kSize> bytes;
        request.emit(bytes);
        const auto to = rdma::Address("127.0.0.1").with_port(server->port());
        connection =
            loop.run(rdma::Connection::connect(loop, to, {}, rdma::PrivateData(bytes))).value();
        memory = connection->allocate(64 << 10, rdma::Access::RemoteWrite).value();
        ASSERT_TRUE(connection->post_receive(memory->local(kInfoAt, 1024), info));
        for (std::uint32_t i = 0; i < answers.size(); ++i)
            ASSERT_TRUE(connection->post_receive(
                memory->local(kReceivesAt + i * kReceiveSize, kReceiveSize), answers[i]));
        InfoRequest{"dialect"}.emit(memory->bytes().first<InfoRequest::kSize>());
        ASSERT_TRUE(connection->post(rdma::Work::send(memory->local(0, InfoRequest::kSize))));
        const ibv_wc wc = wait_for(info);
        chunks = InfoResponse::parse(view(kInfoAt, wc.byte_len)).value().chunks(kGeometry).value();
    }
    ByteView view(std::uint32_t offset, std::uint32_t size) const {
        return ByteView(memory->bytes()).subspan(offset, size);
    }
    ibv_wc wait_for(const Received& what) {
        EXPECT_TRUE(rdma::poll_until(loop, [&] { return what.wc.has_value(); }));
        return what.wc.value_or(ibv_wc{});
    }
    void send_request(Direction direction, std::uint16_t chunk) {
        RequestHeader header;
        header.direction = direction;
        header.sequence = level() == 0 ? kNoSequence : chunk + 1u;
        if (direction == Direction::Read) {
            header.segment_count = 1;
            const auto to = memory->remote().subregion(kDataAt, kReadSize);
            header.segments[0] = {to.address, to.rkey, kReadSize};
        }
        header.emit(memory->bytes());
        const auto size = static_cast<std::uint32_t>(header.size());
        const rdma::RemoteRegion to{chunks[chunk].address + kReadSize, size, chunks[chunk].key, 0};
        const auto immediate = RequestPlace{chunk, kReadSize}.immediate(kGeometry).raw();
        EXPECT_TRUE(connection->post(rdma::Work::write_imm(to, memory->local(0, size), immediate)));
    }
    // As the kernel's server and our first level answer: the immediate says all there is to say.
    static void expect_plain(const ibv_wc& wc, const Response& response, std::uint32_t data) {
        EXPECT_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
        EXPECT_EQ(be32toh(wc.imm_data), response.immediate().raw());
        EXPECT_EQ(wc.byte_len, data);
    }
    static void expect_note(const ibv_wc& wc, const Response& response, std::uint32_t size) {
        EXPECT_EQ(wc.opcode, IBV_WC_RECV);
        EXPECT_NE(wc.wc_flags & IBV_WC_WITH_IMM, 0u);
        EXPECT_EQ(be32toh(wc.imm_data), response.immediate().raw());
        EXPECT_EQ(wc.byte_len, size);
    }

    rdma::RealRuntime runtime;
    rdma::Loop loop{runtime};
    bool keep = false;
    std::optional<Responder> kept;
    std::optional<Server> server;
    std::optional<rdma::Buffer> memory;
    Received info;
    std::array<Received, 4> answers;
    std::optional<rdma::Connection> connection;
    std::vector<RemoteChunk> chunks;
};

TEST_P(Dialects, TheServerAnnouncesNoMoreThanItsClient) {
    introduce();
    const auto bytes = connection->peer_data().bytes();
    const auto announced = ConnectResponse::parse(bytes);
    ASSERT_TRUE(announced);
    EXPECT_EQ(announced->extension, level());
    for (std::size_t i = 20; level() == 0 && i < ConnectResponse::kSize; ++i)
        EXPECT_EQ(bytes[i], std::byte{0}) << i;
}

TEST_P(Dialects, AnswersHaveNotesOnlyForThoseThatKnowThem) {
    introduce();
    send_request(Direction::Write, 0);
    const ibv_wc failed = wait_for(answers[0]);
    send_request(Direction::Read, 1);
    const ibv_wc read = wait_for(answers[1]);
    if (level() < kNoteLevel) {
        expect_plain(failed, {0, ENOSPC, false}, 0);
        // Between peers of ours the last of the data is the answer too.
        expect_plain(read, {1, 0, false}, level() == 0 ? 0 : kReadSize);
    } else {
        expect_note(failed, {0, ENOSPC, false}, sizeof kText - 1);
        EXPECT_EQ(note_text(view(kReceivesAt, failed.byte_len)), kText);
        expect_note(read, {1, 0, false}, 4);
    }
}

TEST_P(Dialects, OnlyThoseThatKnowItAreToldThatARequestIsOverdue) {
    introduce();
    keep = true;
    send_request(Direction::Write, 2);
    ASSERT_TRUE(rdma::poll_until(loop, [&] { return server->statistics().overdue == 1; }));
    kept->respond();
    const ibv_wc first = wait_for(answers[0]);
    if (level() < kNoteLevel) return expect_plain(first, {2, 0, false}, 0);
    EXPECT_EQ(first.opcode, IBV_WC_RECV);
    EXPECT_EQ(Overdue::parse(view(kReceivesAt, first.byte_len)).value(), (Overdue{2, 3}));
    expect_plain(wait_for(answers[1]), {2, ETIMEDOUT, false}, 0);
}

INSTANTIATE_TEST_SUITE_P(Levels, Dialects, testing::Values(0, 1, 2));

}  // namespace
}  // namespace feroce::rtrs
