// Identity: as which user this process shares UDP port 4791, in which network, and with whom.
// Captured when the port is entered, because that is when the kernel marks the sockets with a user
// and a network namespace, and handed down from there like time and randomness: a process that
// gives up its privileges or moves to another network later stays where it is, and a process of its
// new user is a stranger to it like any other.
#pragma once

#include <cstdint>

namespace feroce::host {

// With whom processes share. Whoever owns the port could read what it relays, and change it.
enum class Sharing : std::uint8_t {
    User,     // With processes of this user alone.
    Default,  // Other users are served; root is a guest of nobody.
    Any,      // And root is a guest of anybody.
};

struct Identity {
    std::uint32_t user = 0;
    std::uint64_t network = 0;  // The network namespace's inode; 0 where the kernel does not say.
    Sharing sharing = Sharing::Default;

    bool serves_others() const { return sharing != Sharing::User; }
};

}  // namespace feroce::host
