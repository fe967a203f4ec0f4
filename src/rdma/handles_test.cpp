// Handles beyond the plain connection: devices, shared completion queues, windows, loops of other
// threads.
#include <gtest/gtest.h>

#include <future>
#include <optional>
#include <thread>

#include "rdma/test_programs.hpp"

namespace feroce::rdma {
namespace {

TEST(Devices, AreFoundByAddress) {
    Result<Device> device = Device::open("127.0.0.1");
    ASSERT_TRUE(device) << device.error().why;
    EXPECT_TRUE(std::string_view(device->name()).starts_with("feroce_")) << device->name();
    EXPECT_FALSE(Device::open("0.0.0.0"));
    Result<Device> elsewhere = Device::open("192.0.2.1");
    ASSERT_FALSE(elsewhere);
    EXPECT_NE(elsewhere.error().why.find("no device of this machine has the address 192.0.2.1"),
              std::string::npos)
        << elsewhere.error().why;
    EXPECT_EQ(Device::open("somewhere").error().code, EINVAL);
}

// Also where loopback is no device of the list, and connections to it use another.
TEST(Devices, OfALoopbackAddressIsTheOneThatConnectionsUse) {
    Loop loop;
    for (const Address address : {"127.0.0.1", "::1"}) {
        Result<Device> device = Device::open(address);
        ASSERT_TRUE(device) << device.error().why;
        Listener listener = Listener::listen(loop, address.with_port(0)).value();
        const auto way = loop.run(Connection::resolve(loop, listener.address()));
        ASSERT_TRUE(way) << way.error().why;
        EXPECT_STREQ(ibv_get_device_name(way->raw()->verbs->device), device->name());
    }
}

// A message that came, and its receiver.
struct Arrived : Operation {
    Arrived() {
        complete = [](Operation& self, const ibv_wc& wc) {
            auto& arrived = static_cast<Arrived&>(self);
            arrived.status = wc.status;
            arrived.through = wc.qp_num;
        };
    }
    std::optional<ibv_wc_status> status;
    std::uint32_t through = 0;
};

struct SharedServer {
    Loop& loop;
    Listener& listener;
    ConnectionOptions options;
    std::vector<Connection> connections = {};

    Task<void> accept(std::size_t count) {
        while (connections.size() < count) {
            ConnectionRequest request = (co_await listener.next()).value();
            connections.push_back((co_await std::move(request).accept(loop, options)).value());
        }
    }
};

TEST(SharedQueues, OneQueueOfReceivesServesManyConnections) {
    Loop loop;
    Device device = Device::open("127.0.0.1").value();
    ProtectionDomain domain = ProtectionDomain::create(device.raw()).value();
    SharedReceives shared = SharedReceives::create(domain.raw(), 4).value();
    std::vector<ibv_async_event> events;
    AsyncEvents watched = AsyncEvents::watch(loop, device.raw(), [&](const ibv_async_event& event) {
                              events.push_back(event);
                          }).value();
    Listener listener = Listener::listen(loop, "127.0.0.1:0").value();
    Buffer memory =
        Buffer::create(domain.raw(), loop.runtime().memory(), 4096, Access::Local).value();
    std::array<Arrived, 4> arrived;
    for (std::uint32_t i = 0; i < 4; ++i)
        ASSERT_TRUE(shared.post(memory.local(i * 64, 64), arrived[i]));
    Arrived fifth;
    EXPECT_EQ(shared.post(memory.local(0, 64), fifth).error().code, ENOMEM);
    ASSERT_TRUE(shared.warn_below(3));

    SharedServer server{loop, listener, {.domain = domain.raw(), .shared_receives = &shared}};
    TaskGroup serving(loop);
    serving.spawn(server.accept(2));
    std::vector<Connection> clients;
    for (int i = 0; i < 2; ++i)
        clients.push_back(loop.run(Connection::connect(loop, listener.address())).value());
    ASSERT_TRUE(loop.run(serving.join()));
    EXPECT_EQ(server.connections[0].post_receive(memory.local(), fifth).error().code, EINVAL);

    Buffer note = clients[0].allocate(64).value();
    for (std::size_t i = 0; i < 2; ++i) ASSERT_TRUE(clients[i].send(note.local()).wait());
    const Instant end = loop.after(std::chrono::seconds(10));
    while ((!arrived[1].status || events.empty()) && loop.now() < end) loop.poll_or_wait(end);
    for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(arrived[i].status, IBV_WC_SUCCESS);
        EXPECT_EQ(arrived[i].through, server.connections[i].queue_pair()->qp_num);
    }
    ASSERT_FALSE(events.empty()) << "two of four are left, which is below three";
    EXPECT_EQ(events[0].event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
    EXPECT_EQ(events[0].element.srq, shared.raw());
    EXPECT_FALSE(arrived[2].status) << "nobody's yet";
}

// Two ends on one loop that share a domain and a completion queue.
class Handles : public testing::Test {
public:
    void SetUp() override {
        options.domain = domain.raw();
        options.completions = &completions;
        options.send_depth = options.recv_depth = 8;
        TaskGroup servers(loop);
        servers.spawn([](Handles& test) -> Task<void> {
            ConnectionRequest request = (co_await test.listener.next()).value();
            test.far = (co_await std::move(request).accept(test.loop, test.options)).value();
        }(*this));
        near = loop.run(Connection::connect(loop, listener.address(), options)).value();
        ASSERT_TRUE(loop.run(servers.join()));
        here = near->allocate(4096).value();
        there = far->allocate(4096, Access::Remote | Access::WindowBind).value();
    }

    Loop loop;
    Device device = Device::open("127.0.0.1").value();
    ProtectionDomain domain = ProtectionDomain::create(device.raw()).value();
    // Room for two connections of depth 8, with one entry more each way.
    CompletionQueue completions = CompletionQueue::create(loop, device.raw(), 36).value();
    ConnectionOptions options;
    Listener listener = Listener::listen(loop, "127.0.0.1:0").value();
    std::optional<Connection> near, far;
    std::optional<Buffer> here, there;
};

TEST_F(Handles, ASharedQueueCountsItsRoom) {
    EXPECT_TRUE(near->read(here->local(), there->remote()).wait());
    Result<Connection> third = loop.run(Connection::resolve(loop, listener.address(), options));
    ASSERT_FALSE(third);
    EXPECT_EQ(third.error().code, ENOSPC);
    near.reset();
    third = loop.run(Connection::resolve(loop, listener.address(), options));
    EXPECT_TRUE(third) << third.error().why;
}

TEST(CommonQueues, ServeTheConnectionsOfALoopWhileThereIsRoom) {
    Loop loop;
    Listener listener = Listener::listen(loop, "127.0.0.1:0").value();
    ConnectionOptions options;
    options.common_completions = true;
    const auto resolve = [&] {
        return loop.run(Connection::resolve(loop, listener.address(), options)).value();
    };
    const Connection first = resolve(), second = resolve();
    EXPECT_EQ(first.queue_pair()->send_cq, second.queue_pair()->send_cq);
    options.send_depth = options.recv_depth = 8100;
    const Connection large = resolve();
    EXPECT_NE(large.queue_pair()->send_cq, first.queue_pair()->send_cq) << "one of its own";
}

TEST_F(Handles, EventsThatNobodyWaitedForDoNotPileUp) {
    PolledQueue& queue = completions.queue();
    for (int i = 0; i < 100; ++i) {
        queue.arm();
        EXPECT_TRUE(near->read(here->local(), there->remote()).wait());
    }
    int events = 0;
    ibv_cq* cq = nullptr;
    for (void* context; ::ibv_get_cq_event(completions.raw()->channel, &cq, &context) == 0;)
        ++events;
    if (events > 0) ::ibv_ack_cq_events(cq, static_cast<unsigned>(events));
    EXPECT_LE(events, 1);
}

TEST_F(Handles, AQueueOfAnotherLoopIsRefused) {
    Loop other;
    CompletionQueue foreign = CompletionQueue::create(other, device.raw(), 64).value();
    options.completions = &foreign;
    Result<Connection> made = loop.run(Connection::resolve(loop, listener.address(), options));
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().code, EINVAL);
}

TEST_F(Handles, AWindowGivesAKeyAndTakesItBack) {
    MemoryWindow window = MemoryWindow::create(domain.raw()).value();
    const auto bind = [&](LocalRegion part) {
        test::Counter bound;
        Result<> posted =
            window.bind(far->queue_pair(), there->region(), part, Access::RemoteWrite, &bound);
        ASSERT_TRUE(posted) << posted.error().why;
        while (bound.completions == 0) loop.poll_or_wait();
        EXPECT_EQ(bound.last.status, IBV_WC_SUCCESS);
    };
    bind(there->local(1024, 512));
    const RemoteRegion first = window.remote();
    EXPECT_EQ(first.size, 512u);
    test::fill(here->bytes(), 3);
    EXPECT_TRUE(near->write(first, here->local(0, 512)).wait());
    EXPECT_TRUE(test::holds(there->bytes().subspan(1024, 512), 3));

    bind(there->local(2048, 512));
    EXPECT_NE(window.remote().rkey, first.rkey);
    EXPECT_TRUE(near->write(window.remote(), here->local(0, 512)).wait());
    Result<> late = near->write(first, here->local(0, 512)).wait();
    ASSERT_FALSE(late);
    EXPECT_EQ(late.error().code, EACCES);
}

// A listener in one thread, the connection in another's loop.
TEST(Threads, ARequestIsAcceptedOnAnotherLoop) {
    Loop loop;
    Listener listener = Listener::listen(loop, "127.0.0.1:0").value();
    std::promise<Loop*> ready;
    std::optional<ConnectionRequest> handed;
    bool served = false;
    std::thread worker([&] {
        Loop own;
        ready.set_value(&own);
        while (!handed) own.poll_or_wait();
        const auto serve = [](Loop& on, ConnectionRequest request) -> Task<bool> {
            Connection made = std::move(request).prepare(on).value();
            Buffer memory = made.allocate(4096, Access::RemoteRead).value();
            test::fill(memory.bytes(), 9);
            (co_await made.accept(PrivateData::of(memory.remote()))).value();
            co_return (co_await made.closed()).has_value();
        };
        served = own.run(serve(own, *std::move(handed)));
    });
    Loop* other = ready.get_future().get();
    loop.spawn([](Listener& at, Loop& to, std::optional<ConnectionRequest>& slot) -> Task<void> {
        auto request = std::make_shared<ConnectionRequest>((co_await at.next()).value());
        to.post([request, &slot] { slot = std::move(*request); });
    }(listener, *other, handed));
    {
        Connection peer = loop.run(Connection::connect(loop, listener.address())).value();
        Buffer here = peer.allocate(4096).value();
        EXPECT_TRUE(peer.read(here.local(), peer.peer_data().as<RemoteRegion>()).wait());
        EXPECT_TRUE(test::holds(here.bytes(), 9));
    }
    worker.join();
    EXPECT_TRUE(served);
}

}  // namespace
}  // namespace feroce::rdma
