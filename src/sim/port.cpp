#include "sim/port.hpp"

#include <algorithm>
#include <utility>

#include "base/assert.hpp"

namespace feroce::sim {

namespace {

constexpr double kRoomChance = 0.8;

}  // namespace

void SimPort::transmit(std::span<const transport::TransmitRun> runs) {
    send_placed();
    for (const auto& run : runs) send_run(run);
}

void SimPort::send_run(const transport::TransmitRun& run) {
    const wire::DatagramAddress address = address_of(run.path);
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
        send(frame);
    }
    ASSERT(id == run.packet_count);
}

wire::DatagramAddress SimPort::address_of(const transport::Path& path) {
    return {.source = path.source,
            .destination = path.destination,
            .source_port = static_cast<std::uint16_t>(0xc000 | (path.flow & 0x3fff))};
}

void SimPort::send(const FramePtr& frame) {
    parts_.trace.frame(parts_.scheduler.now(), TraceEvent::Sent, node_, *frame);
    ++packets_sent_;
    parts_.uplink.deliver(frame);
}

bool SimPort::has_room(const transport::Path&, SlotNumber, std::size_t) {
    return rings_ != nullptr && rings_->chance(kRoomChance);
}

ByteSpan SimPort::place(const transport::Path& path, SlotNumber, std::size_t size,
                        std::uint32_t packets) {
    send_placed();
    placed_ = std::make_shared<Frame>();
    placed_->address = address_of(path);
    placed_->traffic_class = path.traffic_class;
    placed_->hop_limit = path.hop_limit;
    placed_->sealed = false;
    placed_->packets = packets;
    placed_->bytes.resize(size);
    return placed_->bytes;
}

void SimPort::send_placed() {
    if (const auto frame = std::exchange(placed_, nullptr)) {
        send(frame);
        while (!sent_placed_.empty() && sent_placed_.front().expired()) sent_placed_.pop_front();
        sent_placed_.push_back(frame);
    }
}

std::optional<transport::RunSink::Unread> SimPort::unread(SlotNumber) {
    if (rings_ == nullptr) return std::nullopt;
    std::erase_if(sent_placed_, [](const auto& frame) { return frame.expired(); });
    Unread out{sent_placed_.size(), 0};
    for (const auto& frame : sent_placed_) out.bytes += frame.lock()->bytes.size();
    return out;
}

bool SimPort::join_group(const Gid& group) {
    parts_.groups.join(group, address_);
    return true;
}

void SimPort::leave_group(const Gid& group) {
    parts_.groups.leave(group, address_);
}

}  // namespace feroce::sim
