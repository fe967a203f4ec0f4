#include "rsocket/stream.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/assert.hpp"

namespace feroce::rsockets {
namespace {

// Where nothing travels yet, a first chunk leaves early, so that it travels while the next is
// copied. Every message has a cost of its own, that of copying some KiB on each side: so chunks are
// not small, grow, and leave no small rest behind.
constexpr std::size_t kFirstChunk = 8 * 1024;
constexpr std::size_t kMostChunk = 64 * 1024;
// With less room in the send ring than this, the program waits: messages do not get tiny.
constexpr std::size_t kLeastRoom = 2048;

constexpr std::uint64_t kTagSlotShift = 62;
constexpr std::uint64_t kTagLength = (std::uint64_t{1} << kTagSlotShift) - 1;

std::uint32_t native32(std::uint32_t v, std::endian order) {
    return order == std::endian::native ? v : __builtin_bswap32(v);
}
std::uint64_t native64(std::uint64_t v, std::endian order) {
    return order == std::endian::native ? v : __builtin_bswap64(v);
}

// How much of the `left` bytes goes next, where chunks have grown to `chunk`.
std::size_t next_length(std::size_t left, std::size_t chunk) {
    if (left <= kMostChunk && left < chunk + chunk / 2) return left;
    return std::min(left, chunk);
}

}  // namespace

Stream::Stream(const StreamConfig& config)
    : config_(config), messages_(std::size_t{config.receive_queue} + 1) {
    ASSERT(config.send_queue > kControlSlots && config.copied_limit <= kMostCopied);
    ASSERT(config.receive_ring.size() % 2 == 0 && config.send_ring.size() >= kLeastRoom);
    ASSERT(config.targets.size() >= targets_size(config.mappings));
    free_ = half();
    free_at_ = half();
    granted_ = half();
    next_credits_ = static_cast<std::uint16_t>(config.receive_queue / 2);
}

Greeting Stream::greeting() const {
    Greeting g;
    g.order = config_.order;
    g.credits = static_cast<std::uint16_t>(config_.receive_queue);
    g.mappings = config_.mappings;
    g.targets = {config_.targets_address, config_.targets_key, kTargets};
    g.first = {config_.receive_address, config_.receive_key, static_cast<std::uint32_t>(half())};
    return g;
}

Result<void> Stream::meet(const Greeting& peer) {
    if (peer.targets.length < kTargets) return Error{EPROTO, "the peer has too few targets"};
    peer_ = peer;
    target_ = peer.first;
    credit_limit_ = peer.credits;
    return {};
}

void Stream::open(Outlet& out) {
    if (error_ != 0 || opened_) return;
    opened_ = true;
    readable_ = true;
    writable_ = true;
    flush(out);
}

void Stream::fail(int code) {
    // What was said before counts: an end that the peer told is no failure.
    if ((!opened_ || is_connected()) && error_ == 0) error_ = code;
    readable_ = false;
    writable_ = false;
    controls_.clear();
}

bool Stream::is_quiet() const {
    return data_slots_ == 0 && control_slots_ == 0 && controls_.empty();
}

// ---- sending

// The second half of an entry is the key and the length. The peer's write makes it visible last, so
// a length that is not zero says that all of the entry is there.
std::uint32_t Stream::waiting_length(std::size_t index) const {
    auto* words = reinterpret_cast<std::uint32_t*>(config_.targets.data() + index * kTargetBytes);
    return native32(std::atomic_ref(words[3]).load(std::memory_order_acquire), config_.order);
}

// Has a target in use, if the peer gave one. The peer writes an entry again only when it was told
// of all its bytes, so nobody writes what is zeroed here.
bool Stream::take_target() {
    if (target_.length != 0) return true;
    const std::uint32_t length = waiting_length(target_index_);
    if (length == 0) return false;
    std::byte* entry = config_.targets.data() + target_index_ * kTargetBytes;
    auto* words = reinterpret_cast<std::uint32_t*>(entry);
    target_.address = native64(
        std::atomic_ref(*reinterpret_cast<std::uint64_t*>(entry)).load(std::memory_order_relaxed),
        config_.order);
    target_.key =
        native32(std::atomic_ref(words[2]).load(std::memory_order_relaxed), config_.order);
    target_.length = length;
    std::atomic_ref(words[3]).store(0, std::memory_order_relaxed);
    return true;
}

bool Stream::can_send() const {
    return writable_ && offered_.empty() && has_data_slot() && has_credit() &&
           ring_room() >= kLeastRoom && (target_.length != 0 || waiting_length(target_index_) != 0);
}

// Without credit: the peer's receive queue has no part in it.
bool Stream::can_write_mapped() const {
    return writable_ && offered_.empty() && has_data_slot() && ring_room() >= kLeastRoom;
}

std::size_t Stream::send(Places from, std::size_t skip, Outlet& out) {
    std::size_t left = 0;
    for (const ByteView all : from) left += all.size();
    left -= std::min(left, skip);
    std::size_t taken = 0;
    std::size_t chunk = first_chunk();
    ByteView place;
    while (place.empty() && !from.empty()) {
        const std::size_t skipped = std::min(skip, from.front().size());
        place = from.front().subspan(skipped);
        skip -= skipped;
        from = from.subspan(1);
    }
    while (!place.empty() && can_send()) {
        if (!take_target()) break;
        taken += send_chunk(place, from, next_length(left - taken, chunk), out);
        chunk = std::min(chunk * 2, kMostChunk);
    }
    return taken;
}

std::size_t Stream::first_chunk() const {
    return data_slots_ == 0 ? kFirstChunk : kMostChunk;
}

// Sends `wanted` bytes, or as many as there is room for.
std::size_t Stream::send_chunk(ByteView& place, Places& rest, std::size_t wanted, Outlet& out) {
    const std::size_t length = std::min({wanted, ring_room(), std::size_t{target_.length}});
    Send send;
    send.immediate = Immediate{Kind::Data, static_cast<std::uint32_t>(length)}.emit();
    send.address = target_.address;
    send.key = target_.key;
    send.copied = length <= config_.copied_limit;
    stage(send, place, rest, length);
    target_.address += length;
    target_.length -= static_cast<std::uint32_t>(length);
    if (target_.length == 0) target_index_ ^= 1;
    ++sent_messages_;
    post(send, send.copied ? Slot::Data : Slot::Ring, out);
    return length;
}

// Copies the bytes to where they leave from, and leaves `place` and `rest` at what follows them.
void Stream::stage(Send& send, ByteView& place, Places& rest, std::size_t length) {
    ByteSpan first = std::span(copy_).first(send.copied ? length : 0);
    ByteSpan second;
    if (!send.copied) {
        first = config_.send_ring.subspan(ring_at_,
                                          std::min(length, config_.send_ring.size() - ring_at_));
        second = config_.send_ring.first(length - first.size());
        ring_at_ = (ring_at_ + length) % config_.send_ring.size();
        ring_used_ += length;
    }
    send.bytes = {first, second};
    for (ByteSpan to : {first, second}) {
        while (!to.empty()) {
            const std::size_t count = std::min(to.size(), place.size());
            std::memcpy(to.data(), place.data(), count);
            to = to.subspan(count);
            place = place.subspan(count);
            while (place.empty() && !rest.empty()) {
                place = rest.front();
                rest = rest.subspan(1);
            }
        }
    }
}

void Stream::post(Send& send, Slot slot, Outlet& out) {
    send.tag = static_cast<std::uint64_t>(slot) << kTagSlotShift |
               (slot == Slot::Ring ? send.length() : 0);
    ++(slot == Slot::Control ? control_slots_ : data_slots_);
    out.post(send);
}

// Work requests end in the order in which they were posted, so the ring is freed from its front.
void Stream::on_sent(std::uint64_t tag) {
    const Slot slot = static_cast<Slot>(tag >> kTagSlotShift);
    std::uint32_t& used = slot == Slot::Control ? control_slots_ : data_slots_;
    ASSERT(used != 0 && ring_used_ >= (tag & kTagLength));
    --used;
    ring_used_ -= tag & kTagLength;
}

void Stream::flush(Outlet& out) {
    if (error_ != 0) return;
    send_mappings(out);
    while (!controls_.empty() && control_slots_ < kControlSlots) {
        const Control next = controls_.front();
        controls_.pop_front();  // First: a post that fails may end the stream and empty the list.
        post_control(next, out);
    }
    give_credits(out);
}

void Stream::post_control(Control what, Outlet& out) {
    Send send;
    send.immediate = Immediate{Kind::Control, static_cast<std::uint32_t>(what)}.emit();
    post(send, Slot::Control, out);
}

void Stream::shut_reading(Outlet& out) {
    if (!readable_) return;
    if (!writable_) return disconnect(out);
    readable_ = false;
}

void Stream::shut_writing(Outlet& out) {
    if (!writable_) return;
    if (!readable_) return disconnect(out);
    writable_ = false;
    controls_.push_back(Control::Shutdown);
    flush(out);
}

void Stream::disconnect(Outlet& out) {
    if (!is_connected()) return;
    controls_.push_back(Control::Disconnect);
    flush(out);
    readable_ = false;
    writable_ = false;
}

// A write of nothing: the peer's queue pair acknowledges it and its program sees nothing.
void Stream::keep_alive(Outlet& out) {
    if (!is_connected() || control_slots_ >= kControlSlots) return;
    Send send;
    send.has_immediate = false;
    post(send, Slot::Control, out);
}

// ---- receiving

void Stream::on_immediate(std::uint32_t raw) {
    if (!is_connected()) return;
    const Immediate message = Immediate::parse(raw);
    switch (message.kind) {
        case Kind::Data:
            return on_data(message.value);
        case Kind::Credits:
            credit_limit_ = static_cast<std::uint16_t>(message.value);
            return;
        case Kind::Mapping:
            return;  // The entry is in our memory already.
        case Kind::Control:
            return on_control(message.value);
    }
    fail(EPROTO);  // A reserved kind.
}

void Stream::on_data(std::uint32_t length) {
    if (length > granted_ || message_count_ == messages_.size()) return fail(EPROTO);
    granted_ -= length;
    unread_ += length;
    messages_[(first_message_ + message_count_) % messages_.size()] = length;
    ++message_count_;
}

void Stream::on_control(std::uint32_t value) {
    switch (static_cast<Control>(value)) {
        case Control::Disconnect:
            readable_ = false;
            writable_ = false;
            controls_.clear();
            return;
        case Control::Shutdown:
            readable_ = false;
            return;
        case Control::KeepAlive:
            return;
    }
}

std::size_t Stream::peek(ByteSpan to) const {
    const std::size_t length = std::min(to.size(), unread_);
    const ByteSpan ring = config_.receive_ring;
    const std::size_t first = std::min(length, ring.size() - read_at_);
    if (first != 0) std::memcpy(to.data(), ring.data() + read_at_, first);
    if (length != first) std::memcpy(to.data() + first, ring.data(), length - first);
    return length;
}

std::size_t Stream::receive(ByteSpan to) {
    const std::size_t length = peek(to);
    unread_ -= length;
    free_ += length;
    read_at_ = (read_at_ + length) % config_.receive_ring.size();
    std::size_t rest = length;
    while (message_count_ != 0 && messages_[first_message_] <= rest) {
        rest -= messages_[first_message_];
        first_message_ = (first_message_ + 1) % messages_.size();
        --message_count_;
        ++read_messages_;
    }
    if (rest != 0) messages_[first_message_] -= static_cast<std::uint32_t>(rest);
    return length;
}

bool Stream::owes_credits() const {
    return is_connected() &&
           (free_ >= half() || static_cast<std::int16_t>(read_messages_ - next_credits_) >= 0);
}

void Stream::give_credits(Outlet& out) {
    while (owes_credits() && control_slots_ < kControlSlots) {
        std::array<std::byte, kTargetBytes> entry{};
        Send send;
        const std::uint32_t limit = read_messages_ + config_.receive_queue;
        send.immediate = Immediate{Kind::Credits, limit & 0xffff}.emit();
        next_credits_ = static_cast<std::uint16_t>(read_messages_ + config_.receive_queue / 2);
        if (free_ >= half()) {
            emit_target(entry,
                        {config_.receive_address + free_at_, config_.receive_key,
                         static_cast<std::uint32_t>(half())},
                        peer_.order);
            send.address = peer_.targets.address + peer_index_ * kTargetBytes;
            send.key = peer_.targets.key;
            send.bytes[0] = entry;
            send.copied = true;
            free_ -= half();
            granted_ += half();
            free_at_ = free_at_ == 0 ? half() : 0;
            peer_index_ ^= 1;
        }
        post(send, Slot::Control, out);
    }
}

// ---- mapped memory

Result<void> Stream::offer_mapping(std::uint32_t index, const Mapping& mapping, Outlet& out) {
    if (error_ != 0 || (opened_ && !writable_)) return Error{ENOTCONN, "the stream cannot send"};
    if (index >= peer_.mappings) return Error{ENOBUFS, "the peer has no entry left for a mapping"};
    offered_.emplace_back(index, mapping);
    flush(out);
    return {};
}

// A mapping takes a credit of a data message, which the peer never gives back: rdma-core's
// receivers do not count these.
void Stream::send_mappings(Outlet& out) {
    while (!offered_.empty() && writable_ && has_data_slot() && has_credit()) {
        const auto& [index, mapping] = offered_.front();
        std::array<std::byte, kMappingBytes> entry{};
        emit_mapping(entry, mapping, peer_.order);
        Send send;
        send.immediate = Immediate{Kind::Mapping, index}.emit();
        send.address = peer_.targets.address + targets_size(index);
        send.key = peer_.targets.key;
        send.bytes[0] = entry;
        send.copied = true;
        ++sent_messages_;
        post(send, Slot::Data, out);
        offered_.pop_front();
    }
}

// Leaves `found` empty if there is none.
bool Stream::find_mapping(std::uint64_t offset, Mapping& found) const {
    for (std::uint32_t i = 0; i < config_.mappings; ++i) {
        std::array<std::byte, kMappingBytes> entry{};
        std::memcpy(entry.data(), config_.targets.data() + targets_size(i), entry.size());
        found = parse_mapping(entry, config_.order);
        if (offset >= found.offset && offset - found.offset < found.target.length) return true;
    }
    found = {};
    return false;
}

Result<std::size_t> Stream::write_mapped(ByteView from, std::uint64_t offset, Outlet& out) {
    std::size_t written = 0;
    std::size_t chunk = first_chunk();
    while (!from.empty() && can_write_mapped()) {
        Mapping found;
        if (!find_mapping(offset, found) && written != 0) break;
        if (found.target.length == 0)
            return Error{EINVAL, "the peer mapped no memory at this offset"};
        const std::uint64_t inside = offset - found.offset;
        const std::size_t length = std::min({next_length(from.size(), chunk), ring_room(),
                                             std::size_t{found.target.length} - inside});
        Send send;
        send.has_immediate = false;
        send.address = found.target.address + inside;
        send.key = found.target.key;
        send.copied = length <= config_.copied_limit;
        Places none;
        stage(send, from, none, length);
        post(send, send.copied ? Slot::Data : Slot::Ring, out);
        offset += length;
        written += length;
        chunk = std::min(chunk * 2, kMostChunk);
    }
    return written;
}

}  // namespace feroce::rsockets
