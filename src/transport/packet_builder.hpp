// How every transport makes a packet: headers into the batch's arena, payload by mem/ behind them.
// The pad is zeroed; the four bytes of the ICRC are left to the port, which alone knows the IP id.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.hpp"
#include "base/ids.hpp"
#include "base/psn.hpp"
#include "mem/memory.hpp"
#include "transport/transmit_batch.hpp"
#include "transport/types.hpp"
#include "wire/packet.hpp"

namespace feroce::transport {

class QueuePair;

struct PacketSpec {
    wire::Opcode opcode = wire::Opcode::RcSendOnly;
    Qpn destination;
    Psn psn;
    bool ack_request = false;
    bool solicited = false;
    wire::Extensions extensions;
    std::size_t payload_size = 0;
    std::uint32_t packets = 1;  // That it stands for; more than 1 if it is wide.
};

// A wide packet is what several consecutive packets of one message would be, and uses as many PSNs:
// one header, and their payloads in a row. How many is told beside it, so that a peer
// with another path MTU is found out. It goes where the receiver reads the memory that it is
// built in, and nowhere else, so sizes of packets on a network stay what the path MTU says. Whether
// one is wide is decided each time it is sent, also when it is sent again.
//
// How many of the next `left` packets of a message can be sent as one now. With 1 the packet is not
// wide; else it is the next that must be made.
std::uint32_t packets_at_once(QueuePair& qp, std::uint32_t left);

// Returns the payload area, which the caller must fill before the next append or flush. If it
// cannot, it takes the packet back: retract(wire::packet_size(opcode, payload_size)).
ByteSpan append_packet(TransmitBatch& batch, const Path& path, const PacketSpec& spec);
// The same, to the peer of a reliable queue pair: in memory that the peer reads where there is
// some, so that nothing is copied on the way.
ByteSpan append_packet(QueuePair& qp, const PacketSpec& spec);

// A bare acknowledgement that is not sent.
void build_ack(AckBytes into, wire::Opcode opcode, Qpn destination, Psn psn, wire::Aeth aeth);

// Fills `into` with the bytes from `offset` of the request's message: inline data or a gather.
mem::Fault gather_payload(QueuePair& qp, std::uint64_t wqe_index, std::uint64_t offset,
                          ByteSpan into);

}  // namespace feroce::transport
