#include "port/parcel_receiver.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "port/port_group.hpp"
#include "port/socket_calls.hpp"
#include "wire/mad.hpp"

namespace feroce::port {
namespace {

constexpr int kHandOverBatch = 8;

// `only`: packets for other slots are dropped; 0 for none. A parcel is never handed on, because two
// stale names could send it round in circles.
void deliver(Instant now, device::Engine& engine, ByteView parcel, SlotNumber only,
             Capture* capture) {
    if (parcel.size() <= sizeof(ParcelHeader)) return;
    ParcelHeader about;
    std::memcpy(&about, parcel.data(), sizeof about);
    ByteView rest = parcel.subspan(sizeof about);
    const std::size_t size = about.segment_size == 0 ? rest.size() : about.segment_size;
    device::Datagram packet{.bytes = {},
                            .source = about.source,
                            .destination = about.destination,
                            .source_port = about.source_port,
                            .id_hint = about.id_hint,
                            .traffic_class = about.traffic_class,
                            .hop_limit = about.hop_limit};
    for (; !rest.empty(); ++packet.id_hint) {
        packet.bytes = rest.first(std::min(size, rest.size()));
        rest = rest.subspan(packet.bytes.size());
        if (only != 0 && wire::steered_slot(packet.bytes) != only) continue;
        if (capture != nullptr)
            capture->write({.address = {packet.source, packet.destination, packet.source_port},
                            .ipv4_id = packet.id_hint,
                            .traffic_class = packet.traffic_class,
                            .udp_payload = packet.bytes,
                            .direction = wire::Direction::Inbound});
        engine.receive(now, packet);
    }
}

}  // namespace

HandOverReceiver::HandOverReceiver(const PortGroup& group, SlotNumber slot, Capture* capture)
    : group_(group), slot_(slot), capture_(capture), buffer_(kParcelMax) {
    const ForkGate::Hold hold(group_.fork_gate());
    group_.fork_gate().add(*this);
    fd_ = make_parcel_socket(name_);
}

HandOverReceiver::~HandOverReceiver() {
    const ForkGate::Hold hold(group_.fork_gate());
    group_.fork_gate().remove(*this);
    fd_.reset();
}

bool HandOverReceiver::poll(Instant now, device::Engine& engine, RingMessageSink& rings) {
    if (!fd_.valid()) return false;
    for (int i = 0; i < kHandOverBatch; ++i) {
        Fd attached;
        ForkGate::Hold hold(group_.fork_gate());
        const ByteView parcel = receive_from_member(fd_.get(), group_, buffer_, &attached);
        if (parcel.empty()) return i > 0;
        const auto message = parse_ring_message(parcel);
        // The end of a tie must have its holder before a fork. The rest may take long.
        if (!message || message->kind != RingMessage::Kind::Tie) hold.end();
        if (message && attached.valid())
            rings.take(now, engine, *message, std::move(attached));
        else
            deliver(now, engine, parcel, slot_, capture_);
    }
    return true;
}

RelayReceiver::RelayReceiver(int fd, Capture* capture) : fd_(fd), capture_(capture) {
    if (fd_ < 0) return;
    buffers_ = std::make_unique<std::byte[]>(kBatch * kParcelMax);
    for (std::size_t i = 0; i < kBatch; ++i) {
        vecs_[i] = {buffers_.get() + i * kParcelMax, kParcelMax};
        headers_[i].msg_hdr.msg_iov = &vecs_[i];
        headers_[i].msg_hdr.msg_iovlen = 1;
    }
}

bool RelayReceiver::poll(Instant now, device::Engine& engine) {
    if (fd_ < 0 || ended_) return false;
    const int count = receive_messages(fd_, headers_);
    if (count <= 0) {
        ended_ = count < 0 && errno != EAGAIN && errno != EINTR;
        return false;
    }
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
        // The end of a connection reads as empty messages without end.
        ended_ = headers_[i].msg_len == 0;
        if (ended_) return i > 0;
        const ByteView parcel(buffers_.get() + i * kParcelMax, headers_[i].msg_len);
        deliver(now, engine, parcel, 0, capture_);
    }
    return true;
}

}  // namespace feroce::port
