// Sessions on real sockets: server and client in one process, on loopback.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/sanitizers.hpp"
#include "feroce/bytes.hpp"
#include "feroce/rtrs/server.hpp"
#include "feroce/rtrs/session.hpp"
#include "feroce/task_group.hpp"
#include "rdma/test_until.hpp"

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
    EXPECT_EQ(session->queue_depth(), 16);
    for (const std::size_t size : {1, 512, 4096, 100'000}) round_trip(*session, size);
    const auto statistics = session->statistics();
    EXPECT_EQ(statistics.completed, 8u);
    EXPECT_EQ(statistics.paths[0].write_bytes, 104'609u);
    EXPECT_EQ(statistics.latency.count(), 8u);
    EXPECT_EQ(statistics.paths[0].requests.count(), 8u);
    EXPECT_EQ(statistics.permits_taken, 0);
}

TEST_F(Sessions, TextsAndValuesAreBytes) {
    std::map<std::string, std::string> values;
    ServerOptions options;
    options.address = "127.0.0.1";
    options.port = 0;
    Server server = Server::open(loop, options, [&](ServerRequest& request) {
                        std::string& value = values[std::string(rdma::text_of(request.message()))];
                        if (request.direction() == Direction::Write) {
                            value = rdma::text_of(request.data());
                            return request.respond();
                        }
                        const auto bytes = rdma::bytes_of(value);
                        std::copy(bytes.begin(), bytes.end(), request.data().begin());
                        request.respond_filled(value.size());
                    }).value();
    auto session = open(server);
    ASSERT_TRUE(session) << session.error().why;
    const std::string key = "text";
    EXPECT_TRUE(session->write(key, "Hello").wait());
    std::string back(100, '?');
    const auto read = session->read(key, back).wait();
    ASSERT_TRUE(read) << read.error().why;
    EXPECT_EQ(back.substr(0, *read), "Hello");
    const double number = 0.5;
    double same = 0;
    EXPECT_TRUE(session->write("number", number).wait());
    EXPECT_TRUE(session->read("number", same).wait());
    EXPECT_EQ(same, number);
    EXPECT_EQ(values["number"].size(), sizeof number);
    // A value as the message, bytes as data, and the other way round.
    const auto data = pattern(64, 1);
    EXPECT_TRUE(session->write(std::uint32_t{7}, data).wait());
    std::vector<std::byte> into(data.size());
    const std::uint32_t seven = 7;
    EXPECT_TRUE(session->read(message_of(seven), into).wait());
    EXPECT_EQ(into, data);
}

TEST_F(Sessions, KeysAreTakenBackForEveryRequest) {
    Server server = serve({.always_invalidate = true});
    auto session = open(server, {.connections = 3});
    ASSERT_TRUE(session) << session.error().why;
    // More than there are chunks: every key is used again and again.
    for (std::size_t i = 0; i < 50; ++i) round_trip(*session, 1000 + i);
}

TEST_F(Sessions, AsTheKernelSpeaks) {
    for (const bool always_invalidate : {false, true}) {
        Server server = serve({.always_invalidate = always_invalidate});
        auto session = open(server, {.connections = 2, .extension = false});
        ASSERT_TRUE(session) << session.error().why;
        for (const std::size_t size : {1, 4096, 100'000}) round_trip(*session, size);
    }
}

TEST_F(Sessions, ScatteredMemoryRegisteredOrNot) {
    Server server = serve();
    auto session = open(server);
    ASSERT_TRUE(session) << session.error().why;
    const std::uint32_t block = 0;
    const auto data = pattern(9000, 1);
    SessionBuffer buffer = session->allocate(9000).value();
    std::copy(data.begin(), data.end(), buffer.bytes().begin());
    for (const bool registered : {false, true}) {
        const ConstSegment whole = registered ? ConstSegment(buffer.bytes()) : ConstSegment(data);
        const ConstSegment from[] = {whole.first(10), whole.subspan(10, 0), whole.subspan(10, 4000),
                                     whole.subspan(4010)};
        ASSERT_TRUE(session->write(message_of(block), from).wait());
        SessionBuffer other = session->allocate(9000).value();
        std::vector<std::byte> plain(9000);
        const Segment into = registered ? other.bytes() : Segment(plain);
        const Segment parts[] = {into.first(5000), into.subspan(5000)};
        ASSERT_TRUE(session->read(message_of(block), parts).wait());
        EXPECT_TRUE(std::equal(data.begin(), data.end(), into.begin())) << registered;
    }
    // More pieces than one work request takes.
    std::vector<Segment> crumbs;
    for (std::size_t i = 0; i < 90; ++i) crumbs.push_back(buffer.bytes().subspan(i * 100, 100));
    std::fill(buffer.bytes().begin(), buffer.bytes().end(), std::byte{0});
    ASSERT_TRUE(session->read(message_of(block), crumbs).wait());
    EXPECT_TRUE(std::equal(data.begin(), data.end(), buffer.bytes().begin()));
}

TEST_F(Sessions, ErrorsOfTheServerComeBack) {
    Server server = serve();
    auto session = open(server);
    ASSERT_TRUE(session) << session.error().why;
    const std::uint32_t beyond = 1 << 20;
    std::vector<std::byte> data(512);
    EXPECT_EQ(session->read(message_of(beyond), data).wait().error().code, ENOSPC);
    EXPECT_EQ(session->write({}, data).wait().error().code, EINVAL);
    EXPECT_TRUE(session->read(message_of(0), std::span<const Segment>{}).wait()) << "no data";
    std::vector<std::byte> large(session->max_io_size() + 1);
    EXPECT_EQ(session->write(message_of(0), large).wait().error().code, EMSGSIZE);
    std::vector<std::byte> message(5000);
    EXPECT_EQ(session->write(message, data).wait().error().code, EMSGSIZE);
    round_trip(*session, 512);
}

rdma::Task<void> write_once(Session session, std::uint32_t block, int& done, int& refused) {
    const auto data = pattern(512, block);
    const auto written = co_await session.write(message_of(block), data);
    done += written ? 1 : 0;
    refused += !written && written.error().code == EIO ? 1 : 0;
}

// Of 32 requests at a time the handler throws for one before, and for one after it has answered.
TEST_F(Sessions, AHandlerThatThrowsFailsItsOwnRequest) {
    std::vector<std::string> thrown;
    loop.on_exception([&](std::exception_ptr exception) {
        try {
            std::rethrow_exception(std::move(exception));
        } catch (const std::exception& error) {
            thrown.emplace_back(error.what());
        }
    });
    ServerOptions options;
    options.address = "127.0.0.1";
    options.port = 0;
    Server server = Server::open(loop, options, [this](ServerRequest& request) {
                        const int block = std::to_integer<int>(request.message()[0]);
                        if (block == 3) throw std::runtime_error("before");
                        disk.handle(request);
                        if (block == 5) throw std::runtime_error("after");
                    }).value();
    auto session = open(server);
    ASSERT_TRUE(session) << session.error().why;
    int done = 0, refused = 0;
    rdma::TaskGroup group(loop);
    for (std::uint32_t i = 0; i < 32; ++i) group.spawn(write_once(*session, i, done, refused));
    ASSERT_TRUE(loop.run(group.join()));
    EXPECT_EQ(done, 31);
    EXPECT_EQ(refused, 1);
    std::sort(thrown.begin(), thrown.end());
    EXPECT_EQ(thrown, (std::vector<std::string>{"after", "before"}));
}

rdma::Task<void> write_many(Session session, std::uint32_t block, int times, int& done) {
    const auto data = pattern(3000, block);
    for (int i = 0; i < times; ++i)
        done += (co_await session.write(message_of(block), data)).has_value();
}

TEST_F(Sessions, MoreRequestsThanPermits) {
    Server server = serve();
    auto session = open(server, {.connections = 2});
    ASSERT_TRUE(session) << session.error().why;
    rdma::TaskGroup group(loop);
    int done = 0;
    for (std::uint32_t i = 0; i < 100; ++i) group.spawn(write_many(*session, 8 * i, 10, done));
    EXPECT_GT(session->statistics().permit_waiters, 0u);
    ASSERT_TRUE(loop.run(group.join()));
    EXPECT_EQ(done, 1000);
}

TEST_F(Sessions, ANameIsOneSession) {
    Server server = serve();
    auto first = open(server);
    ASSERT_TRUE(first) << first.error().why;
    auto second = open(server);
    ASSERT_TRUE(second) << second.error().why;
    EXPECT_EQ(server.statistics().sessions, 1u);
    EXPECT_EQ(server.statistics().paths, 1u);
    // Another client of the same name is refused.
    Client other(loop);
    auto third = loop.run(other.open("test", {{"127.0.0.1"}}, {.port = server.port()}));
    ASSERT_FALSE(third);
    EXPECT_NE(third.error().why.find("name"), std::string::npos) << third.error().why;
    round_trip(*second, 1000);
}

TEST_F(Sessions, PathsComeAndGo) {
    // On all addresses, of both families.
    Server server = Server::open(loop, {.port = 0, .queue_depth = 16}, [this](ServerRequest& r) {
                        disk.handle(r);
                    }).value();
    std::vector<std::pair<LinkEvent, std::size_t>> events;
    SessionOptions options{.port = server.port()};
    options.on_link = [&](LinkEvent event, std::size_t path) { events.emplace_back(event, path); };
    auto opened = loop.run(client.open("test", {{"127.0.0.1"}}, options));
    ASSERT_TRUE(opened) << opened.error().why;
    const Session session = *opened;
    EXPECT_EQ(session.add_path({"127.0.0.1"}).error().code, EEXIST);
    EXPECT_EQ(session.add_path({"no where"}).error().code, EINVAL);
    EXPECT_EQ(session.add_path({"::1"}).value(), 1u);
    const auto until = [&](auto condition) { return rdma::poll_until(loop, condition); };
    EXPECT_TRUE(until([&] { return server.statistics().paths == 2; }));
    ASSERT_TRUE(session.disconnect_path(0));
    EXPECT_TRUE(until([&] { return server.statistics().paths == 1; }));
    EXPECT_EQ(session.statistics().paths[0].state, PathState::Disconnected);
    round_trip(session, 1000);
    ASSERT_TRUE(session.reconnect_path(0));
    EXPECT_TRUE(until([&] { return server.statistics().paths == 2; }));
    ASSERT_TRUE(session.remove_path(1));
    EXPECT_TRUE(until([&] { return server.statistics().paths == 1; }));
    EXPECT_EQ(session.remove_path(1).error().code, ENOENT);
    EXPECT_EQ(session.statistics().paths.size(), 1u);
    round_trip(session, 1000);
    EXPECT_EQ(events.front(), std::pair(LinkEvent::PathUp, std::size_t{0}));
}

TEST_F(Sessions, TwoPathsOverTheSameAddressesAreRefused) {
    Server server = serve();
    auto session = open(server);
    ASSERT_TRUE(session) << session.error().why;
    ASSERT_TRUE(session->add_path({"127.0.0.1", "127.0.0.1"}));
    EXPECT_TRUE(rdma::poll_until(loop, [&] { return server.statistics().refused > 0; }));
    EXPECT_NE(server.statistics().last_refusal.find("between these two addresses"),
              std::string::npos);
    EXPECT_EQ(server.statistics().paths, 1u);
    round_trip(*session, 1000);
}

TEST_F(Sessions, AServerThatComesBackIsFound) {
    std::optional<Server> server = serve();
    const std::uint16_t port = server->port();
    auto session = open(*server);
    ASSERT_TRUE(session) << session.error().why;
    server.reset();
    int done = 0;
    rdma::TaskGroup group(loop);
    group.spawn(write_many(*session, 0, 3, done));
    for (int i = 0; i < 5; ++i) loop.poll_or_wait(loop.after(10ms));
    EXPECT_EQ(done, 0);
    server = Server::open(loop, {.address = "127.0.0.1", .port = port, .queue_depth = 16},
                          [this](ServerRequest& r) { disk.handle(r); })
                 .value();
    ASSERT_TRUE(loop.run(group.join()));
    EXPECT_EQ(done, 3);
    EXPECT_EQ(session->statistics().epochs_lost, 1u);
}

TEST_F(Sessions, WithoutPathRequestsFailInTime) {
    std::optional<Server> server = serve();
    auto session = open(*server, {.queue_if_no_path = 300ms});
    ASSERT_TRUE(session) << session.error().why;
    server.reset();
    std::vector<std::byte> data(512);
    EXPECT_EQ(session->write(message_of(0), data).wait().error().code, ETIMEDOUT);
    EXPECT_EQ(session->write(message_of(0), data).wait().error().code, ECONNABORTED) << "at once";
}

TEST_F(Sessions, NobodyServes) {
    auto session = loop.run(client.open("test", {{"127.0.0.1"}}, {.port = 9}));
    ASSERT_FALSE(session);
    EXPECT_EQ(session.error().code, ECONNREFUSED);
    EXPECT_EQ(loop.run(client.open("a/b", {{"127.0.0.1"}})).error().code, EINVAL);
    EXPECT_EQ(loop.run(client.open("test2", {})).error().code, EINVAL);
}

TEST_F(Sessions, MachinesMayHaveNames) {
    const auto handler = [this](ServerRequest& r) { disk.handle(r); };
    auto named =
        Server::open(loop, {.address = "localhost", .port = 0, .queue_depth = 16}, handler);
    ASSERT_TRUE(named) << named.error().why;
    auto session = loop.run(client.open("test", {{"localhost"}}, {.port = named->port()}));
    ASSERT_TRUE(session) << session.error().why;
    round_trip(*session, 100);

    // One of the name's addresses is enough.
    const Server one = serve();
    auto other = loop.run(client.open("other", {{"localhost"}}, {.port = one.port()}));
    ASSERT_TRUE(other) << other.error().why;
    auto nobody = loop.run(client.open("third", {{"no-such-machine.invalid"}}, {.port = 9}));
    ASSERT_FALSE(nobody);
    EXPECT_NE(nobody.error().why.find("no-such-machine.invalid"), std::string::npos);
    EXPECT_EQ(Server::open(loop, {.address = "no where"}, handler).error().code, EINVAL);
}

TEST_F(Sessions, LimitsOfTheServer) {
    Server server = serve({.max_sessions = 1});
    auto session = open(server);
    ASSERT_TRUE(session) << session.error().why;
    auto second = loop.run(client.open("second", {{"127.0.0.1"}}, {.port = server.port()}));
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code, ENOMEM) << second.error().why;
    EXPECT_EQ(Server::open(loop, {.chunk_size = 4096}, {}).error().code, EINVAL);
    EXPECT_EQ(Server::open(loop, {.queue_depth = 4096}, {}).error().code, EPROTO);
}

#if !defined(FEROCE_ASAN) && !defined(FEROCE_TSAN)  // Their operator new ends the program.
TEST_F(Sessions, MemoryThatIsNotThereIsAnError) {
    Server server = serve();
    auto session = open(server);
    ASSERT_TRUE(session) << session.error().why;
    const auto none = session->allocate(std::size_t{1} << 62);
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().code, ENOMEM) << none.error().why;
    round_trip(*session, 4096);
}
#endif

TEST_F(Sessions, AnAnswerMayComeLaterThanTheServersEnd) {
    ServerRequest* kept = nullptr;
    std::optional<Server> server =
        Server::open(loop, {.address = "127.0.0.1", .port = 0, .queue_depth = 4},
                     [&](ServerRequest& request) { kept = &request; })
            .value();
    auto session = open(*server, {.queue_if_no_path = 100ms});
    ASSERT_TRUE(session) << session.error().why;
    int done = 0;
    rdma::TaskGroup group(loop);
    group.spawn(write_many(*session, 0, 1, done));
    ASSERT_TRUE(rdma::poll_until(loop, [&] { return kept != nullptr; }));
    server.reset();
    EXPECT_EQ(kept->session_name(), "test");
    kept->respond();
    ASSERT_TRUE(loop.run(group.join()));
    EXPECT_EQ(done, 0);
}

}  // namespace
}  // namespace feroce::rtrs
