// Sessions allocate nothing per request: once warm, reads and writes through a session, from the
// caller to the server's handler and back, make not one call of operator new.
#include <gtest/gtest.h>

#include <vector>

#include "counting_new.hpp"
#include "feroce/rtrs/server.hpp"
#include "feroce/rtrs/session.hpp"

namespace feroce::bench {
namespace {

void transfer(const rtrs::Session& session, std::span<std::byte> memory, int count) {
    const rtrs::ConstSegment message = memory.first(32);
    for (int i = 0; i < count; ++i) {
        ASSERT_TRUE(session.write(message, memory).wait());
        ASSERT_TRUE(session.read(message, memory).wait());
    }
}

TEST(SessionAllocations, NoneOnTheDataPath) {
    for (const bool always_invalidate : {false, true}) {
        rdma::RealRuntime runtime;
        rdma::Loop loop(runtime);
        rtrs::ServerOptions options{.address = "127.0.0.1", .port = 0, .queue_depth = 8};
        options.always_invalidate = always_invalidate;
        rtrs::Server server =
            rtrs::Server::open(loop, options, [](rtrs::ServerRequest& r) { r.respond(); }).value();
        rtrs::Client client(loop);
        rtrs::Session session =
            loop.run(client.open("count", {{"127.0.0.1"}}, {.port = server.port()})).value();
        rtrs::SessionBuffer buffer = session.allocate(4096).value();
        std::vector<std::byte> plain(4096);
        const auto round = [&] {
            transfer(session, buffer.bytes(), 2000);
            transfer(session, plain, 2000);
        };
        EXPECT_EQ(allocations_once_warm(round), 0u) << always_invalidate;
    }
}

}  // namespace
}  // namespace feroce::bench
