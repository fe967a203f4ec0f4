// Who takes what arrives: the program that polls or the shard's thread.
#include "process/shard.hpp"

#include <gtest/gtest.h>
#include <signal.h>

#include "mem/guard_thread.hpp"
#include "process/test_host.hpp"

namespace feroce::process {
namespace {

using namespace std::chrono_literals;

class Shards : public testing::Test {
public:
    Shards() { world.bed.await_sleep(); }
    // A poll that finds a completion, which the program goes away with.
    void poll_a_completion() {
        cq.push({});
        poll();
        transport::Completion taken;
        EXPECT_EQ(cq.poll({&taken, 1}), 1u);
    }
    void poll() {
        world.now = world.now.load() + 1us;
        shard->drive(cq);
    }
    // True if the thread takes it, false if it waits for the program.
    bool arrive() {
        world.arrivals = 1;
        world.bed.wake(Bed::End::Arrival);
        return world.arrivals == 0;
    }

    World world;
    FakeHost host{world};
    Prng random{1};
    mem::Memory memory{{}, random};
    device::XrcDomains xrc;
    Deaf events;
    std::function<void()> changed = [] {};
    std::function<void(const cm::Suspects&)> told = [](const cm::Suspects&) {};
    device::CompletionQueue cq{64, nullptr, nullptr};
    std::unique_ptr<Shard> shard = *Shard::start({host, memory, xrc, events, changed, told});
};

TEST_F(Shards, LearnThatAProgramComesBackFromItsBatches) {
    // While it was away with a completion something arrived, each time.
    for (int i = 0; i < 8; ++i) {
        poll_a_completion();
        if (!world.armed) break;
        EXPECT_FALSE(arrive()) << "it is left to the program, round " << i;
        poll();
        EXPECT_EQ(world.arrivals, 0);
        world.bed.wake(Bed::End::Timeout);
    }
    EXPECT_EQ(world.taken_by_thread, 0);
    poll_a_completion();
    EXPECT_FALSE(world.armed) << "arrivals would still wake the thread";
}

TEST_F(Shards, LeaveLittleToAProgramThatDoesNotComeBack) {
    constexpr int kArrivals = 1000;
    int left = 0;
    for (int i = 0; i < kArrivals; ++i) {
        poll_a_completion();
        ASSERT_TRUE(world.armed);
        if (arrive()) continue;
        ++left;
        const Instant before = world.now;
        world.bed.wake(Bed::End::Timeout);
        EXPECT_LE(world.now.load() - before, 250us);
        ASSERT_EQ(world.arrivals, 0) << "the thread took it in the end";
    }
    EXPECT_EQ(world.taken_by_thread, kArrivals);
    EXPECT_GE(left, 2);
    EXPECT_LE(left, 11) << "ever more seldom";
}

// It must not end the process, nor be forgotten.
TEST_F(Shards, TellOfInterfacesAgainIfThereWasNoMemory) {
    std::atomic<int> calls{0};
    changed = [&calls] {
        if (++calls < 3) throw std::bad_alloc();
    };
    world.interfaces_changed = true;
    for (int i = 0; i < 5; ++i) world.bed.wake(Bed::End::Timeout);
    EXPECT_EQ(calls, 3);
}

// Outside of the lock, since the connection manager asks them through it.
TEST_F(Shards, TellOfSuspects) {
    std::vector<Gid> heard;
    told = [&](const cm::Suspects& suspects) {
        Shard::Session session(*shard);
        for (const cm::Suspect& suspect : suspects.all()) heard.push_back(suspect.peer);
    };
    world.suspects.add({Gid::from_v4(0x0a00'0001), true});
    world.has_suspects = true;
    for (int i = 0; i < 3; ++i) world.bed.wake(Bed::End::Timeout);
    EXPECT_EQ(heard, std::vector<Gid>{Gid::from_v4(0x0a00'0001)});
}

// Each of the next `messages` polls of the port finds a message for the connection manager.
class Mail : public Shards {
public:
    Mail() {
        world.deliver = [this](Instant, device::Engine&) {
            if (messages == 0) return false;
            --messages;
            if (shard->note_mail()) ++told;
            return true;
        };
    }
    ~Mail() override {
        shard->serve_mail({});
        world.deliver = [](Instant, device::Engine&) { return false; };
    }
    // Fetched outside of the lock, since the manager takes it while it holds its own.
    void serve() {
        shard->serve_mail([this] {
            Shard::Session session(*shard);
            ++brought;
        });
    }
    void arrive_for_thread() {
        messages = 1;
        world.bed.wake(Bed::End::Arrival);
        ASSERT_EQ(messages, 0);
    }

    std::atomic<int> messages{0};
    std::atomic<int> told{0};
    std::atomic<int> brought{0};
};

TEST_F(Mail, ThatTheThreadTakesItAlsoBrings) {
    serve();
    arrive_for_thread();
    EXPECT_EQ(brought, 1);
    EXPECT_EQ(told, 0) << "another thread would be woken for nothing";
    arrive_for_thread();
    EXPECT_EQ(brought, 2);
}

TEST_F(Mail, ThatTheProgramTakesIsTold) {
    serve();
    messages = 1;
    poll();
    EXPECT_EQ(messages, 0);
    EXPECT_EQ(told, 1);
    world.bed.wake(Bed::End::Timeout);
    EXPECT_EQ(brought, 0);
}

TEST_F(Mail, ThatTheManagerTakesIsNotToldToIt) {
    serve();
    messages = 2;
    shard->take_arrived();
    EXPECT_EQ(messages, 0);
    EXPECT_EQ(told, 0);
    messages = 1;
    poll();
    EXPECT_EQ(told, 1) << "the next one was taken by the program";
}

TEST_F(Mail, ThatNobodyBringsIsTold) {
    arrive_for_thread();
    EXPECT_EQ(told, 1) << "no manager is there yet";
    serve();
    shard->serve_mail({});
    arrive_for_thread();
    EXPECT_EQ(told, 2);
    EXPECT_EQ(brought, 0);
}

// Memory whose copies end when the test says so.
class LateMemory final : public mem::FarMemory {
public:
    std::unique_ptr<mem::Staging> stage(std::uint32_t size) override {
        return mem::heap_staging(size);
    }
    void start(const mem::Copy& copy) override { copy_ = copy; }
    void close() override {}
    void finish() const { copy_.listener->copy_done(copy_.token, true); }

private:
    mem::Copy copy_;
};

// A queue pair that sends from far memory.
class FarSends : public Shards {
public:
    FarSends() {
        mem::RegionSpec spec{.pd = *memory.alloc_pd(),
                             .address = reinterpret_cast<void*>(kAddress),
                             .length = 4096,
                             .iova = kAddress,
                             .access = mem::Access::LocalWrite};
        spec.far = far;
        keys = *memory.register_region(spec);
        transport::QpInit init;
        init.pd = spec.pd;
        init.send_cq = init.receive_cq = &cq;
        init.capabilities = {.send_wr_max = 8, .receive_wr_max = 8};
        Shard::Session session(*shard);
        qp = *session.engine().create_qp(init);
        connect(session);
        world.transmit = [this](std::span<const transport::TransmitRun>) { ++transmits; };
    }
    ~FarSends() override {
        world.transmit = [](std::span<const transport::TransmitRun>) {};
        Shard::Session session(*shard);
        session.engine().destroy_qp(*qp);
    }
    void connect(Shard::Session& session) {
        transport::QpAttributes a;
        a.address.source = a.address.destination = Gid::from_v4(0x7f000001);
        a.destination_qpn = qp->qpn();
        a.path_mtu = 1024;
        a.timeout = 14;
        for (const auto to :
             {transport::QpState::Init, transport::QpState::Rtr, transport::QpState::Rts}) {
            transport::AttributeMask mask =
                transport::transition(transport::QpType::Rc, qp->state(), to).required;
            mask.raw |= static_cast<std::uint32_t>(transport::Attribute::State);
            a.state = to;
            ASSERT_TRUE(session.engine().modify_qp(session.now(), *qp, a, mask));
        }
    }
    void post() {
        const mem::Sge sge{kAddress, 100, keys.lkey};
        transport::SendWr wr;
        wr.sges = {&sge, 1};
        Shard::Session session(*shard, Shard::Work::Posts);
        ASSERT_TRUE(session.engine().post_send(session.now(), *qp, wr));
    }
    // The copy that the last post has begun ends. How often the thread was woken for it.
    int wakes_of_copy() {
        const int before = world.wakes;
        far->finish();
        return world.wakes - before;
    }

    static constexpr std::uint64_t kAddress = std::uint64_t{1} << 46;
    std::shared_ptr<LateMemory> far = std::make_shared<LateMemory>();
    mem::RegionKeys keys;
    transport::QueuePair* qp = nullptr;
    int transmits = 0;
};

TEST_F(FarSends, ACopyThatEndsWakesTheThreadIfNobodyPolls) {
    post();
    EXPECT_EQ(transmits, 0);
    shard->expect_sleep();
    ASSERT_TRUE(world.armed);
    EXPECT_EQ(wakes_of_copy(), 1);
    world.bed.wake(Bed::End::Timeout);
    EXPECT_EQ(transmits, 1);
}

TEST_F(FarSends, ACopyThatEndsIsLeftToAProgramThatPolls) {
    post();
    for (int i = 0; i < 3; ++i) poll();
    ASSERT_FALSE(world.armed);
    EXPECT_EQ(wakes_of_copy(), 0);
    poll();
    EXPECT_EQ(transmits, 1);
}

TEST_F(FarSends, ACopyIsNotForgottenByAProgramThatGoesToSleep) {
    post();
    for (int i = 0; i < 3; ++i) poll();
    ASSERT_FALSE(world.armed);
    EXPECT_EQ(wakes_of_copy(), 0);
    const int before = world.wakes;
    shard->expect_sleep();
    EXPECT_GT(world.wakes, before);
}

TEST_F(FarSends, ACopyIsNotForgottenByAProgramThatStopsPolling) {
    post();
    for (int i = 0; i < 3; ++i) poll();
    EXPECT_EQ(wakes_of_copy(), 0);
    world.bed.wake(Bed::End::Timeout);  // The thread's next look.
    EXPECT_EQ(transmits, 1);
}

TEST_F(Shards, TakeAtOnceWhatASleeperWaitsFor) {
    for (int i = 0; i < 10; ++i) {
        poll_a_completion();
        poll();
        shard->expect_sleep();
        EXPECT_TRUE(arrive());
    }
    EXPECT_EQ(world.taken_by_thread, 10);
}

// A thread that blocks the signals of the guard must be noticed, whichever thread drives most.
TEST_F(Shards, RecheckTheGuardOfEachThreadThatDrives) {
    std::atomic<int> turn{0};
    bool direct_before = false, direct_after = true;
    std::thread second([&] {
        poll();
        direct_before = mem::guard_is_direct();
        sigset_t both;
        sigemptyset(&both);
        sigaddset(&both, SIGSEGV);
        sigaddset(&both, SIGBUS);
        pthread_sigmask(SIG_BLOCK, &both, nullptr);
        turn = 1;
        while (turn != 2) std::this_thread::yield();
        poll();
        direct_after = mem::guard_is_direct();
    });
    while (turn != 1) std::this_thread::yield();
    world.now = world.now.load() + 10ms;
    poll();  // The first thread's look must not count for the second.
    turn = 2;
    second.join();
    EXPECT_TRUE(direct_before);
    EXPECT_FALSE(direct_after) << "its accesses would not survive a fault";
}

// A program replaces the handlers, unmaps memory and posts: our thread may meet the hole before the
// program polls, and a look when the program posts warns all threads.
TEST_F(Shards, RecheckTheGuardOfAThreadThatPosts) {
    std::thread([&] {
        ASSERT_EQ(mem::guard_recheck(), mem::GuardMode::Direct);  // As registration does.
        struct sigaction theirs {};
        struct sigaction ours {};
        theirs.sa_handler = SIG_DFL;
        ASSERT_EQ(sigaction(SIGSEGV, &theirs, &ours), 0);
        { const Shard::Session session(*shard, Shard::Work::Posts); }
        EXPECT_FALSE(mem::guard_is_direct()) << "nobody noticed the other handler";
        ASSERT_EQ(sigaction(SIGSEGV, &ours, nullptr), 0);
    }).join();
}

}  // namespace
}  // namespace feroce::process
