// Deadlines of requests in flight: the path goes down only where the caller's memory could still be
// used; else nobody but the caller notices, and the permit comes back with the answer.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "feroce/rtrs/server.hpp"
#include "feroce/rtrs/session.hpp"
#include "feroce/task_group.hpp"
#include "rdma/test_until.hpp"

namespace feroce::rtrs {
namespace {

using namespace std::chrono_literals;

constexpr std::byte kSlow{1};

// Answers at once, but for requests whose message says otherwise: those wait for answer_all().
class Deadlines : public testing::Test {
protected:
    Deadlines() {
        session = loop.run(client.open("test", {{"127.0.0.1"}}, session_options())).value();
    }
    SessionOptions session_options() {
        SessionOptions options;
        options.port = server.port();
        options.on_link = [this](LinkEvent event, std::size_t) {
            downs += event == LinkEvent::PathDown;
        };
        return options;
    }
    void handle(ServerRequest& request) {
        if (!request.message().empty()) return kept.push_back(&request);
        if (request.direction() == Direction::Read) std::ranges::fill(request.data(), std::byte{7});
        request.respond();
    }
    void answer_all() {
        for (ServerRequest* request : kept) {
            if (request->direction() == Direction::Read)
                std::ranges::fill(request->data(), std::byte{9});
            request->respond();
        }
        kept.clear();
    }
    bool permits_come_back() {
        return rdma::poll_until(loop, [&] { return session->statistics().permits_taken == 0; });
    }

    rdma::RealRuntime runtime;
    rdma::Loop loop{runtime};
    std::vector<ServerRequest*> kept;
    Server server = Server::open(loop, {.address = "127.0.0.1", .port = 0, .queue_depth = 64},
                                 [this](ServerRequest& request) { handle(request); })
                        .value();
    Client client{loop};
    std::optional<Session> session;
    int downs = 0;
    const std::byte slow[1] = {kSlow};
};

TEST_F(Deadlines, OfTwentyRequestsTakeNoPathDown) {
    std::vector<std::byte> data(512);
    for (int i = 0; i < 20; ++i) {
        auto cut = i % 2 == 0 ? session->read(slow, data).within(5ms).wait()
                              : session->write(slow, data).within(5ms).wait();
        ASSERT_FALSE(cut);
        EXPECT_EQ(cut.error().code, ETIMEDOUT) << cut.error().why;
        ASSERT_TRUE(session->read({}, data).wait()) << "the others go on";
    }
    EXPECT_EQ(downs, 0);
    EXPECT_EQ(session->statistics().paths[0].connects, 1u);
    EXPECT_EQ(session->statistics().permits_taken, 20) << "the server still works on the chunks";
    std::ranges::fill(data, std::byte{0});
    answer_all();
    EXPECT_TRUE(permits_come_back());
    EXPECT_EQ(data, std::vector<std::byte>(512)) << "what came too late was not delivered";
    EXPECT_EQ(downs, 0);
    EXPECT_TRUE(session->write({}, data).wait());
}

TEST_F(Deadlines, OfAReadIntoRegisteredMemoryTakeThePathDown) {
    SessionBuffer buffer = session->allocate(512).value();
    auto cut = session->read(slow, buffer.bytes()).within(20ms).wait();
    ASSERT_FALSE(cut);
    EXPECT_EQ(cut.error().code, ETIMEDOUT) << cut.error().why;
    std::ranges::fill(buffer.bytes(), std::byte{0});
    ASSERT_TRUE(session->write({}, buffer.bytes()).wait());
    EXPECT_EQ(downs, 1);
    EXPECT_EQ(session->statistics().paths[0].connects, 2u);
    EXPECT_EQ(session->statistics().permits_taken, 1);
    answer_all();
    EXPECT_TRUE(permits_come_back());
    for (const std::byte byte : buffer.bytes()) ASSERT_EQ(byte, std::byte{0});
}

TEST_F(Deadlines, OfAWriteThatHasArrivedTakeNoPathDown) {
    SessionBuffer buffer = session->allocate(4096).value();
    std::ranges::fill(buffer.bytes(), std::byte{5});
    auto cut = session->write(slow, buffer.bytes()).within(100ms).wait();
    ASSERT_FALSE(cut);
    EXPECT_EQ(cut.error().code, ETIMEDOUT) << cut.error().why;
    ASSERT_EQ(kept.size(), 1u);
    std::ranges::fill(buffer.bytes(), std::byte{6});
    EXPECT_EQ(kept[0]->data().front(), std::byte{5});
    EXPECT_EQ(kept[0]->data().back(), std::byte{5});
    EXPECT_EQ(downs, 0);
    answer_all();
    EXPECT_TRUE(permits_come_back());
}

rdma::Task<void> read_into(Session session, ConstSegment message, std::vector<std::byte>& data) {
    (void)co_await session.read(message, data);
}

TEST_F(Deadlines, ATaskThatIsDestroyedLeavesItsRequestBehind) {
    std::vector<std::byte> data(512);
    {
        rdma::TaskGroup group(loop);
        for (int i = 0; i < 10; ++i) group.spawn(read_into(*session, slow, data));
        ASSERT_TRUE(rdma::poll_until(loop, [&] { return kept.size() == 10; }));
    }
    EXPECT_EQ(session->statistics().permits_taken, 10);
    answer_all();
    EXPECT_TRUE(permits_come_back());
    EXPECT_EQ(data, std::vector<std::byte>(512));
    EXPECT_EQ(downs, 0);
}

TEST_F(Deadlines, APathThatFailsLaterTakesWhatWasLeftOnIt) {
    std::vector<std::byte> data(512);
    ASSERT_FALSE(session->write(slow, data).within(20ms).wait());
    ASSERT_TRUE(session->disconnect_path(0));
    ASSERT_TRUE(rdma::poll_until(loop, [&] { return downs > 0; }));
    ASSERT_TRUE(session->reconnect_path(0));
    ASSERT_TRUE(session->write({}, data).wait());
    EXPECT_EQ(session->statistics().permits_taken, 1) << "the server still works on the chunk";
    answer_all();
    EXPECT_TRUE(permits_come_back()) << "after a fence with drain";
    EXPECT_EQ(session->statistics().fences, 1u);
}

}  // namespace
}  // namespace feroce::rtrs
