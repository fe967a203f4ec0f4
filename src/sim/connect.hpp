// Brings queue pairs from RESET to RTS against each other, as a connection manager would.
#pragma once

#include <cstdint>

#include "base/psn.hpp"
#include "sim/node.hpp"
#include "transport/qp_state.hpp"
#include "transport/queue_pair.hpp"

namespace feroce::sim {

struct ConnectOptions {
    std::uint32_t path_mtu = 1024;
    std::uint8_t timeout = 10;  // 4.096 us * 2^10 = 4.2 ms.
    std::uint8_t retry_count = 7;
    std::uint8_t rnr_retry = 7;
    std::uint8_t min_rnr_timer = 1;  // 10 us.
    std::uint8_t read_atomic_max = 4;
    Qkey qkey{0x1234'5678};
};

// One side, with its first PSN.
struct Side {
    Node& node;
    transport::QueuePair& qp;
    Psn first_psn;
};

// Both directions. A datagram queue pair is only made ready.
void connect(const Side& a, const Side& b, const ConnectOptions& options);

// To ERR or RESET; to SQD, which is told when it is drained; or from there to RTS.
void move_to(Node& node, transport::QueuePair& qp, transport::QpState state);
// Attributes of a queue pair that stays in its state.
void change(Node& node, transport::QueuePair& qp, transport::QpAttributes attributes,
            transport::AttributeMask mask);

transport::Path path_between(const Node& from, const Node& to, std::uint16_t flow);

}  // namespace feroce::sim
