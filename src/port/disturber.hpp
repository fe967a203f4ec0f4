// Disturber: what fault injection makes of the packets that a process sends. It stands in front of
// the sender: for each run it says what leaves instead, packet by packet. A damaged packet is
// sealed first and damaged then, or its ICRC would cover the damage. Under its shard's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "port/faults.hpp"
#include "transport/transmit_batch.hpp"

namespace feroce::port {

class Disturber {
public:
    struct Packet {
        transport::TransmitRun run;  // Of this packet alone; its bytes are these:
        std::vector<std::byte> bytes;
        std::uint64_t flip_seed = 0;  // Not 0: FaultInjector::flip_bits() when it is sealed.
    };

    explicit Disturber(FaultInjector& faults) : faults_(faults) {}

    // What leaves instead of this run, in this order. Packets that were held back before are among
    // it.
    std::vector<Packet> disturb(const transport::TransmitRun& run);

private:
    FaultInjector& faults_;
    std::vector<Packet> held_;  // They leave behind the next packet that does.
};

}  // namespace feroce::port
