// The library on real sockets: both ends in one process, on loopback.
#include <gtest/gtest.h>

#include "rdma/test_programs.hpp"

namespace feroce::rdma {
namespace {

class Loopback : public testing::Test {
protected:
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
        Request request = (co_await at.next()).value();
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
