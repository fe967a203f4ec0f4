// The library on real sockets: both ends in one process, on loopback.
#include <gtest/gtest.h>

#include "rdma/test_programs.hpp"
#include "rdma/test_until.hpp"

namespace feroce::rdma {
namespace {

class Loopback : public testing::Test {
public:
    RealRuntime runtime;
    Loop loop{runtime};
    Listener listener = Listener::listen(loop, "127.0.0.1:0").value();
    Address server = listener.address();
};

TEST_F(Loopback, EveryOperation) {
    TaskGroup servers(loop);
    servers.spawn(test::serve(loop, listener, 1));
    loop.run(test::use(loop, server));
    EXPECT_TRUE(loop.run(servers.join()));
}

TEST_F(Loopback, RawPostsWithOneDoorbell) {
    TaskGroup servers(loop);
    servers.spawn(test::serve(loop, listener, 1));
    loop.run(test::use_raw(loop, server));
    EXPECT_TRUE(loop.run(servers.join()));
}

TEST_F(Loopback, DataTravelsBothWaysWhileConnecting) {
    TaskGroup servers(loop);
    servers.spawn([](Loop& on, Listener& at) -> Task<void> {
        ConnectionRequest request = (co_await at.next()).value();
        EXPECT_EQ(request.peer_data().as<std::uint32_t>(), 17u);
        Result<Connection> made =
            co_await std::move(request).accept(on, {}, PrivateData::of(std::uint32_t{18}));
        EXPECT_TRUE(co_await made->closed());
    }(loop, listener));
    Result<Connection> made =
        loop.run(Connection::connect(loop, server, {}, PrivateData::of(std::uint32_t{17})));
    ASSERT_TRUE(made) << made.error().why;
    EXPECT_EQ(made->peer_data().as<std::uint32_t>(), 18u);
    EXPECT_EQ(made->peer().text(), server.text());
    made->close();
    EXPECT_EQ(made->cause()->code, ECONNABORTED);
    EXPECT_TRUE(loop.run(servers.join()));
}

// An end with an inbox that was there before the connection.
struct Station {
    Connection connection;
    Inbox inbox;
};

Task<void> open_station(Loop& loop, Listener& at, std::optional<Station>& out) {
    Connection made = (co_await at.next()).value().prepare(loop).value();
    Inbox inbox = Inbox::create(made, 4, 256).value();
    (co_await made.accept()).value();
    out.emplace(Station{std::move(made), std::move(inbox)});
}

class Inboxes : public Loopback {
public:
    void SetUp() override {
        TaskGroup servers(loop);
        servers.spawn(open_station(loop, listener, far));
        near = loop.run(Connection::connect(loop, server)).value();
        ASSERT_TRUE(loop.run(servers.join()));
        here = near->allocate(256).value();
    }
    std::optional<Station> far;
    std::optional<Connection> near;
    std::optional<Buffer> here;
};

TEST_F(Inboxes, MessagesAreKeptInOrderAndReceivesComeBack) {
    for (std::uint32_t round = 0; round < 10; ++round) {
        for (std::uint32_t i = 0; i < 3; ++i) {
            const std::uint32_t number = round * 3 + i;
            std::memcpy(here->data(), &number, sizeof number);
            ASSERT_TRUE(near->send_imm(here->local(0, 4 + i), number).wait());
        }
        for (std::uint32_t i = 0; i < 3; ++i) {
            Result<Inbox::Arrival> got = far->inbox.next().wait();
            ASSERT_TRUE(got) << got.error().why;
            EXPECT_EQ(got->immediate(), round * 3 + i);
            EXPECT_EQ(got->bytes().size(), 4 + i);
            EXPECT_EQ(got->bytes()[0], static_cast<std::byte>(round * 3 + i));
        }
    }
}

TEST_F(Inboxes, GivingUpHarmsNothing) {
    Result<Inbox::Arrival> got = far->inbox.next().within(std::chrono::milliseconds(1)).wait();
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().code, ETIMEDOUT);
    ASSERT_TRUE(near->send(here->local()).wait());
    EXPECT_TRUE(far->inbox.next().wait());
}

TEST_F(Inboxes, EveryMessageIsTakenOnceByWhoWaitedLongest) {
    std::vector<int> order;
    TaskGroup readers(loop);
    for (int i = 0; i < 3; ++i)
        readers.spawn([](Inbox& from, int name, std::vector<int>& log) -> Task<void> {
            Result<Inbox::Arrival> got = co_await from.next();
            EXPECT_EQ(got.has_value(), name < 2);
            log.push_back(name);
        }(far->inbox, i, order));
    ASSERT_TRUE(near->send(here->local()).wait());
    ASSERT_TRUE(near->send(here->local()).wait());
    near->close();  // The third is told.
    EXPECT_TRUE(loop.run(readers.join()));
    EXPECT_EQ(order, (std::vector{0, 1, 2}));
    Result<Inbox::Arrival> got = far->inbox.next().wait();
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().code, ECONNRESET) << got.error().why;
}

TEST_F(Inboxes, AProgramThatHoldsAllMessagesIsTold) {
    std::vector<Inbox::Arrival> held;
    for (int i = 0; i < 4; ++i) {
        ASSERT_TRUE(near->send(here->local()).wait());
        held.push_back(far->inbox.next().wait().value());
    }
    Result<Inbox::Arrival> got = far->inbox.next().wait();
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().code, ENOBUFS);
    held.pop_back();
    ASSERT_TRUE(near->send(here->local()).wait());
    EXPECT_TRUE(far->inbox.next().wait());
}

TEST_F(Loopback, ARejectionBringsItsData) {
    TaskGroup servers(loop);
    servers.spawn([](Listener& at) -> Task<void> {
        (co_await at.next()).value().reject(PrivateData::of(std::uint32_t{99}));
    }(listener));
    Result<Connection> made = loop.run(Connection::connect(loop, server));
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().code, ECONNREFUSED);
    EXPECT_EQ(made.error().reject_reason, 28);
    ASSERT_GE(made.error().reject_data.size(), 4u);
    EXPECT_EQ(made.error().reject_data[0], std::byte{99});
}

// What the loop fetched for a listener that nobody asks is as bounded as what it did not.
TEST_F(Loopback, RequestsBeyondTheBacklogAreRefused) {
    Listener few = Listener::listen(loop, "127.0.0.1:0", 2).value();
    int refused = 0;
    TaskGroup clients(loop);
    const auto ask = [&](Address to) -> Task<void> {
        Result<Connection> made = co_await Connection::connect(loop, to);
        if (!made && made.error().code == ECONNREFUSED) ++refused;
    };
    clients.spawn([](Listener& at) -> Task<void> {
        for (int i = 0; i < 5; ++i) (co_await at.next()).value();
    }(listener));
    for (int i = 0; i < 5; ++i) {
        clients.spawn(ask(few.address()));
        // Refused behind it, so that the loop has fetched it and the device counts it no longer.
        EXPECT_FALSE(loop.run(Connection::connect(loop, server)));
    }
    ASSERT_TRUE(poll_until(loop, [&] { return refused == 3; })) << refused;
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(loop.run(few.next()));
    EXPECT_TRUE(loop.run(clients.join()));
    EXPECT_EQ(refused, 5) << "a request that is dropped is refused";
}

TEST_F(Loopback, NobodyListens) {
    const Address nobody = Address("127.0.0.1").with_port(1);
    Result<Connection> made = loop.run(Connection::connect(loop, nobody));
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().code, ECONNREFUSED);
    EXPECT_EQ(made.error().why,
              "no connection to 127.0.0.1:1: nobody listens there; is the server running, on that "
              "address and port?");
}

}  // namespace
}  // namespace feroce::rdma
