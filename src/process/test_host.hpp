// A Host for tests of a shard. Time, arrivals and the thread's sleep are the test's: the thread
// runs only until it sleeps again.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <thread>

#include "process/shard.hpp"

namespace feroce::process {

// The thread sleeps here until the test says how its sleep ends.
class Bed {
public:
    enum class End : std::uint8_t { None, Arrival, Timeout, Over };

    End sleep() {
        std::unique_lock lock(mutex_);
        asleep_ = true;
        change_.notify_all();
        change_.wait(lock, [&] { return end_ != End::None; });
        return end_ == End::Over ? end_ : std::exchange(end_, End::None);
    }
    void await_sleep() {
        std::unique_lock lock(mutex_);
        change_.wait(lock, [&] { return asleep_; });
    }
    // Returns when it sleeps again; at the end of everything it does not.
    void wake(End how) {
        await_sleep();
        {
            const std::lock_guard lock(mutex_);
            end_ = how;
            asleep_ = false;
        }
        change_.notify_all();
        if (how != End::Over) await_sleep();
    }

private:
    std::mutex mutex_;
    std::condition_variable change_;
    bool asleep_ = false;
    End end_ = End::None;
};

struct World {
    std::atomic<Instant> now{Instant{} + std::chrono::seconds(1)};
    // What the next polls of the port find: bytes of nothing in particular, and whole packets.
    std::atomic<int> arrivals{0};
    std::function<bool(Instant, device::Engine&)> deliver = [](Instant, device::Engine&) {
        return false;
    };
    std::function<void(std::span<const transport::TransmitRun>)> transmit =
        [](std::span<const transport::TransmitRun>) {};
    std::atomic<int> taken_by_thread{0};
    std::atomic<int> wakes{0};
    std::atomic<bool> armed{false};
    std::atomic<bool> interfaces_changed{false};
    std::atomic<bool> has_suspects{false};
    cm::Suspects suspects;
    bool by_rings = false;
    bool inherits = false;
    std::size_t legacies_max = 1;
    std::vector<std::vector<std::byte>> left_behind;
    std::thread::id program = std::this_thread::get_id();
    Bed bed;
};

class FakePort final : public host::HostPort {
public:
    explicit FakePort(World& world) : world_(world) {}
    SlotNumber slot() const override { return 1; }
    bool poll(Instant now, device::Engine& engine) override {
        if (world_.deliver(now, engine)) return true;
        if (world_.arrivals == 0) return false;
        --world_.arrivals;
        if (std::this_thread::get_id() != world_.program) ++world_.taken_by_thread;
        return true;
    }
    bool poll_all(Instant now, device::Engine& engine) override { return poll(now, engine); }
    void arm() override { world_.armed = true; }
    void disarm(bool) override { world_.armed = false; }
    bool wait(Instant until) override {
        const Bed::End end = world_.bed.sleep();
        if (end == Bed::End::Timeout && until != kNever)
            world_.now = std::max(world_.now.load(), until);
        if (end == Bed::End::Arrival) world_.armed = false;
        return end == Bed::End::Arrival;
    }
    void wake() override { ++world_.wakes; }
    bool interfaces_changed() override { return world_.interfaces_changed.exchange(false); }
    bool has_suspects() override { return world_.has_suspects.exchange(false); }
    cm::Suspects take_suspects() override { return world_.suspects; }
    void transmit(std::span<const transport::TransmitRun> runs) override { world_.transmit(runs); }
    bool goes_by_ring(const transport::Path&, SlotNumber) const override { return world_.by_rings; }
    std::uint64_t ring_changes() const override { return world_.by_rings ? 1 : 0; }
    bool inherits(const transport::Path&, SlotNumber) override { return world_.inherits; }
    bool leave_behind(const transport::Path&, SlotNumber, transport::AckView ack) override {
        if (world_.left_behind.size() == world_.legacies_max) return false;
        world_.left_behind.emplace_back(ack.begin(), ack.end());
        return true;
    }
    void take_legacies_back() override { world_.left_behind.clear(); }
    bool join_group(const Gid&) override { return false; }
    void leave_group(const Gid&) override {}

private:
    World& world_;
};

class FakeHost final : public host::Host {
public:
    explicit FakeHost(World& world) : world_(world) {}
    Instant now() override { return world_.now; }
    RandomSource& random() override { return random_; }
    host::Identity identity() override { return {}; }
    std::vector<host::Interface> interfaces() override { return {}; }
    Result<std::unique_ptr<host::HostPort>> open_port() override {
        return std::unique_ptr<host::HostPort>(new FakePort(world_));
    }
    Result<std::unique_ptr<host::Rendezvous>> open_rendezvous(SlotNumber, int) override {
        return Error{ENOTSUP, "not here"};
    }
    std::unique_ptr<host::Estate> open_estate(SlotNumber) override { return nullptr; }
    Result<Gid> source_for(const Gid&, std::uint32_t) override { return Gid{}; }
    Result<std::unique_ptr<host::Task>> spawn(std::function<void()> body) override {
        struct Thread final : host::Task {
            Thread(std::function<void()> body, Bed& b) : bed(b), thread(std::move(body)) {}
            ~Thread() override {
                bed.wake(Bed::End::Over);
                thread.join();
            }
            Bed& bed;
            std::thread thread;
        };
        return std::unique_ptr<host::Task>(new Thread(std::move(body), world_.bed));
    }
    void abandon() override {}

private:
    World& world_;
    Prng random_{1};
};

struct Deaf final : device::EventListener {
    void on_qp_event(transport::QueuePair&, transport::AsyncEventType) override {}
    void on_srq_event(transport::ReceiveQueue&, transport::AsyncEventType) override {}
};

}  // namespace feroce::process
