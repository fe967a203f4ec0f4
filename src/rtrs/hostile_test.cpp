// Clients that break the rules, made of raw connections: the server refuses or closes them, says
// why, and serves the others.
#include <endian.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <optional>

#include "feroce/rdma.hpp"
#include "feroce/rtrs/server.hpp"
#include "feroce/rtrs/session.hpp"
#include "rdma/test_until.hpp"
#include "rtrs/handshake.hpp"
#include "rtrs/immediate.hpp"
#include "rtrs/request_header.hpp"
#include "rtrs/runtime_random.hpp"

namespace feroce::rtrs {
namespace {

using namespace std::chrono_literals;

struct Counter : rdma::Operation {
    int completions = 0;
    ibv_wc last{};
    Counter() {
        complete = [](rdma::Operation& self, const ibv_wc& wc) {
            auto& counter = static_cast<Counter&>(self);
            ++counter.completions;
            counter.last = wc;
        };
    }
};

class Hostile : public testing::Test {
protected:
    Hostile() {
        auto opened = loop.run(client.open("friend", {{"127.0.0.1"}}, {.port = server.port()}));
        friendly = *std::move(opened);
        request.connection_count = 1;
        request.reconnects = 1;
        request.path = Uuid::random(random);
        request.session = Uuid::random(random);
        request.may_create = true;
        request.extension = kExtensionLevel;
    }
    ~Hostile() override {
        // Whatever happened, the other session works and has not noticed.
        std::vector<std::byte> data(100);
        EXPECT_TRUE(friendly->write({}, data).wait());
        EXPECT_EQ(friendly->statistics().paths[0].connects, 1u);
    }

    std::vector<std::byte> bytes_of(const ConnectRequest& of) {
        std::vector<std::byte> bytes(ConnectRequest::kSize);
        of.emit(std::span<std::byte, ConnectRequest::kSize>(bytes));
        return bytes;
    }
    // The errno with which the server refuses; 0 if it accepts.
    int refusal(std::span<const std::byte> private_data) {
        auto made = loop.run(
            rdma::Connection::connect(loop, address(), {}, rdma::PrivateData(private_data)));
        if (made) return 0;
        const auto answer = ConnectResponse::parse(made.error().reject_data);
        return answer ? answer->error : -1;
    }
    rdma::Address address() const { return rdma::Address("127.0.0.1").with_port(server.port()); }
    bool until(const std::function<bool()>& condition) { return rdma::poll_until(loop, condition); }
    // Connects and exchanges INFO; then it is up to the test.
    void connect() {
        const auto bytes = bytes_of(request);
        connection =
            loop.run(rdma::Connection::connect(loop, address(), {}, rdma::PrivateData(bytes)))
                .value();
        memory = connection->allocate(64 << 10).value();
        ASSERT_TRUE(connection->post_receive(memory->local(32 << 10, 16 << 10), received));
        for (auto& other : more)
            ASSERT_TRUE(connection->post_receive(memory->local(60000, 64), other));
    }
    void send_info(const std::string& name) {
        std::array<std::byte, InfoRequest::kSize> info;
        InfoRequest{name}.emit(info);
        send(info);
    }
    void send(std::span<const std::byte> message) {
        std::copy(message.begin(), message.end(), memory->data());
        EXPECT_TRUE(connection->post(
            rdma::Work::send(memory->local(0, static_cast<std::uint32_t>(message.size())))));
    }
    void introduce() {
        connect();
        send_info("hostile");
        ASSERT_TRUE(until([&] { return received.completions > 0; }));
        const auto info = InfoResponse::parse(
            std::span<const std::byte>(memory->bytes()).subspan(32 << 10, received.last.byte_len));
        ASSERT_TRUE(info);
        chunks = info->chunks(kGeometry).value();
    }
    // Writes a request's end so that its header is at `offset` of the chunk.
    void send_request(const RequestHeader& header, std::uint16_t chunk, std::uint32_t offset,
                      std::optional<std::uint32_t> immediate = {}) {
        header.emit(memory->bytes());
        const auto size = static_cast<std::uint32_t>(header.size());
        const rdma::RemoteRegion to{chunks[chunk].address + offset, size, chunks[chunk].key, 0};
        const std::uint32_t value =
            immediate.value_or(RequestPlace{chunk, offset}.immediate(kGeometry).raw());
        EXPECT_TRUE(connection->post(rdma::Work::write_imm(to, memory->local(0, size), value)));
    }
    // The server closes the path and says why.
    void expect_closed(const std::string& why) {
        EXPECT_TRUE(until([&] { return !connection->is_open(); }));
        EXPECT_EQ(server.statistics().last_refusal, why);
        EXPECT_EQ(server.statistics().requests, 0u);
    }

    static constexpr Geometry kGeometry{4, 12 << 10, 4 << 10};
    rdma::RealRuntime runtime;
    rdma::Loop loop{runtime};
    RuntimeRandom random{runtime};
    Server server =
        Server::open(loop,
                     {.address = "127.0.0.1", .port = 0, .queue_depth = 4, .chunk_size = 16 << 10},
                     [](ServerRequest& r) { r.respond(); })
            .value();
    Client client{loop};
    std::optional<Session> friendly;
    ConnectRequest request;
    std::optional<rdma::Buffer> memory;
    Counter received;
    std::array<Counter, 8> more;
    std::optional<rdma::Connection> connection;
    std::vector<RemoteChunk> chunks;
};

TEST_F(Hostile, ConnectRequestsThatMakeNoSense) {
    EXPECT_EQ(refusal({}), ECONNRESET);
    EXPECT_EQ(refusal(std::vector<std::byte>(56)), ECONNRESET);
    request.connection_count = 5000;
    EXPECT_EQ(refusal(bytes_of(request)), ECONNRESET);
    request.connection_count = 2;
    request.connection = 1;
    EXPECT_EQ(refusal(bytes_of(request)), ECONNRESET) << "not the service connection";
    request.connection = 0;
    request.may_create = false;
    EXPECT_EQ(refusal(bytes_of(request)), ENXIO);
    EXPECT_GE(server.statistics().refused, 5u);
}

TEST_F(Hostile, APathsFormerLife) {
    request.reconnects = 7;
    request.connection_count = 2;
    connect();
    EXPECT_EQ(refusal(bytes_of(request)), ECONNRESET) << "the same connection twice";
    request.reconnects = 6;
    EXPECT_EQ(refusal(bytes_of(request)), ECONNRESET);
    EXPECT_TRUE(connection->is_open());
    request.reconnects = 8;
    EXPECT_EQ(refusal(bytes_of(request)), 0);
    EXPECT_TRUE(until([&] { return !connection->is_open(); })) << "replaced";
}

TEST_F(Hostile, InfoBeforeAllConnections) {
    request.connection_count = 2;
    connect();
    send_info("hostile");
    expect_closed("INFO came before all connections of the path");
}

TEST_F(Hostile, InfoWithANameThatIsTaken) {
    connect();
    send_info("friend");
    expect_closed("the session name friend is in use here by a live client at 127.0.0.1");
    ASSERT_GT(received.completions, 0);
    const auto refusal = Refusal::parse(
        std::span<const std::byte>(memory->bytes()).subspan(32 << 10, received.last.byte_len));
    ASSERT_TRUE(refusal) << "and the client was told";
    EXPECT_EQ(refusal->error, EPERM);
    EXPECT_EQ(refusal->text, server.statistics().last_refusal);
}

// As after kill -9, where nobody is left to close anything.
TEST_F(Hostile, ANameIsTakenFromAClientThatIsSilent) {
    introduce();
    ibv_qp_attr reset{};
    reset.qp_state = IBV_QPS_RESET;
    ASSERT_EQ(ibv_modify_qp(connection->queue_pair(), &reset, IBV_QP_STATE), 0);
    auto next = loop.run(client.open("hostile", {{"127.0.0.1"}}, {.port = server.port()}));
    ASSERT_TRUE(next) << next.error().why;
    EXPECT_TRUE(next->write({}, ConstSegment{}).wait());
}

TEST_F(Hostile, GarbageInsteadOfInfo) {
    connect();
    send(std::vector<std::byte>(100, std::byte{0xff}));
    expect_closed("this is not an INFO request");
}

TEST_F(Hostile, ARequestBeforeInfo) {
    connect();
    ibv_send_wr wr{}, *bad = nullptr;
    wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    ASSERT_EQ(ibv_post_send(connection->queue_pair(), &wr, &bad), 0);
    expect_closed("a request came before the INFO exchange");
}

TEST_F(Hostile, AMessageThatIsLongerThanItsPlace) {
    introduce();
    RequestHeader header;
    header.message_size = 101;
    header.sequence = 1;
    send_request(header, 0, 100);
    expect_closed("a request's message is longer than what stands before its header");
}

TEST_F(Hostile, AReadOfMoreThanItsData) {
    introduce();
    RequestHeader header;
    header.direction = Direction::Read;
    header.sequence = 1;
    header.segment_count = 1;
    header.segments[0] = {0, 0, 101};
    send_request(header, 0, 100);
    expect_closed("a read asks for more than its data's size");
}

TEST_F(Hostile, AHeaderAtTheVeryEnd) {
    introduce();
    RequestHeader header;
    header.sequence = 1;
    send_request(header, 0, 100, RequestPlace{0, (16 << 10) - 2}.immediate(kGeometry).raw());
    expect_closed("a request's header does not fit into its chunk");
}

TEST_F(Hostile, ImmediatesThatMeanNothing) {
    introduce();
    send_request({}, 0, 0, 0xf0000000);
    expect_closed("an immediate means nothing");
}

TEST_F(Hostile, AResponseFromAClient) {
    introduce();
    send_request({}, 0, 0, Response{0, 0, false}.immediate().raw());
    expect_closed("a client sent a response");
}

TEST_F(Hostile, AFenceOfSomebodyElsesPath) {
    introduce();
    std::array<std::byte, Fence::kSize> bytes;
    Fence{Uuid::random(random), 1, true}.emit(bytes, MessageType::FenceRequest);
    send(bytes);
    EXPECT_TRUE(until([&] { return more[0].completions > 0; })) << "confirmed: there is no such";
    EXPECT_TRUE(connection->is_open());
    EXPECT_EQ(server.statistics().paths, 2u);
}

}  // namespace
}  // namespace feroce::rtrs
