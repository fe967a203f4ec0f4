// Rendezvous: how the connection managers of one machine's processes share ports and requests, and
// what their threads wait on. Requests are addressed to no process, so any may read one; it hands
// it to the process that has leased the port. port/ implements it on this machine, sim/ on a node.
//
// Guarded by its owner's lock, but for wait() and wake().
#pragma once

#include <cstdint>
#include <vector>

#include "base/gid.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "wire/cma.hpp"
#include "wire/mad.hpp"

namespace feroce::host {

// A message of the connection manager with its addresses.
struct CmDatagram {
    Gid source;
    Gid destination;
    wire::MadBytes mad;
};

// A port of a port space on an address, ours alone among the processes of this machine.
struct PortLease {
    std::uint32_t id = 0;  // 0: none.
    std::uint16_t port = 0;
};

// Port 0 becomes one of those that Linux gives out by default; `random` says which.
inline constexpr std::uint16_t kFirstFreePort = 32768;
inline constexpr std::uint16_t kFreePorts = 28232;
inline std::uint16_t free_port(std::uint64_t random) {
    return static_cast<std::uint16_t>(kFirstFreePort + random % kFreePorts);
}

class Rendezvous {
public:
    virtual ~Rendezvous() = default;

    // Port 0 picks a free one. EADDRINUSE if somebody has it.
    virtual Result<PortLease> lease(wire::PortSpace space, const Gid& address,
                                    std::uint16_t port) = 0;
    virtual void end(const PortLease& lease) = 0;
    // A message that is for none here. A request goes to who has leased its port, and no
    // further from there; a refusal that does not say which connection it ends goes to everybody.
    // True if another process has taken it, or will when its queue has room.
    virtual bool offer(const CmDatagram& message) = 0;
    // Tries again what found a full queue, if it is time. When to call again at the latest.
    virtual Instant retry(Instant now) = 0;
    // Appends what others have handed over and wait() has found.
    virtual void drain(std::vector<CmDatagram>& out) = 0;

    // Sleeps until there is something to do, wake() is called or `until` has passed. True if
    // connection requests wait in the port. For one thread, which holds no lock.
    virtual bool wait(Instant until) = 0;
    virtual void wake() = 0;  // Any thread. Not lost if nobody waits yet.

    virtual void abandon() = 0;  // In a forked child.
};

}  // namespace feroce::host
