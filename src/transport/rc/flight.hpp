// What a requester knows of what it sent.
#pragma once

#include <cstdint>

#include "base/packet_number.hpp"
#include "base/ring.hpp"
#include "base/time.hpp"
#include "transport/counters.hpp"

namespace feroce::transport::rc {

// What goes out next: a packet of the request with that index.
struct Position {
    std::uint64_t index = 0;
    std::uint32_t packet = 0;
    Counter resend_cause = Counter::ResentByTimeout;  // Of the last rewind.
    bool ends_turn = false;                           // With the next packet.
};
// A resend long before the acknowledgement timeout, when round trips are known to be short: the
// oldest packet again, alone, since the peer may only be slow. It is not counted: retry_count
// means timeouts of the length the program chose. A repair is one too, of what the peer said is
// missing.
struct Probe {
    Instant deadline = kNever;
    std::uint8_t sent = 0;      // Since the last progress: each waits twice as long.
    std::uint8_t run = 1;       // How many packets the next one sends.
    std::uint8_t repeated = 0;  // How many were sent, from the oldest on.
    std::uint8_t echoes = 0;    // The last acknowledgement came again so often.
    Counter cause = Counter::ResentByProbe;
    bool due : 1 = false;
    bool sending : 1 = false;     // Only while send_probe() runs.
    bool of_message : 1 = false;  // A message's packet was probed: see rest_is_lost().
    bool is_repair : 1 = false;
};
// What was sent and is not answered.
struct Flight {
    PacketNumber una;                     // The oldest packet not yet acknowledged.
    PacketNumber sent_end;                // One past the highest packet ever sent.
    PacketNumber fresh;                   // First number that no request owns yet.
    PacketNumber taken;                   // Before it the peer has all, as its NAKs say.
    std::uint32_t bytes = 0;              // This queue pair's share of its window.
    std::uint32_t since_ack_request = 0;  // Bytes sent since an acknowledgement was asked for.
    // Each outstanding READ request or atomic: at most read_atomic_max that the peer may not have
    // executed yet.
    struct Asked {
        PacketNumber end;       // One past its last packet.
        bool executed = false;  // One of its answers is here, behind one that is missing.
    };
    Ring<Asked> asked{1};
};
// One round-trip sample at a time (Karn: never of a resent packet).
struct RttSample {
    PacketNumber packet;
    Instant sent = kNever;  // kNever: none runs.
    bool runs() const { return sent != kNever; }
    void stop() { sent = kNever; }
};
// End-to-end credits, if known: messages that take a receive may start below `limit`.
struct Credits {
    std::uint64_t next = 0;  // The number of the next message.
    std::uint64_t limit = 0;
    bool known = false;
};

}  // namespace feroce::transport::rc
