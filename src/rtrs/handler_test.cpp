// Handlers that await, fail and throw: each request has one answer, and none disturbs another.
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "feroce/rtrs/server.hpp"
#include "feroce/rtrs/session.hpp"
#include "feroce/task_group.hpp"

namespace feroce::rtrs {
namespace {

using namespace std::chrono_literals;

constexpr std::byte kFail{1}, kThrow{2}, kThrowLater{3}, kLong{4};

class Handlers : public testing::Test {
protected:
    ServerOptions options() { return {.address = "127.0.0.1", .port = 0, .queue_depth = 16}; }
    Session open(const Server& server) {
        return loop.run(client.open("test", {{"127.0.0.1"}}, {.port = server.port()})).value();
    }
    HandlerTask serve(ServerRequest& request) {
        const std::byte kind = request.message().empty() ? std::byte{0} : request.message()[0];
        if (kind == kThrow) throw std::runtime_error("at once");
        if (auto slept = co_await loop.sleep(1ms); !slept) co_return slept.error();
        if (kind == kThrowLater) throw std::runtime_error("later");
        if (kind == kFail) co_return rdma::Error(ENOSPC, "full");
        if (kind == kLong) co_return rdma::Error(5000, "no errno");
        std::ranges::fill(request.data(), std::byte{7});
        co_return request.data().size() / 2;
    }
    Server awaiting() {
        return Server::open(loop, options(), [this](ServerRequest& r) { return serve(r); }).value();
    }
    static int code_of(const rdma::Result<>& result) { return result ? 0 : result.error().code; }

    rdma::RealRuntime runtime;
    rdma::Loop loop{runtime};
    Client client{loop};
};

TEST_F(Handlers, ATaskAnswersWithItsResult) {
    Server server = awaiting();
    const Session session = open(server);
    std::vector<std::byte> data(100, std::byte{1});
    ASSERT_TRUE(session.read({}, data).wait());
    EXPECT_EQ(std::ranges::count(data, std::byte{7}), 50);
    EXPECT_EQ(std::ranges::count(data, std::byte{0}), 50) << "what it did not fill is cleared";
    EXPECT_TRUE(session.write({}, data).wait());
    EXPECT_EQ(code_of(session.write({&kFail, 1}, data).wait()), ENOSPC);
    EXPECT_EQ(code_of(session.write({&kLong, 1}, data).wait()), EIO);
    EXPECT_EQ(session.statistics().permits_taken, 0);
}

TEST_F(Handlers, ATaskThatThrowsFailsItsOwnRequest) {
    int thrown = 0;
    loop.on_exception([&](std::exception_ptr) { ++thrown; });
    Server server = awaiting();
    const Session session = open(server);
    std::vector<std::byte> data(100);
    EXPECT_EQ(code_of(session.write({&kThrow, 1}, data).wait()), EIO);
    EXPECT_EQ(code_of(session.write({&kThrowLater, 1}, data).wait()), EIO);
    EXPECT_TRUE(session.write({}, data).wait());
    EXPECT_EQ(thrown, 2);
    EXPECT_EQ(session.statistics().paths[0].connects, 1u);
}

rdma::Task<void> write_one(Session session, ConstSegment message, int& code) {
    const auto done = co_await session.write(message, ConstSegment{});
    code = done ? 0 : done.error().code;
}

TEST_F(Handlers, ACallbackThatThrowsFailsItsOwnRequest) {
    int thrown = 0;
    loop.on_exception([&](std::exception_ptr) { ++thrown; });
    Server server = Server::open(loop, options(), [](ServerRequest& request) {
                        if (!request.message().empty()) throw std::runtime_error("no such key");
                        request.respond();
                    }).value();
    const Session session = open(server);
    // More than there are receives for them, many in one round.
    for (int round = 0; round < 20; ++round) {
        std::vector<int> codes(16, -1);
        rdma::TaskGroup group(loop);
        for (std::size_t i = 0; i < codes.size(); ++i)
            group.spawn(write_one(session, i % 2 == 0 ? ConstSegment(&kThrow, 1) : ConstSegment(),
                                  codes[i]));
        ASSERT_TRUE(loop.run(group.join()));
        for (std::size_t i = 0; i < codes.size(); ++i) EXPECT_EQ(codes[i], i % 2 == 0 ? EIO : 0);
    }
    EXPECT_EQ(thrown, 160);
    EXPECT_EQ(session.statistics().paths[0].connects, 1u);
}

}  // namespace
}  // namespace feroce::rtrs
