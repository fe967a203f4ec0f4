// A lot: where the sockets of one chunk of slots lie, bound and read by nobody, so that not every
// process has to hold all of them. It is a unix socket that is connected to itself, in whose queue
// one message waits for ever; the message carries the sockets. Every process that has the lot can
// look at the message, and gets the sockets without taking it out. Nobody else can send to a lot.
#pragma once

#include <array>
#include <optional>

#include "port/fd.hpp"
#include "port/slot_set.hpp"

namespace feroce::port {

// Of the slots of one chunk, those of IPv6 invalid where there is none.
struct ChunkSockets {
    std::array<Fd, kChunkSlots> v4;
    std::array<Fd, kChunkSlots> v6;
};
struct SlotSockets {
    Fd v4;
    Fd v6;
};

Fd make_lot();  // An empty one; invalid with errno.
// All sockets or none; false with errno. ETOOMANYREFS: the kernel keeps no more for this user.
bool park(int lot, const ChunkSockets& sockets);
bool is_empty(int lot);
// Those of the slot of that number within the chunk. None with errno; EMFILE: for a moment there
// must be room for all of the chunk.
std::optional<SlotSockets> look_up(int lot, std::uint32_t number);

}  // namespace feroce::port
