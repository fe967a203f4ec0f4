#include "transport/transmit_batch.hpp"

#include "base/assert.hpp"

namespace feroce::transport {

namespace {

constexpr std::size_t kRunsMax = 256;

}  // namespace

TransmitBatch::TransmitBatch(RunSink& sink, std::size_t arena_bytes)
    : sink_(sink), arena_(arena_bytes) {
    runs_.reserve(kRunsMax);
}

bool TransmitBatch::extends_last_run(const Path& path, Qpn destination, std::size_t size) const {
    if (runs_.empty() || destination == kGeneralServicesQpn) return false;
    const TransmitRun& run = runs_.back();
    const bool last_is_full = run.bytes.size() == std::size_t{run.segment_size} * run.packet_count;
    return last_is_full && !run.is_for_manager && size <= run.segment_size &&
           run.destination_slot == slot_of(destination) && run.packet_count < kRunPacketsMax &&
           run.bytes.size() + size <= kRunBytesMax && run.path == path;
}

ByteSpan TransmitBatch::append(const Path& path, Qpn destination, std::size_t size) {
    ASSERT(size > 0 && size <= arena_.size());
    if (used_ + size > arena_.size() || runs_.size() == kRunsMax) flush();
    const ByteSpan packet = ByteSpan(arena_).subspan(used_, size);
    used_ += size;
    if (extends_last_run(path, destination, size)) {
        TransmitRun& run = runs_.back();
        run.bytes = {run.bytes.data(), run.bytes.size() + size};
        ++run.packet_count;
    } else {
        runs_.push_back({path, packet, static_cast<std::uint32_t>(size), 1, slot_of(destination),
                         destination == kGeneralServicesQpn});
    }
    ++packets_sent_;
    bytes_sent_ += size;
    placed_last_ = false;
    return packet;
}

bool TransmitBatch::has_room(const Path& path, Qpn destination, std::size_t size) {
    if (refused_) return false;
    if (!runs_.empty()) send();
    refused_ = !sink_.has_room(path, slot_of(destination), size);
    return !refused_;
}

ByteSpan TransmitBatch::place(const Path& path, Qpn destination, std::size_t size,
                              std::uint32_t packets) {
    ASSERT(runs_.empty() && !refused_);
    const ByteSpan packet = sink_.place(path, slot_of(destination), size, packets);
    ASSERT(packet.size() == size);
    placed_ = placed_last_ = true;
    ++packets_sent_;
    bytes_sent_ += size;
    return packet;
}

void TransmitBatch::retract(std::size_t size) {
    --packets_sent_;
    bytes_sent_ -= size;
    if (placed_last_) {
        placed_last_ = false;
        return sink_.take_back();
    }
    ASSERT(!runs_.empty() && used_ >= size);
    TransmitRun& run = runs_.back();
    used_ -= size;
    run.bytes = run.bytes.first(run.bytes.size() - size);
    if (--run.packet_count == 0) runs_.pop_back();
}

void TransmitBatch::flush() {
    if (placed_ || !runs_.empty()) send();
    placed_ = refused_ = false;
}

void TransmitBatch::send() {
    sink_.transmit(runs_);
    runs_.clear();
    used_ = 0;
}

}  // namespace feroce::transport
