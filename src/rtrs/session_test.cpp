// Sessions on real sockets: server and client in one process, on loopback.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "feroce/rtrs/server.hpp"
#include "feroce/rtrs/session.hpp"

namespace feroce::rtrs {
namespace {

using namespace std::chrono_literals;

// A disk of 512-byte blocks; the message is the number of the first block.
class Disk {
public:
    explicit Disk(std::size_t bytes) : bytes_(bytes) {}

    void handle(ServerRequest& request) {
        std::uint32_t block = 0;
        if (request.message().size() != sizeof block) return request.respond(EINVAL);
        std::memcpy(&block, request.message().data(), sizeof block);
        const std::size_t at = std::size_t{block} * 512;
        if (at + request.data().size() > bytes_.size()) return request.respond(ENOSPC);
        if (request.direction() == Direction::Write)
            std::memcpy(bytes_.data() + at, request.data().data(), request.data().size());
        else
            std::memcpy(request.data().data(), bytes_.data() + at, request.data().size());
        request.respond();
    }

private:
    std::vector<std::byte> bytes_;
};

std::vector<std::byte> pattern(std::size_t size, unsigned seed) {
    std::vector<std::byte> out(size);
    for (std::size_t i = 0; i < size; ++i) out[i] = static_cast<std::byte>(i * 37 + seed);
    return out;
}

ConstSegment message_of(const std::uint32_t& block) {
    return std::as_bytes(std::span(&block, 1));
}

class Sessions : public testing::Test {
protected:
    Server serve(ServerOptions options = {}) {
        options.address = "127.0.0.1";
        options.port = 0;
        options.queue_depth = 16;
        return Server::open(loop, options, [this](ServerRequest& r) { disk.handle(r); }).value();
    }
    rdma::Result<Session> open(const Server& server, SessionOptions options = {}) {
        options.port = server.port();
        return loop.run(client.open("test", {{"127.0.0.1"}}, options));
    }
    void round_trip(const Session& session, std::size_t size) {
        const std::uint32_t block = 3;
        const auto data = pattern(size, static_cast<unsigned>(size));
        auto written = session.write(message_of(block), data).wait();
        ASSERT_TRUE(written) << written.error().why;
        std::vector<std::byte> back(size);
        auto read = session.read(message_of(block), back).wait();
        ASSERT_TRUE(read) << read.error().why;
        EXPECT_EQ(back, data);
    }

    rdma::RealRuntime runtime;
    rdma::Loop loop{runtime};
    Disk disk{1 << 20};
    Client client{loop};
};

TEST_F(Sessions, WriteAndReadBack) {
    Server server = serve();
    auto session = open(server);
    ASSERT_TRUE(session) << session.error().why;
    for (const std::size_t size : {1, 512, 4096, 100'000}) round_trip(*session, size);
}

}  // namespace
}  // namespace feroce::rtrs
