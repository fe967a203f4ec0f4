// Host: what the process-wide object needs of the world. port/ implements it on the real machine,
// sim/ on a simulated node; nothing above knows which.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/gid.hpp"
#include "base/random.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "cm/suspects.hpp"
#include "device/engine.hpp"
#include "device/port.hpp"
#include "host/estate.hpp"
#include "host/identity.hpp"
#include "host/rendezvous.hpp"

namespace feroce::host {

struct Interface {
    std::string name;  // "eth0"; the device is feroce_eth0.
    std::uint32_t index = 0;
    std::uint32_t mtu = 1500;
    std::uint32_t speed_mbps = 10'000;  // Of the link.
    bool up = false;
    std::array<std::uint8_t, 6> mac{};
    std::vector<Gid> gids;  // Usable addresses in a stable order: IPv4, IPv6, link-local.
    // Programs find it in the device list. One that is not listed works like the others.
    bool listed = true;
};

// A port on one slot of the shared UDP port, for all addresses of this machine.
class HostPort : public device::Port {
public:
    // The slot that steers packets here: the top byte of the QPNs of the engine behind this port.
    virtual SlotNumber slot() const = 0;

    // Feeds the engine with what has arrived; false if nothing had. Never blocks.
    virtual bool poll(Instant now, device::Engine& engine) = 0;
    // The same, and looks everywhere: false if nothing had arrived at all. poll() may leave a place
    // that is mostly silent for later.
    virtual bool poll_all(Instant now, device::Engine& engine) = 0;

    // Whether an arrival ends wait(). A poller that is about to spin disarms, so that the waiting
    // thread is not woken for packets the poller takes itself. Under the shard's lock.
    virtual void arm() = 0;
    virtual void disarm(bool for_long) = 0;  // For long: arming again may cost more.

    // Sleeps until a packet arrives while armed (true; no other will end it then), wake() is called
    // or `until` has passed (false). For one thread, which holds no lock.
    virtual bool wait(Instant until) = 0;
    virtual void wake() = 0;  // Any thread. Not lost if nobody waits yet.
    // Connection requests, which are addressed to no slot: what to wait on for them (-1 if they
    // come by poll() like everything else), and the feeding of those that have arrived. Whoever
    // never asks for requests gets none.
    virtual int requests_fd() { return -1; }
    virtual bool poll_requests(Instant, device::Engine&) { return false; }
    // Queue pairs were made, changed or destroyed. Under the shard's lock.
    virtual void queue_pairs_changed(const device::Engine&) {}
    // True once after addresses or links of the machine have changed, which also ends wait().
    virtual bool interfaces_changed() = 0;
    // Whether the network has said that packets did not reach peers, which also ends wait(), and
    // which ones. Anybody can forge that. Told a few times a second at most. The first for the
    // thread that waits, the other under the shard's lock.
    virtual bool has_suspects() { return false; }
    virtual cm::Suspects take_suspects() { return {}; }
};

// Something that runs beside its creator: a thread, or a fiber of a simulated node.
class Task {
public:
    virtual ~Task() = default;  // Waits for the end of the body.
};

class Host {
public:
    virtual ~Host() = default;
    virtual Instant now() = 0;
    virtual RandomSource& random() = 0;  // Safe to use from any thread.
    // As whom this process entered the port last.
    virtual Identity identity() = 0;
    // While a port is open, those of its network, whatever network the calling thread is in.
    virtual std::vector<Interface> interfaces() = 0;
    virtual Result<std::unique_ptr<HostPort>> open_port() = 0;
    // Whether more ports of this process leave enough for others. Only while one is open.
    virtual bool has_ports_to_spare() { return true; }
    // For the connection manager behind the port with that slot, whose requests wait() tells of.
    virtual Result<std::unique_ptr<Rendezvous>> open_rendezvous(SlotNumber slot,
                                                                int requests_fd) = 0;
    // For the connections behind that slot. Null where nobody would find it.
    virtual std::unique_ptr<Estate> open_estate(SlotNumber slot) = 0;
    // The address that packets to `destination` leave from; `scope` is that of a link-local one.
    virtual Result<Gid> source_for(const Gid& destination, std::uint32_t scope) = 0;
    // Lets another thread have the core if one wants it. True if none did: the caller may go on
    // polling. False also where time does not pass while a caller polls.
    virtual bool give_way() { return false; }
    virtual Result<std::unique_ptr<Task>> spawn(std::function<void()> body) = 0;
    // Around a fork of the process: in the parent both, in the child the first and abandon().
    virtual void before_fork() {}
    virtual void after_fork() {}
    // In a forked child: lets go of what must die with the parent. Takes no lock, calls no thread.
    virtual void abandon() = 0;
};

}  // namespace feroce::host
