#include "sim/port.hpp"

#include <algorithm>

#include "base/assert.hpp"

namespace feroce::sim {

void SimPort::transmit(std::span<const transport::TransmitRun> runs) {
    for (const auto& run : runs) send_run(run);
}

void SimPort::send_run(const transport::TransmitRun& run) {
    const wire::DatagramAddress address{
        .source = run.path.source,
        .destination = run.path.destination,
        .source_port = static_cast<std::uint16_t>(0xc000 | (run.path.flow & 0x3fff))};
    ASSERT(run.segment_size > 0 && !run.bytes.empty());
    wire::seal_run(address, run.bytes, run.segment_size);

    std::uint16_t id = 0;
    for (std::size_t at = 0; at < run.bytes.size(); at += run.segment_size, ++id) {
        const std::size_t size = std::min<std::size_t>(run.segment_size, run.bytes.size() - at);
        auto frame = std::make_shared<Frame>();
        frame->address = address;
        frame->ipv4_id = id;
        frame->traffic_class = run.path.traffic_class;
        frame->hop_limit = run.path.hop_limit;
        const ByteView packet = run.bytes.subspan(at, size);
        frame->bytes.assign(packet.begin(), packet.end());
        parts_.trace.frame(parts_.scheduler.now(), TraceEvent::Sent, node_, *frame);
        ++packets_sent_;
        parts_.uplink.deliver(frame);
    }
    ASSERT(id == run.packet_count);
}

bool SimPort::join_group(const Gid& group) {
    parts_.groups.join(group, address_);
    return true;
}

void SimPort::leave_group(const Gid& group) {
    parts_.groups.leave(group, address_);
}

}  // namespace feroce::sim
