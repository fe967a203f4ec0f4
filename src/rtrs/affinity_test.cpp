// A session's connections by processor: which one a request takes, and what becomes of all of them
// when one breaks.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <rdma/rdma_cma.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <vector>

#include "feroce/rtrs/server.hpp"
#include "feroce/rtrs/session.hpp"
#include "feroce/rtrs/session_port.hpp"
#include "feroce/task_group.hpp"
#include "feroce/workers.hpp"
#include "rdma/test_until.hpp"

namespace feroce::rtrs::affinity_test {
namespace {

std::mutex made_mutex;
std::vector<ibv_qp*> made;  // Queue pairs in the order of their making, of both ends.

}  // namespace
}  // namespace feroce::rtrs::affinity_test

// In place of the library's: remembers the queue pairs.
extern "C" int rdma_create_qp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* attributes) {
    using Real = int (*)(rdma_cm_id*, ibv_pd*, ibv_qp_init_attr*);
    static const auto real = reinterpret_cast<Real>(::dlsym(RTLD_NEXT, "rdma_create_qp"));
    const int result = real(id, pd, attributes);
    const std::lock_guard guard(feroce::rtrs::affinity_test::made_mutex);
    if (result == 0) feroce::rtrs::affinity_test::made.push_back(id->qp);
    return result;
}

namespace feroce::rtrs {
namespace affinity_test {
namespace {

using namespace std::chrono_literals;

// The real world, but for the processors.
class MovedRuntime final : public rdma::Runtime {
public:
    Instant now() override { return real_.now(); }
    void wait(Instant until, std::span<const int> fds) override { real_.wait(until, fds); }
    void wake() override { real_.wake(); }
    void relax() override { real_.relax(); }
    std::pmr::memory_resource& memory() override { return real_.memory(); }
    std::uint64_t random() override { return real_.random(); }
    unsigned processor_count() override { return count; }
    unsigned current_processor() override { return processor; }

    unsigned count = 4;
    unsigned processor = 0;

private:
    rdma::RealRuntime real_;
};

class Affinity : public testing::Test {
protected:
    Affinity() {
        ServerOptions options;
        options.address = "127.0.0.1";
        options.port = 0;
        options.queue_depth = 16;
        server = Server::open(loop, options, [this](ServerRequest& request) {
                     if (request.direction() == Direction::Read)
                         std::fill(request.data().begin(), request.data().end(), value);
                     else
                         value = request.data()[0];
                     request.respond();
                 }).value();
    }
    Session open(SessionOptions options = {}) {
        options.port = server->port();
        auto opened = loop.run(client.open("affinity", {{"127.0.0.1"}}, options));
        EXPECT_TRUE(opened) << opened.error().why;
        return *std::move(opened);
    }
    static std::vector<std::uint64_t> sent(const Session& session) {
        return session.statistics().paths[0].sent;
    }

    MovedRuntime runtime;
    rdma::Loop loop{runtime};
    std::byte value{};
    std::optional<Server> server;
    Client client{loop};
    const std::vector<std::byte> message{8};
};

TEST_F(Affinity, ARequestTakesTheConnectionOfItsCallersProcessor) {
    const Session session = open();
    std::vector<std::uint64_t> wanted(5);
    ASSERT_EQ(sent(session), wanted) << "one a processor, and the service connection";
    std::vector<std::byte> data(512);
    for (const unsigned processor : {2u, 0u, 3u, 3u, 1u, 2u}) {
        runtime.processor = processor;
        ASSERT_TRUE(session.read(message, data).wait());
        ASSERT_TRUE(session.write(message, data).wait());
        wanted[1 + processor] += 2;
        EXPECT_EQ(sent(session), wanted);
    }
    ASSERT_TRUE(session.write(message, data).service().wait());
    ++wanted[0];
    EXPECT_EQ(sent(session), wanted);
}

TEST_F(Affinity, MoreProcessorsThanConnectionsShareThem) {
    runtime.count = 64;
    EXPECT_EQ(sent(open()).size(), 9u) << "there is a limit";
    Client other(loop);
    const Session session =
        loop.run(other.open("few", {{"127.0.0.1"}}, {.port = server->port(), .connections = 3}))
            .value();
    std::vector<std::byte> data(512);
    for (unsigned i = 0; i < 9; ++i) {
        runtime.processor = 10 + i;
        ASSERT_TRUE(session.read(message, data).wait());
    }
    EXPECT_EQ(sent(session), (std::vector<std::uint64_t>{0, 3, 3, 3}));
}

// As far as this machine has processors; those of one share a connection.
TEST_F(Affinity, ThreadsThatArePinnedHaveTheirOwn) {
    cpu_set_t set;
    ASSERT_EQ(::sched_getaffinity(0, sizeof set, &set), 0);
    std::vector<int> processors;
    for (int i = 0; i < CPU_SETSIZE && processors.size() < 4; ++i)
        if (CPU_ISSET(i, &set)) processors.push_back(i);
    const Session session = open();
    const unsigned count = static_cast<unsigned>(processors.size());
    const rdma::Workers workers = rdma::Workers::start(count, {.processors = processors}).value();
    std::atomic<unsigned> done = 0;
    std::vector<std::uint64_t> wanted(5);
    for (unsigned i = 0; i < count; ++i) {
        wanted[1 + i] = 10;
        rdma::Loop& there = workers.loop(i);
        there.post([this, &there, &done, port = SessionPort(session, there)] {
            const auto use = [](SessionPort by, std::span<const std::byte> said,
                                std::atomic<unsigned>& right) -> rdma::Task<void> {
                std::vector<std::byte> data(512);
                for (int k = 0; k < 10; ++k) right += bool(co_await by.read(said, data));
            };
            there.spawn(use(port, message, done));
        });
    }
    EXPECT_TRUE(rdma::poll_until(loop, [&] { return done == 10 * count; })) << done;
    EXPECT_EQ(sent(session), wanted);
}

rdma::Task<void> write_many(Session session, MovedRuntime& runtime, unsigned processor,
                            std::span<const std::byte> message, int& right) {
    const std::vector<std::byte> data(2000, std::byte{7});
    std::vector<std::byte> back(2000);
    for (int i = 0; i < 40; ++i) {
        runtime.processor = processor;
        const auto written = co_await session.write(message, data);
        runtime.processor = processor;
        const auto read = co_await session.read(message, back);
        right += written && read && back == data;
    }
}

TEST_F(Affinity, OneConnectionThatBreaksCostsNoRequest) {
    for (std::size_t victim = 0; victim < 10; ++victim) {
        made.clear();
        SessionOptions options;
        options.reconnect.first = 1ms;
        const Session session = open(options);
        ASSERT_EQ(made.size(), 10u) << "five at each end";
        rdma::TaskGroup group(loop);
        int right = 0;
        for (unsigned i = 0; i < 4; ++i)
            group.spawn(write_many(session, runtime, i, message, right));
        ASSERT_TRUE(rdma::poll_until(loop, [&] { return right >= 4; }));
        ibv_qp_attr attributes{};
        attributes.qp_state = IBV_QPS_ERR;
        ASSERT_EQ(::ibv_modify_qp(made[victim], &attributes, IBV_QP_STATE), 0);
        ASSERT_TRUE(loop.run(group.join().until(loop.after(60s))));
        EXPECT_EQ(right, 160);
        const PathStatistics path = session.statistics().paths[0];
        EXPECT_EQ(path.connects, 2u) << "the whole path was made again, after " << victim;
        for (std::size_t i = 1; i < 5; ++i) EXPECT_GT(path.sent[i], 0u) << i;
        ASSERT_TRUE(loop.run(session.close()));
    }
}

}  // namespace
}  // namespace affinity_test
}  // namespace feroce::rtrs
