// RelaySeat: a guest's place at another user's port group (relay_server.hpp): a slot, and the
// connection over which the group passes on what arrives for it.
#pragma once

#include <sys/un.h>

#include <cstdint>

#include "base/result.hpp"
#include "port/fd.hpp"

namespace feroce::port {

struct RelaySeat {
    Fd connection;
    std::uint8_t slot = 0;
    std::uint32_t owner = 0;  // The user whose processes pass our packets on.
    std::uint64_t token = 0;  // What comes with it is from one of them, whatever its user by now.

    // `wish`: the slot of the seat that was lost, 0 for any. ECONNREFUSED or EAGAIN if nobody
    // answers, which may be different a moment later.
    static Result<RelaySeat> ask(std::uint16_t port, std::uint32_t owner, std::uint32_t wish);
    static Result<RelaySeat> ask_over(Fd connection, std::uint32_t owner, std::uint32_t wish);

    // Somebody must read connection requests, of which some are for us.
    void want_requests() const;
};

}  // namespace feroce::port
