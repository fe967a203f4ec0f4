// For tests: a machine where nothing arrives and no thread of ours runs.
#pragma once

#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "base/random.hpp"
#include "device/events.hpp"
#include "host/host.hpp"

namespace feroce::process {

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

class SilentHost : public host::Host {
public:
    Instant now() override { return Instant{} + std::chrono::seconds(1); }
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

struct SilentEvents final : device::EventListener {
    void on_qp_event(transport::QueuePair&, transport::AsyncEventType) override {}
    void on_srq_event(transport::ReceiveQueue&, transport::AsyncEventType) override {}
};

}  // namespace feroce::process
