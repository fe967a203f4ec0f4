#include "process/cm_gsi.hpp"

#include <gtest/gtest.h>

namespace feroce::process {
namespace {

using namespace std::chrono_literals;

// A machine where nothing arrives and no thread of ours runs.
class SilentPort final : public host::HostPort {
public:
    SlotNumber slot() const override { return 1; }
    bool poll(Instant, device::Engine&) override { return false; }
    bool poll_all(Instant, device::Engine&) override { return false; }
    void arm() override {}
    void disarm(bool) override {}
    bool wait(Instant) override { return false; }
    void wake() override {}
    bool interfaces_changed() override { return false; }
    void transmit(std::span<const transport::TransmitRun>) override {}
    bool join_group(const Gid&) override { return false; }
    void leave_group(const Gid&) override {}
};

class SilentHost final : public host::Host {
public:
    Instant now() override { return Instant{} + 1s; }
    RandomSource& random() override { return random_; }
    host::Identity identity() override { return {}; }
    std::vector<host::Interface> interfaces() override { return {}; }
    Result<std::unique_ptr<host::HostPort>> open_port() override {
        return std::unique_ptr<host::HostPort>(new SilentPort);
    }
    Result<std::unique_ptr<host::Rendezvous>> open_rendezvous(SlotNumber, int) override {
        return Error{ENOTSUP, "not here"};
    }
    std::unique_ptr<host::Estate> open_estate(SlotNumber) override { return nullptr; }
    Result<Gid> source_for(const Gid&, std::uint32_t) override { return Gid{}; }
    Result<std::unique_ptr<host::Task>> spawn(std::function<void()>) override {
        return std::make_unique<host::Task>();
    }
    void abandon() override {}

private:
    Prng random_{1};
};

struct Deaf final : device::EventListener {
    void on_qp_event(transport::QueuePair&, transport::AsyncEventType) override {}
    void on_srq_event(transport::ReceiveQueue&, transport::AsyncEventType) override {}
};

// A flushed receive that is posted again is flushed again, for ever and under the shard's lock.
TEST(CmGsi, DrainingEndsWhenTheQueuePairHasFailed) {
    Deaf events;
    Process process(std::make_unique<SilentHost>(), events, {});
    ASSERT_TRUE(process.open().has_value());
    {
        Result<std::unique_ptr<CmGsi>> gsi = CmGsi::open(process, [] {});
        ASSERT_TRUE(gsi.has_value());
        {
            Shard::Session session(process.shard(0));
            transport::QueuePair* qp = session.engine().qps().find(kGeneralServicesQpn);
            ASSERT_NE(qp, nullptr);
            transport::QpAttributes failed;
            failed.state = transport::QpState::Err;
            ASSERT_TRUE(session.engine()
                            .modify_qp(session.now(), *qp, failed,
                                       transport::AttributeMask{
                                           static_cast<std::uint32_t>(transport::Attribute::State)})
                            .has_value());
        }
        std::vector<CmDatagram> arrived;
        (*gsi)->drain(arrived);
        EXPECT_TRUE(arrived.empty());
    }
    process.close();
}

}  // namespace
}  // namespace feroce::process
