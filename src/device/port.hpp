// Port: a way to the network, the only one an engine has. Implemented by port/ (UDP sockets), sim/
// (a simulated link) and tests.
#pragma once

#include <cstdint>

#include "base/bytes.hpp"
#include "base/gid.hpp"
#include "transport/transmit_batch.hpp"

namespace feroce::device {

// What arrived, from the BTH to the ICRC. The bytes belong to the caller and are read only.
struct Datagram {
    ByteView bytes;
    Gid source;
    Gid destination;  // Zero if the port does not know: see Port::tell_destinations().
    std::uint16_t source_port = 0;
    // The IPv4 id the sender most likely used: 0, or the place in a segmented send.
    std::uint16_t id_hint = 0;
    std::uint8_t traffic_class = 0;  // Low two bits: ECN.
    std::uint8_t hop_limit = 64;
    // By a network: its ICRC is verified, and the source port is that of a socket. Not so by the
    // memory of another process, which may also change what is read, at any time.
    bool sealed = true;
    // How many it stands for: more than 1 for a wide one, which is never sealed.
    std::uint32_t packets = 1;
};

// Packets that went by rings in shared memory, and those that found one full and went by UDP.
struct RingCounts {
    std::uint64_t sent = 0;
    std::uint64_t overflowed = 0;
    std::uint64_t memory = 0;   // That the rings have now, in bytes.
    std::uint64_t refused = 0;  // Rings that there was no memory for.
};

class Port : public transport::RunSink {
public:
    // Multicast membership for a group address. False if the network cannot.
    virtual bool join_group(const Gid& group) = 0;
    virtual void leave_group(const Gid& group) = 0;
    // From now on every datagram must say which of our addresses it was sent to. Until then a port
    // may spare itself the asking: connected queue pairs know.
    virtual void tell_destinations() {}
    // A packet for another shard or process that landed here, as a NIC that merges packets may
    // cause: passes it to its owner. False if there is none, or no way.
    virtual bool hand_over(const Datagram&) { return false; }
    // Whether packets of this path to that slot go by memory, where a late answer means a process
    // that sleeps and not a full queue; and how often that may have changed.
    virtual bool goes_by_ring(const transport::Path&, SlotNumber) const { return false; }
    virtual std::uint64_t ring_changes() const { return 0; }
    virtual RingCounts ring_counts() const { return {}; }
    virtual std::uint64_t unsent_packets() const { return 0; }  // Refused, or found no room.
};

}  // namespace feroce::device
