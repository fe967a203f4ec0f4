// Handlers that await, fail and throw: each request has one answer, and none disturbs another.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <vector>

#include "feroce/rtrs/server.hpp"
#include "feroce/rtrs/session.hpp"
#include "feroce/task_group.hpp"
#include "rdma/test_until.hpp"

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

rdma::Task<void> write_one(Session session, ConstSegment message, int& code) {
    const auto done = co_await session.write(message, ConstSegment{});
    code = done ? 0 : done.error().code;
}

TEST_F(Handlers, ATaskAnswersWithItsResult) {
    Server server = awaiting();
    const Session session = open(server);
    std::vector<std::byte> data(100, std::byte{1});
    const auto read = session.read({}, data).wait();
    ASSERT_TRUE(read);
    EXPECT_EQ(*read, 50u) << "how much the handler filled";
    EXPECT_EQ(std::ranges::count(data, std::byte{7}), 50);
    EXPECT_EQ(std::ranges::count(data, std::byte{0}), 50) << "what it did not fill is cleared";
    EXPECT_TRUE(session.write({}, data).wait());
    const auto failed = session.write({&kFail, 1}, data).wait();
    EXPECT_EQ(code_of(failed), ENOSPC);
    EXPECT_NE(failed.error().why.find("full"), std::string::npos) << failed.error().why;
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

// Every way in which an answer travels: in one message with its data, apart, with a fresh key, and
// to a client that knows nothing of ours.
TEST_F(Handlers, LengthsAndTextsArriveInEveryForm) {
    for (const bool invalidate : {false, true}) {
        for (const bool extension : {false, true}) {
            ServerOptions shape = options();
            shape.always_invalidate = invalidate;
            Server server =
                Server::open(loop, shape, [this](ServerRequest& r) { return serve(r); }).value();
            const Session session =
                loop.run(client.open("test", {{"127.0.0.1"}},
                                     {.port = server.port(), .extension = extension}))
                    .value();
            const SessionBuffer direct = session.allocate(100).value();
            for (const Segment into : {direct.bytes().first(100), direct.bytes().first(0)}) {
                const auto read = session.read({}, into).wait();
                ASSERT_TRUE(read) << read.error().why;
                EXPECT_EQ(*read, extension ? into.size() / 2 : into.size());
            }
            for (int again = 0; again < 2; ++again) {
                const auto failed = session.read({&kFail, 1}, direct.bytes()).wait();
                ASSERT_EQ(code_of(failed), ENOSPC);
                EXPECT_EQ(failed.error().why.find("full") != std::string::npos, extension);
            }
            EXPECT_EQ(session.statistics().paths[0].connects, 1u);
        }
    }
}

TEST_F(Handlers, ADroppedResponderAnswersAtOnce) {
    Server server = Server::open(loop, options(), [](ServerRequest& request) {
                        const Responder forgotten = request.defer();
                    }).value();
    const Session session = open(server);
    const auto done = session.write({}, ConstSegment{}).wait();
    EXPECT_EQ(code_of(done), EIO);
    EXPECT_NE(done.error().why.find("dropped"), std::string::npos) << done.error().why;
    EXPECT_EQ(server.statistics().dropped, 1u);
    EXPECT_EQ(session.statistics().permits_taken, 0);
}

// The caller goes on, nobody else is disturbed, and a late answer harms nothing: neither the
// caller's memory nor a request that came after.
TEST_F(Handlers, ARequestThatIsKeptTooLongIsEnded) {
    std::optional<Responder> kept;
    ServerOptions limited = options();
    limited.answer_within = 20ms;
    Server server = Server::open(loop, limited, [&](ServerRequest& request) {
                        if (request.message().empty()) return request.respond();
                        kept = request.defer();
                    }).value();
    const Session session = open(server);
    const SessionBuffer buffer = session.allocate(64).value();
    const auto ended = session.read({&kFail, 1}, buffer.bytes()).wait();
    ASSERT_EQ(code_of(ended), ETIMEDOUT);
    EXPECT_NE(ended.error().why.find("did not answer"), std::string::npos) << ended.error().why;
    EXPECT_EQ(session.statistics().permits_taken, 1) << "the handler still has the chunk";
    EXPECT_EQ(server.statistics().overdue, 1u);
    EXPECT_TRUE(session.write({}, ConstSegment{}).wait());

    ASSERT_TRUE(kept);
    std::ranges::fill(kept->request().data(), std::byte{9});
    kept->respond();
    ASSERT_TRUE(rdma::poll_until(loop, [&] { return session.statistics().permits_taken == 0; }));
    EXPECT_EQ(std::ranges::count(buffer.bytes(), std::byte{9}), 0) << "written after the end";
    EXPECT_TRUE(session.write({}, ConstSegment{}).wait());
    EXPECT_EQ(session.statistics().paths[0].connects, 1u);
}

// Also one whose path failed before it could be told: its repetition learns of it.
TEST_F(Handlers, ARepetitionOfARequestThatIsKeptTooLongIsEndedToo) {
    std::optional<Responder> kept;
    ServerOptions limited = options();
    limited.answer_within = 100ms;
    Server server = Server::open(loop, limited, [&](ServerRequest& request) {
                        kept = request.defer();
                    }).value();
    const Session session = open(server);
    int code = -1;
    rdma::TaskGroup group(loop);
    group.spawn(write_one(session, ConstSegment(&kFail, 1), code));
    ASSERT_TRUE(rdma::poll_until(loop, [&] { return kept.has_value(); }));
    ASSERT_TRUE(session.disconnect_path(0));
    ASSERT_TRUE(rdma::poll_until(loop, [&] { return server.statistics().overdue > 0; }));
    ASSERT_TRUE(session.reconnect_path(0));
    ASSERT_TRUE(loop.run(group.join()));
    EXPECT_EQ(code, ETIMEDOUT);
    kept->respond();
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
