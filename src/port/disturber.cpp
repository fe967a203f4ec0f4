#include "port/disturber.hpp"

#include <utility>

#include "port/segmenter.hpp"

namespace feroce::port {
namespace {

constexpr std::size_t kHeldMax = 64;

Disturber::Packet packet_of(const transport::TransmitRun& run, ByteView bytes,
                            std::uint64_t flip_seed) {
    Disturber::Packet out{run, {bytes.begin(), bytes.end()}, flip_seed};
    out.run.bytes = out.bytes;  // They stay where they are when the packet is moved.
    out.run.segment_size = static_cast<std::uint32_t>(bytes.size());
    out.run.packet_count = 1;
    return out;
}

}  // namespace

std::vector<Disturber::Packet> Disturber::disturb(const transport::TransmitRun& run) {
    std::vector<Packet> out;
    for_each_packet(run.bytes, run.segment_size, [&](ByteSpan packet) {
        const FaultInjector::Fate fate = faults_.next(packet);
        if (fate.drop) return;
        if (fate.hold && held_.size() < kHeldMax) {
            held_.push_back(packet_of(run, packet, fate.flip_seed));
            return;
        }
        out.push_back(packet_of(run, packet, fate.flip_seed));
        if (fate.duplicate) out.push_back(packet_of(run, packet, fate.flip_seed));
        for (Packet& held : held_) out.push_back(std::move(held));
        held_.clear();
    });
    return out;
}

}  // namespace feroce::port
