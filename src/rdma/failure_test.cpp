// What goes wrong, and what the program is told: keys, limits, ends that vanish.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <optional>
#include <stdexcept>
#include <thread>

#include "base/sanitizers.hpp"
#include "rdma/failure.hpp"
#include "rdma/test_no_files.hpp"
#include "rdma/test_programs.hpp"

namespace feroce::rdma {
namespace {

using namespace std::chrono_literals;

// One connection in one process; the far end serves and posts no receives.
class Failures : public testing::Test {
public:
    void SetUp() override {
        group.spawn(accept_one(*this));
        Result<Connection> made = loop.run(Connection::connect(loop, listener.address(), options));
        ASSERT_TRUE(made) << made.error().why;
        near = *std::move(made);
        while (!far) loop.poll_or_wait();
        here = near->allocate(4096).value();
    }
    void TearDown() override {
        here.reset();
        near.reset();
        memory.reset();
        far.reset();
        EXPECT_TRUE(loop.run(group.join()));
    }

    static Task<void> accept_one(Failures& test) {
        ConnectionRequest request = (co_await test.listener.next()).value();
        Connection made = std::move(request).prepare(test.loop, test.options).value();
        test.memory = made.allocate(4096, Access::RemoteRead).value();
        EXPECT_TRUE(co_await made.accept());
        test.far = std::move(made);
    }

    RealRuntime runtime;
    Loop loop{runtime};
    ConnectionOptions options{.send_depth = 4};
    Listener listener = Listener::listen(loop, "127.0.0.1:0").value();
    TaskGroup group{loop};
    std::optional<Connection> near, far;
    std::optional<Buffer> here, memory;
};

bool contains(const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
}

#ifndef FEROCE_ASAN  // UBSan, which comes with it, looks at objects by a descriptor.
TEST(NoDevice, IsNotBlamedForOtherShortages) {
    RealRuntime runtime;
    Loop other(runtime), loop(runtime);
    ASSERT_TRUE(Listener::listen(other, "127.0.0.1:0"));  // The device is there.
    const NoFiles none;
    const auto listener = Listener::listen(loop, "127.0.0.1:0");
    ASSERT_FALSE(listener);
    EXPECT_EQ(listener.error().code, EMFILE);
    EXPECT_EQ(listener.error().why, "no channel for connection events: Too many open files");
}
#endif

TEST(NoDevice, IsBlamedWhereNoneIs) {
    EXPECT_TRUE(contains(no_device("nothing", ENODEV).why, "feroce run"));
    EXPECT_FALSE(contains(no_device("nothing", EACCES).why, "feroce run"));
}

TEST_F(Failures, AWrongKeySaysWhyWithTheWholeChain) {
    RemoteRegion wrong = memory->remote();
    wrong.rkey ^= 0x5500;
    Result<> done = near->read(here->local(), wrong).wait();
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, EACCES);
    EXPECT_EQ(done.error().status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_TRUE(contains(done.error().why, "the peer refused access")) << done.error().why;
    EXPECT_TRUE(contains(done.error().why, "because QP 0x")) << done.error().why;
    // The far end refused, so its connection is closed too, and says so.
    done = far->send(here->local()).wait();
    ASSERT_FALSE(done);
}

TEST_F(Failures, MissingAccessIsToldApart) {
    Result<> done = near->write(memory->remote(), here->local()).wait();
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, EACCES);
    EXPECT_TRUE(contains(done.error().why, "because QP 0x")) << done.error().why;
    EXPECT_EQ(near->cause()->status, IBV_WC_REM_ACCESS_ERR);
    // What comes after is told the first cause, not that it was flushed.
    done = near->read(here->local(), memory->remote()).wait();
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, EACCES);
    EXPECT_EQ(done.error().status, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(Failures, SizesAreComparedBeforeAnythingIsSent) {
    Result<> done = near->read(here->local(), memory->remote().subregion(0, 100)).wait();
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, EINVAL);
    EXPECT_EQ(done.error().why,
              "the region of the peer has 100 bytes, the local ones have 4096; use subregions of "
              "equal size");
    Result<std::uint64_t> old = near->fetch_add(memory->remote().subregion(4, 8), 1).wait();
    ASSERT_FALSE(old);
    EXPECT_EQ(old.error().code, EINVAL);
    EXPECT_TRUE(near->is_open());
}

TEST_F(Failures, ADeadlineClosesAndTheMemoryIsFree) {
    // Nobody sends, so the receive stays until its time is over.
    Result<Received> got = near->receive(here->local()).within(5ms).wait();
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().code, ETIMEDOUT);
    EXPECT_FALSE(near->is_open());
    EXPECT_TRUE(loop.run(far->closed()));
    EXPECT_EQ(far->cause()->code, ECONNRESET);
}

TEST_F(Failures, ADeadlineOfATaskBoundsWhatItAwaits) {
    const auto patient = [](Connection& from, LocalRegion into) -> Task<Result<Received>> {
        co_return co_await from.receive(into);
    };
    Result<Received> got = loop.run(patient(*near, here->local()).until(loop.after(5ms)));
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().code, ETIMEDOUT);
}

TEST_F(Failures, AStopFromAnotherThread) {
    std::stop_source source;
    std::thread stopper([&] { source.request_stop(); });
    Result<Received> got = near->receive(here->local()).with(source.get_token()).wait();
    stopper.join();
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().code, ECANCELED);
}

TEST_F(Failures, AStopThatCameBeforeLeavesTheConnectionAlone) {
    std::stop_source source;
    source.request_stop();
    Result<> done = near->read(here->local(), memory->remote()).with(source.get_token()).wait();
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, ECANCELED);
    EXPECT_TRUE(contains(done.error().why, "before the operation began")) << done.error().why;
    EXPECT_TRUE(near->read(here->local(), memory->remote()).wait());
}

TEST_F(Failures, ATaskThatEndsInMidTransferLeavesNothingBehind) {
    {
        TaskGroup doomed(loop);
        doomed.spawn([](Connection& from, LocalRegion into) -> Task<void> {
            (void)co_await from.receive(into);
            ADD_FAILURE() << "it was to end while it waited";
        }(*near, here->local()));
        loop.poll();
    }
    EXPECT_FALSE(near->is_open());
    EXPECT_EQ(near->cause()->code, ECANCELED);
}

TEST_F(Failures, AConnectionThatEndsTellsWhatWasPosted) {
    test::Counter flushed;
    ASSERT_TRUE(near->post_receive(here->local(), flushed));
    near.reset();
    EXPECT_EQ(flushed.completions, 1);
    EXPECT_EQ(flushed.last.status, IBV_WC_WR_FLUSH_ERR);
}

struct Throws : Operation {
    Throws() {
        complete = [](Operation&, const ibv_wc&) { throw std::runtime_error("oops"); };
    }
};

TEST_F(Failures, AnOperationThatThrowsLosesNoOtherCompletion) {
    Throws throws;
    test::Counter flushed;
    ASSERT_TRUE(near->post_receive(here->local(), throws));
    ASSERT_TRUE(near->post_receive(here->local(), flushed));
    near.reset();  // Its completion queue asserts that it is in no call.
    EXPECT_EQ(flushed.completions, 1);
    EXPECT_THROW(loop.poll(), std::runtime_error);
}

TEST_F(Failures, AnOperationThatPollsFindsTheRestOfItsBatch) {
    struct Polls : Operation {
        Loop* loop;
        test::Counter other;
    } polls;
    polls.loop = &loop;
    polls.complete = [](Operation& operation, const ibv_wc&) {
        Polls& self = static_cast<Polls&>(operation);
        for (int i = 0; i < 1000 && self.other.completions == 0; ++i) self.loop->poll();
        EXPECT_EQ(self.other.completions, 1);
    };
    ASSERT_TRUE(near->post_receive(here->local(), polls));
    ASSERT_TRUE(near->post_receive(here->local(), polls.other));
    near.reset();
}

#if !defined(FEROCE_ASAN) && !defined(FEROCE_TSAN)  // Their operator new ends the program.
TEST_F(Failures, MemoryThatIsNotThereIsAnError) {
    const Result<Buffer> none = near->allocate(std::size_t{1} << 62);
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().code, ENOMEM);
}
#endif

TEST_F(Failures, TransfersWaitForRoomInTheSendQueue) {
    int done = 0;
    TaskGroup readers(loop);
    for (std::uint32_t i = 0; i < 64; ++i)
        readers.spawn([](Failures& t, std::uint32_t at, int& count) -> Task<void> {
            const RemoteRegion from = t.memory->remote().subregion(at * 64, 64);
            Result<> read = co_await t.near->read(t.here->local(at * 64, 64), from);
            EXPECT_TRUE(read) << read.error().why;
            ++count;
        }(*this, i, done));
    EXPECT_TRUE(loop.run(readers.join()));
    EXPECT_EQ(done, 64);
}

TEST_F(Failures, ABatchIsAsLongAsTheSendQueueAtMost) {
    const Work one = Work::read(here->local(0, 8), memory->remote().subregion(0, 8));
    std::vector<Work> list(5, one);
    Result<> done = near->batch(list).wait();
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, E2BIG);
    list.pop_back();
    EXPECT_TRUE(near->batch(list).wait());
}

TEST_F(Failures, ABatchTellsWhatFailedFirst) {
    const Work good = Work::read(here->local(0, 8), memory->remote().subregion(0, 8));
    const Work bad = Work::write(memory->remote().subregion(0, 8), here->local(0, 8));
    std::vector<Work> list{good, bad, good};
    Result<> done = near->batch(list).wait();
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().status, IBV_WC_REM_ACCESS_ERR) << done.error().why;
}

// A server in a process of its own, killed in the end.
class OtherProcess : public testing::Test {
public:
    void SetUp() override {
        int pipe[2];
        ASSERT_EQ(::pipe(pipe), 0);
        child = ::fork();
        if (child == 0) serve_forever(pipe[1]);
        std::uint16_t port = 0;
        ASSERT_EQ(::read(pipe[0], &port, sizeof port), ssize_t{sizeof port});
        server = Address("127.0.0.1").with_port(port);
        ::close(pipe[0]);
        ::close(pipe[1]);
    }
    void TearDown() override { stop(); }

    void stop() {
        if (child <= 0) return;
        ::kill(child, SIGKILL);
        ::waitpid(child, nullptr, 0);
        child = 0;
    }

    [[noreturn]] static void serve_forever(int tell) {
        Loop loop;
        Listener listener = Listener::listen(loop, "127.0.0.1:0").value();
        const std::uint16_t port = listener.address().port();
        if (::write(tell, &port, sizeof port) != sizeof port) ::_exit(1);
        for (;;) loop.run(test::serve(loop, listener, 1));
    }

    pid_t child = 0;
    Address server{"127.0.0.1"};
};

TEST_F(OtherProcess, ThatVanishesIsNamed) {
    Loop loop;
    ConnectionOptions options{.retry_count = 1};
    Connection peer = loop.run(Connection::connect(loop, server, options)).value();
    Buffer here = peer.allocate(4096).value();
    const auto memory = peer.peer_data().as<RemoteRegion>().subregion(0, 4096);
    EXPECT_TRUE(peer.read(here.local(), memory).wait());
    stop();
    Result<> done = peer.read(here.local(), memory).wait();
    ASSERT_FALSE(done);
    // Its silence is noticed, or this process is told of its death first.
    const bool told = done.error().code == ECONNRESET;
    EXPECT_EQ(done.error().code, told ? ECONNRESET : EHOSTUNREACH) << done.error().why;
    EXPECT_TRUE(contains(done.error().why, told ? "closed the connection" : "does not answer"))
        << done.error().why;
}

TEST_F(OtherProcess, ThatRefusesSaysWhy) {
    Loop loop;
    Connection peer = loop.run(Connection::connect(loop, server)).value();
    Buffer here = peer.allocate(64).value();
    RemoteRegion beyond = peer.peer_data().as<RemoteRegion>();
    beyond.address += beyond.size;
    Result<> done = peer.read(here.local(), beyond).wait();
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, EACCES) << done.error().why;
    EXPECT_TRUE(contains(done.error().why, ", because rdma_test: QP 0x")) << done.error().why;
}

}  // namespace
}  // namespace feroce::rdma
