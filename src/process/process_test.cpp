// Which shards a thread that polls a completion queue drives: those of its queue pairs, all of
// them and no others.
#include "process/process.hpp"

#include <gtest/gtest.h>

#include <array>

#include "process/test_host.hpp"

namespace feroce::process::process_test {
namespace {

// Each shard has a world of its own, whose thread sleeps: all that happens, the poller does.
class HostOfTwo final : public host::Host {
public:
    explicit HostOfTwo(std::array<World, 2>& worlds)
        : hosts_{FakeHost(worlds[0]), FakeHost(worlds[1])} {}
    Instant now() override { return hosts_[0].now(); }
    RandomSource& random() override { return hosts_[0].random(); }
    host::Identity identity() override { return {}; }
    std::vector<host::Interface> interfaces() override { return {}; }
    Result<std::unique_ptr<host::HostPort>> open_port() override {
        return hosts_.at(ports_++).open_port();
    }
    Result<std::unique_ptr<host::Rendezvous>> open_rendezvous(SlotNumber, int) override {
        return Error{ENOTSUP, "not here"};
    }
    std::unique_ptr<host::Estate> open_estate(SlotNumber) override { return nullptr; }
    Result<Gid> source_for(const Gid&, std::uint32_t) override { return Gid{}; }
    Result<std::unique_ptr<host::Task>> spawn(std::function<void()> body) override {
        return hosts_.at(threads_++).spawn(std::move(body));
    }
    void abandon() override {}

private:
    std::array<FakeHost, 2> hosts_;
    std::size_t ports_ = 0;
    std::size_t threads_ = 0;
};

struct Unheard final : device::EventListener {
    void on_qp_event(transport::QueuePair&, transport::AsyncEventType) override {}
    void on_srq_event(transport::ReceiveQueue&, transport::AsyncEventType) override {}
};

class TwoShards : public testing::Test {
protected:
    void SetUp() override {
        Process::Options options;
        options.shards = 2;
        process = std::make_unique<Process>(std::make_unique<HostOfTwo>(worlds), events, options);
        ASSERT_TRUE(process->open().has_value());
        for (World& world : worlds) world.bed.await_sleep();
        // A program that polls both in vain: arrivals wake no thread.
        device::CompletionQueue both{64, nullptr, nullptr};
        both.add_shards(0b11);
        for (int i = 0; i < 3; ++i) process->drive(both);
        for (World& world : worlds) {
            ASSERT_FALSE(world.armed);
            world.arrivals = 1;
        }
    }
    void TearDown() override { process->close(); }

    std::array<World, 2> worlds;
    Unheard events;
    std::unique_ptr<Process> process;
    device::CompletionQueue cq{64, nullptr, nullptr};
};

TEST_F(TwoShards, AQueueWithoutQueuePairsHearsFromNone) {
    process->drive(cq);
    process->expect_sleep(cq);
    for (const World& world : worlds) {
        EXPECT_EQ(world.arrivals, 1);
        EXPECT_FALSE(world.armed);
    }
}

TEST_F(TwoShards, APollerDrivesTheShardOfItsQueuePair) {
    cq.add_shards(0b10);
    process->drive(cq);
    EXPECT_EQ(worlds[0].arrivals, 1);
    EXPECT_EQ(worlds[1].arrivals, 0);
    process->expect_sleep(cq);
    EXPECT_FALSE(worlds[0].armed);
    EXPECT_TRUE(worlds[1].armed);
}

TEST_F(TwoShards, APollerOfQueuePairsOnBothDrivesBoth) {
    cq.add_shards(0b10);
    cq.add_shards(0b01);
    process->drive(cq);
    for (const World& world : worlds) EXPECT_EQ(world.arrivals, 0);
    process->expect_sleep(cq);
    for (const World& world : worlds) EXPECT_TRUE(world.armed);
    EXPECT_EQ(worlds[0].taken_by_thread + worlds[1].taken_by_thread, 0);
}

}  // namespace
}  // namespace feroce::process::process_test
