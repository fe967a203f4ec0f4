#include "port/packet_ring.hpp"

#include <algorithm>
#include <type_traits>

#include "base/assert.hpp"

namespace feroce::port {
namespace {

using detail::kRingBytes;
using detail::kRingPaths;
using detail::kRingSlots;
using detail::RingSlot;

constexpr std::size_t kInline = sizeof(RingSlot::bytes);
constexpr std::uint32_t kAlignment = 64;

// Never 0, which is what a slot says that was never written.
std::uint32_t stamp_of(std::uint64_t number) {
    return static_cast<std::uint32_t>(number / kRingSlots % 0xffff'ffff) + 1;
}

std::uint32_t rounded(std::uint32_t size) {
    return (size + kAlignment - 1) / kAlignment * kAlignment;
}

// Where a packet of so many bytes begins if the area is used up to `from`: it does not wrap.
std::uint64_t beginning(std::uint64_t from, std::uint32_t size) {
    const std::uint64_t left = kRingBytes - from % kRingBytes;
    return left >= size ? from : from + left;
}

}  // namespace

RingSlot& RingWriter::slot(std::uint64_t number) const {
    return ring_.slots[number % kRingSlots];
}

std::optional<std::uint32_t> RingWriter::path(const RingPath& path) {
    if (last_path_ < paths_ && ring_.paths[last_path_] == path) return last_path_;
    for (std::uint32_t i = 0; i < paths_; ++i)
        if (ring_.paths[i] == path) return last_path_ = i;
    if (paths_ == kRingPaths) return std::nullopt;
    ring_.paths[paths_] = path;
    return last_path_ = paths_++;
}

std::optional<std::uint64_t> RingWriter::bytes_for(std::uint32_t size) {
    const std::uint64_t at = beginning(bytes_placed_, size);
    if (at + size - bytes_read_ <= kRingBytes) return at;
    bytes_read_ = ring_.read.bytes.load(std::memory_order_acquire);
    if (at + size - bytes_read_ <= kRingBytes) return at;
    return std::nullopt;
}

bool RingWriter::has_slot() {
    if (placed_ - read_ < kRingSlots) return true;
    read_ = ring_.read.packets.load(std::memory_order_acquire);
    return placed_ - read_ < kRingSlots;
}

bool RingWriter::has_room(std::uint32_t size) {
    return has_slot() && (size <= kInline || bytes_for(rounded(size)));
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
    bytes_placed_before_ = bytes_placed_;
    if (fits) return ByteSpan(slot.bytes).first(size);
    bytes_placed_ = *at + rounded(size);
    return ByteSpan(ring_.bytes).subspan(*at % kRingBytes, size);
}

void RingWriter::take_back() {
    ASSERT(published_ < placed_);
    --placed_;
    bytes_placed_ = bytes_placed_before_;
}

bool RingWriter::publish() {
    if (published_ == placed_) return false;
    // The first one last: it is what a reader looks at that has read all before. In one order with
    // what both sides look at next: whether the reader sleeps, and whether it was told.
    for (std::uint64_t i = published_ + 1; i != placed_; ++i)
        slot(i).stamp.store(stamp_of(i), std::memory_order_release);
    slot(published_).stamp.store(stamp_of(published_), std::memory_order_seq_cst);
    published_ = placed_;
    return true;
}

bool RingWriter::has_room_for(const RingPath& path) const {
    const auto known = ring_.paths.begin() + paths_;
    return paths_ < kRingPaths || std::find(ring_.paths.begin(), known, path) != known;
}

const RingSlot& RingReader::slot() const {
    return ring_.slots[taken_ % kRingSlots];
}

bool RingReader::waiting() const {
    return !dead_ && slot().stamp.load(std::memory_order_seq_cst) == stamp_of(taken_);
}

std::optional<RingReader::Packet> RingReader::next() {
    if (!waiting()) return std::nullopt;
    // Once each: a writer that has lost its mind may change them.
    const RingSlot& slot = this->slot();
    const auto once = [](const auto& word) -> std::uint32_t {
        return *static_cast<const volatile std::remove_cvref_t<decltype(word)>*>(&word);
    };
    const std::uint32_t size = once(slot.size), path = once(slot.path),
                        packets = once(slot.packets);
    dead_ = size == 0 || size > kRingPacketMax || path >= kRingPaths || packets == 0;
    if (dead_) return std::nullopt;
    Packet out{ByteView(slot.bytes).first(std::min<std::size_t>(size, kInline)), ring_.paths[path],
               packets};
    if (size > kInline) {
        const std::uint64_t at = beginning(bytes_taken_, rounded(size));
        out.bytes = ByteView(ring_.bytes).subspan(at % kRingBytes, size);
        bytes_taken_ = at + rounded(size);
    }
    ++taken_;
    return out;
}

void RingReader::release() {
    ring_.read.bytes.store(bytes_taken_, std::memory_order_release);
    ring_.read.packets.store(taken_, std::memory_order_release);
}

}  // namespace feroce::port
