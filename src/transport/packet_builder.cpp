#include "transport/packet_builder.hpp"

#include <algorithm>

#include "base/probe.hpp"
#include "mem/scatter.hpp"
#include "transport/queue_pair.hpp"

namespace feroce::transport {

namespace {

// Large enough that headers cost nothing beside the copy, small enough for the caches of both.
constexpr std::uint32_t kWideBytes = 128 * 1024;
constexpr std::size_t kHeadersMax = wire::Bth::kSize + wire::kExtensionMax + wire::kIcrcSize;

constexpr bool kMigrated = true;  // We never migrate: IBTA says such packets carry 1.

bool goes_by_ring(const QueuePair& qp) {
    return qp.window() != nullptr && qp.window()->is_by_ring();
}

ByteSpan fill(ByteSpan packet, const PacketSpec& spec) {
    const std::size_t pad = wire::pad_of(spec.payload_size);
    const wire::Bth bth{.opcode = spec.opcode,
                        .solicited = spec.solicited,
                        .migrated = kMigrated,
                        .pad_count = static_cast<std::uint8_t>(pad),
                        .destination = spec.destination,
                        .ack_request = spec.ack_request,
                        .psn = spec.psn};
    FEROCE_PROBE4(pkt_tx, spec.destination.raw, spec.opcode, packet.size(), spec.psn.raw());
    const std::size_t header = wire::emit_headers(packet, bth, spec.extensions);
    std::fill_n(packet.begin() + static_cast<std::ptrdiff_t>(header + spec.payload_size), pad,
                std::byte{0});
    return packet.subspan(header, spec.payload_size);
}

}  // namespace

std::uint32_t packets_at_once(QueuePair& qp, std::uint32_t left) {
    if (left < 2 || !goes_by_ring(qp)) return 1;
    const std::uint32_t mtu = qp.attributes().path_mtu;
    const std::uint32_t packets = std::min(left, kWideBytes / mtu);
    const bool room = qp.services().transmit.has_room(qp.path(), qp.attributes().destination_qpn,
                                                      kHeadersMax + std::size_t{packets} * mtu);
    return room ? packets : 1;
}

ByteSpan append_packet(TransmitBatch& batch, const Path& path, const PacketSpec& spec) {
    const std::size_t size = wire::packet_size(spec.opcode, spec.payload_size);
    return fill(batch.append(path, spec.destination, size), spec);
}

ByteSpan append_packet(QueuePair& qp, const PacketSpec& spec) {
    TransmitBatch& batch = qp.services().transmit;
    const std::size_t size = wire::packet_size(spec.opcode, spec.payload_size);
    const Path path = qp.path();
    const bool in_ring = spec.packets > 1 ||  // packets_at_once() has asked for room.
                         (goes_by_ring(qp) && batch.has_room(path, spec.destination, size));
    return fill(in_ring ? batch.place(path, spec.destination, size, spec.packets)
                        : batch.append(path, spec.destination, size),
                spec);
}

void build_ack(AckBytes into, wire::Opcode opcode, Qpn destination, Psn psn, wire::Aeth aeth) {
    const wire::Bth bth{
        .opcode = opcode, .migrated = kMigrated, .destination = destination, .psn = psn};
    bth.emit(into.first<wire::Bth::kSize>());
    aeth.emit(into.subspan<wire::Bth::kSize, wire::Aeth::kSize>());
    std::fill_n(into.end() - wire::kIcrcSize, wire::kIcrcSize, std::byte{0});
}

mem::Fault gather_payload(QueuePair& qp, std::uint64_t wqe_index, std::uint64_t offset,
                          ByteSpan into) {
    if (into.empty()) return mem::Fault::None;
    SendQueue& queue = qp.send_queue();
    const SendWqe& wqe = queue.at(wqe_index);
    if (!wqe.inlined)
        return mem::gather(qp.services().memory, qp.init().pd, queue.sges(wqe_index), offset, into);
    const ByteView bytes = queue.inline_data(wqe_index).subspan(offset, into.size());
    std::copy(bytes.begin(), bytes.end(), into.begin());
    return mem::Fault::None;
}

}  // namespace feroce::transport
