// RealHost: this machine. Clock, the kernel's random numbers, interfaces, UDP port, threads.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/spinlock.hpp"
#include "host/host.hpp"
#include "port/capture.hpp"
#include "port/faults.hpp"
#include "port/fork_gate.hpp"
#include "port/identity.hpp"
#include "port/network.hpp"
#include "port/port_entry.hpp"
#include "port/port_group.hpp"
#include "port/ring_budget.hpp"
#include "port/unix_rendezvous.hpp"
#include "wire/icrc.hpp"

namespace feroce::port {

// Asks the kernel for several numbers at once. A forked child must not use its parent's, or both
// draw the same; it has a host of its own.
class KernelRandom final : public RandomSource {
public:
    std::uint64_t next() override;  // Any thread.

private:
    Spinlock lock_;  // Guards the rest.
    std::array<std::uint64_t, 16> drawn_{};
    std::size_t left_ = 0;  // Of those, at the front; the others are wiped.
};

class RealHost final : public host::Host {
public:
    struct Options {
        std::string devices;  // Comma separated interface names, empty for all.
        // Loopback is listed among other interfaces only if the program names it: programs that
        // use every device they find would pair it with one of another network.
        bool loopback_named = false;
        std::optional<FaultRates> faults;
        std::string capture_path;  // Empty: none.
        bool rings = true;         // Members of the port group send to each other by memory.
        std::size_t ring_memory = RingBudget::kDefault;
        std::uint16_t port = wire::kRocePort;
        Sharing sharing = Sharing::Default;
        // Another user's process that we relay to needs somebody who reads connection requests.
        // Called as often as other users like: must not block, nor do anything twice.
        std::function<void()> requests_wanted = [] {};
        // Processes that share the port have died and left an estate. Called again and again until
        // somebody has inherited it. Must not block.
        std::function<void()> death_noticed = [] {};
    };
    explicit RealHost(Options options);

    bool captures() const { return capture_ != nullptr; }

    Instant now() override;
    bool give_way() override;
    RandomSource& random() override { return random_; }
    host::Identity identity() override;
    std::vector<host::Interface> interfaces() override;
    Result<std::unique_ptr<host::HostPort>> open_port() override;
    bool has_ports_to_spare() override;
    Result<std::unique_ptr<host::Rendezvous>> open_rendezvous(SlotNumber slot,
                                                              int requests_fd) override;
    std::unique_ptr<host::Estate> open_estate(SlotNumber slot) override;
    Result<Gid> source_for(const Gid& destination, std::uint32_t scope) override;
    Result<std::unique_ptr<host::Task>> spawn(std::function<void()> body) override;
    void before_fork() override { (void)gate_->before_fork(); }
    void after_fork() override { gate_->after_fork(); }
    void abandon() override;

private:
    Result<PortEntry> enter(FormerSeat before, Duration patience);
    Result<PortEntry> seat_again(FormerSeat before);
    Neighbours neighbours();
    std::shared_ptr<Network> network();
    Result<std::shared_ptr<Network>> enter_network();
    Result<std::unique_ptr<host::HostPort>> open_port_in(const std::shared_ptr<Network>& network);
    // In the network of the open ports; where there are none, in that of the caller.
    template <class Work>
    auto in_network(Work&& work);

    Options options_;
    bool hides_loopback_ = false;  // Decided at the start, for good.
    KernelRandom random_;
    RingBudget ring_budget_;  // Of all ports.
    std::unique_ptr<Capture> capture_;
    const std::shared_ptr<ForkGate> gate_ = std::make_shared<ForkGate>();
    const std::shared_ptr<SeatTokens> tokens_ = std::make_shared<SeatTokens>();
    std::atomic<bool> abandoned_ = false;  // In a forked child, which has no thread of ours.
    std::mutex network_mutex_;             // Guards network_ alone, and never long.
    std::weak_ptr<Network> network_;       // Held by the open ports.
    std::mutex mutex_;                     // Guards what follows.
    std::weak_ptr<PortGroup> group_;       // Held by the open ports.
    Identity identity_;                    // As we entered the port last.
    std::uint32_t owner_;                  // The user whose UDP port it is.
    // One a port, so that each is used under one shard's lock.
    std::vector<std::unique_ptr<FaultInjector>> injectors_;
};

}  // namespace feroce::port
