// RelaySeat: a guest's place at another user's port group (relay_server.hpp): a slot, and the
// connection over which the group passes on what arrives for it.
#pragma once

#include <sys/un.h>

#include <cstdint>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "port/fd.hpp"

namespace feroce::port {

// The seat that a guest had before; slot 0 for none.
struct FormerSeat {
    std::uint32_t slot = 0;
    std::uint64_t token = 0;
};

struct RelaySeat {
    Fd connection;
    SlotNumber slot = 0;
    std::uint32_t owner = 0;  // The user whose processes pass our packets on.
    std::uint64_t token = 0;  // What comes with it is from one of them, whatever its user by now.
    pid_t relay = 0;          // The process that does; 0 if it is in another namespace.

    // `before`: is wanted again. ECONNREFUSED or EAGAIN if nobody answers within `patience`, which
    // may be different a moment later.
    static Result<RelaySeat> ask(std::uint16_t port, std::uint32_t owner, FormerSeat before,
                                 Duration patience);
    static Result<RelaySeat> ask_over(Fd connection, std::uint32_t owner, FormerSeat before,
                                      Duration patience);

    // Somebody must read connection requests, of which some are for us.
    void want_requests() const;

    // A word that the relay reads if it runs, and whether all that was said has been read.
    void say_something() const;
    bool is_unread() const;
};

}  // namespace feroce::port
