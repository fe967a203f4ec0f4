#include "port/packet_ring.hpp"

#include <algorithm>
#include <cstring>

#include "base/assert.hpp"

namespace feroce::port {
namespace {

using detail::kRingPaths;
using detail::RingArea;
using detail::RingSlot;

constexpr std::size_t kInline = sizeof(RingSlot::bytes);
constexpr std::uint32_t kAlignment = 64;
// The size of a packet that is none: what follows is in the large area.
constexpr std::uint32_t kGrown = 0;

// A word of the other process, which may change it at any time: read once, then bounded.
template <class T>
std::uint32_t once(const T& word) {
    return *static_cast<const volatile T*>(&word);
}

// Never 0, which is what a slot says that was never written.
std::uint32_t stamp_of(const RingArea& area, std::uint64_t number) {
    return static_cast<std::uint32_t>((number >> area.lap_shift) % 0xffff'ffff) + 1;
}

std::uint32_t rounded(std::uint32_t size) {
    return (size + kAlignment - 1) / kAlignment * kAlignment;
}

// Where a packet of so many bytes begins if the area is used up to `from`: it does not wrap.
std::uint64_t beginning(const RingArea& area, std::uint64_t from, std::uint32_t size) {
    const std::uint64_t left = area.bytes.size() - area.offset(from);
    return left >= size ? from : from + left;
}

// How many may be there at once. A small one keeps a slot to say that it has grown.
std::uint64_t slots_of(const RingArea& area) {
    return area.slots.size() - (area.is_small() ? 1 : 0);
}

}  // namespace

RingSlot& RingWriter::slot(std::uint64_t number) const {
    return area_.slot(number);
}

std::optional<std::uint32_t> RingWriter::path(const RingPath& path) {
    if (last_path_ < paths_ && ring_.paths[last_path_] == path) return last_path_;
    for (std::uint32_t i = 0; i < paths_; ++i)
        if (ring_.paths[i] == path) return last_path_ = i;
    if (paths_ == kRingPaths) return std::nullopt;
    ring_.paths[paths_] = path;
    return last_path_ = paths_++;
}

// What the reader tells never goes back, nor beyond what was placed. So room that was found stays.
void RingWriter::look_at_packets_read() {
    const std::uint64_t told = area_.read->packets.load(std::memory_order_acquire);
    if (told - read_ <= placed_ - read_) read_ = told;
}

void RingWriter::look_at_bytes_read() {
    const std::uint64_t told = area_.read->bytes.load(std::memory_order_acquire);
    if (told - bytes_read_ <= bytes_placed_ - bytes_read_) bytes_read_ = told;
}

// Where the next lap begins, if this one may end here and the reader is far enough.
std::optional<std::uint64_t> RingWriter::next_lap(std::uint32_t size) {
    const std::size_t whole = area_.bytes.size();
    const std::uint64_t at = bytes_placed_ + (whole - area_.offset(bytes_placed_));
    if (at + size - bytes_read_ > whole) look_at_bytes_read();
    if (at + size - bytes_read_ > whole) return std::nullopt;
    return at;
}

std::optional<std::uint64_t> RingWriter::bytes_for(std::uint32_t size) {
    if (size > area_.bytes.size()) return std::nullopt;
    if (area_.offset(bytes_placed_) >= lap_) [[unlikely]]
        if (const auto at = next_lap(size)) return at;
    const std::uint64_t at = beginning(area_, bytes_placed_, size);
    if (at + size - bytes_read_ <= area_.bytes.size()) return at;
    look_at_bytes_read();
    if (at + size - bytes_read_ <= area_.bytes.size()) return at;
    lap_ = area_.bytes.size();
    return std::nullopt;
}

bool RingWriter::has_slot() {
    if (placed_ - read_ < slots_of(area_)) return true;
    look_at_packets_read();
    return placed_ - read_ < slots_of(area_);
}

bool RingWriter::has_room(std::uint32_t size) {
    return has_slot() && (size <= kInline || bytes_for(rounded(size)));
}

bool RingWriter::has_room(std::uint32_t size, std::uint32_t count) {
    // The end of a lap may be too short for one.
    const std::uint64_t bytes = size <= kInline ? 0 : (std::uint64_t{count} + 1) * rounded(size);
    const auto fits = [&] {
        return placed_ + count - read_ <= slots_of(area_) &&
               bytes_placed_ + bytes - bytes_read_ <= area_.bytes.size();
    };
    if (fits()) return true;
    look_at_packets_read();
    look_at_bytes_read();
    return fits();
}

ByteSpan RingWriter::place(std::uint32_t path, std::uint32_t size, std::uint32_t packets) {
    ASSERT(path < paths_ && size > 0 && size <= kRingPacketMax && packets > 0);
    if (!has_slot()) return {};
    const bool fits = size <= kInline;
    const auto at = fits ? bytes_placed_ : bytes_for(rounded(size));
    if (!at) return {};
    RingSlot& slot = this->slot(placed_++);
    slot.size = size;
    slot.path = static_cast<std::uint16_t>(path);
    slot.packets = static_cast<std::uint16_t>(packets);
    slot.skipped = static_cast<std::uint32_t>(*at - bytes_placed_);
    bytes_placed_before_ = bytes_placed_;
    if (fits) return ByteSpan(slot.bytes).first(size);
    if (*at != bytes_placed_) {
        skip_begin_ = bytes_placed_;
        skip_end_ = *at;
    }
    bytes_placed_ = *at + rounded(size);
    return area_.bytes.subspan(area_.offset(*at), size);
}

transport::RunSink::Unread RingWriter::unread() {
    look_at_packets_read();
    look_at_bytes_read();
    const std::uint64_t passed_over =
        bytes_read_ < skip_end_ ? skip_end_ - std::max(skip_begin_, bytes_read_) : 0;
    return {placed_ - read_, bytes_placed_ - bytes_read_ - passed_over};
}

// The slot for it is always there.
void RingWriter::grow() {
    ASSERT(is_small());
    slot(placed_++).size = kGrown;
    publish();
    area_ = RingArea::large(ring_);
    lap_ = detail::kRingLap;
    placed_ = published_ = read_ = 0;
    bytes_placed_ = bytes_placed_before_ = bytes_read_ = skip_begin_ = skip_end_ = 0;
}

void RingWriter::take_back() {
    ASSERT(published_ < placed_);
    --placed_;
    bytes_placed_ = bytes_placed_before_;
    if (skip_end_ > bytes_placed_) skip_begin_ = skip_end_ = 0;
}

bool RingWriter::publish() {
    if (published_ == placed_) return false;
    // The first one last: it is what a reader looks at that has read all before. In one order with
    // what both sides look at next: whether the reader sleeps, and whether it was told.
    for (std::uint64_t i = published_ + 1; i != placed_; ++i)
        slot(i).stamp.store(stamp_of(area_, i), std::memory_order_release);
    slot(published_).stamp.store(stamp_of(area_, published_), std::memory_order_seq_cst);
    published_ = placed_;
    return true;
}

// Death may come between any two of these writes.
bool RingWriter::leave_behind(std::uint32_t path, transport::AckView ack) {
    ASSERT(path < paths_);
    if (legacies_ == detail::kRingLegacies) return false;
    detail::RingLegacy& legacy = ring_.legacies[legacies_];
    legacy.path = path;
    std::memcpy(legacy.ack.data(), ack.data(), ack.size());
    ring_.legacy_count.store(++legacies_, std::memory_order_release);
    return true;
}

void RingWriter::take_legacies_back() {
    legacies_ = 0;
    ring_.legacy_count.store(0, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // What is left next comes after it.
}

bool RingWriter::has_room_for(const RingPath& path) const {
    const auto known = ring_.paths.begin() + paths_;
    return paths_ < kRingPaths || std::find(ring_.paths.begin(), known, path) != known;
}

const RingSlot& RingReader::slot() const {
    return area_.slot(taken_);
}

void RingReader::follow() {
    area_ = RingArea::large(ring_);
    taken_ = bytes_taken_ = 0;
}

bool RingReader::waiting() const {
    return !dead_ && slot().stamp.load(std::memory_order_seq_cst) == stamp_of(area_, taken_);
}

// All returns are of one object, built in its place: copies of words that were just written would
// wait for them.
std::optional<RingReader::Packet> RingReader::next() {
    std::optional<Packet> out;
    if (!waiting()) return out;
    const RingSlot& slot = this->slot();
    const std::uint32_t size = once(slot.size), path = once(slot.path),
                        packets = once(slot.packets), skipped = once(slot.skipped);
    if (size == kGrown && area_.is_small()) [[unlikely]] {
        follow();
        out = next();
        return out;
    }
    const bool fits = size <= kInline;
    const std::uint64_t at = bytes_taken_ + skipped;
    dead_ = size == 0 || size > kRingPacketMax || path >= kRingPaths || packets == 0 ||
            (!fits && area_.offset(at) + rounded(size) > area_.bytes.size());
    if (dead_) return out;
    Packet& packet = out.emplace();
    packet.path = ring_.paths[path];
    packet.packets = packets;
    if (fits) {
        packet.bytes = ByteView(slot.bytes).first(size);
    } else {
        packet.bytes = ByteView(area_.bytes).subspan(area_.offset(at), size);
        bytes_taken_ = at + rounded(size);
    }
    ++taken_;
    return out;
}

std::optional<RingReader::Packet> RingReader::left_behind(std::uint32_t i) const {
    std::optional<Packet> out;
    if (dead_ || i >= detail::kRingLegacies ||
        i >= ring_.legacy_count.load(std::memory_order_acquire))
        return out;
    const detail::RingLegacy& legacy = ring_.legacies[i];
    const std::uint32_t path = once(legacy.path);
    if (path >= kRingPaths) return out;
    Packet& packet = out.emplace();
    packet.bytes = legacy.ack;
    packet.path = ring_.paths[path];
    return out;
}

void RingReader::release() {
    area_.read->bytes.store(bytes_taken_, std::memory_order_release);
    area_.read->packets.store(taken_, std::memory_order_release);
}

}  // namespace feroce::port
