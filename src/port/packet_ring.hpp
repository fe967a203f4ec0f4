// PacketRing: packets from one member of a port group to another through memory that both map. One
// writer, one reader, in order, none twice; a full ring takes nothing more, as a full socket. What
// travels is what an engine built, from the BTH to the place of the ICRC, which nobody fills:
// memory is no network.
//
// A slot is a line of its own for each packet, with its bytes if they are few; larger ones lie in a
// byte area behind the slots, one after the other and each in one piece; a slot says how much was
// passed over. A lap ends early where the beginning is free again: the less of the area is used,
// the more of a processor's cache is left to programs. A ring begins in a *small* area, of few
// slots and bytes; its writer goes on in the large one behind it when the small one is full and the
// process may have the memory, and never comes back. So a ring that carries little takes few pages.
// A slot counts once its stamp says the lap of the writer, so a writer that dies in the middle
// leaves nothing that could be taken for a packet, and bytes of a packet are never where a stamp is
// looked for. The reader tells how far it has read, so that the writer knows its room.
//
// Beside the packets a writer *leaves behind* a few bare acknowledgements, which it owes and will
// send with something else. The reader looks there only when the writer is dead, after all
// packets; a writer that lives sends them itself and takes back what it left. So they cost no line
// that the reader polls. Dead, a writer has written all up to some point of its program and
// nothing after it, which is why nothing but the compiler must keep the order of these writes.
//
// Both sides are processes of one user. The reader believes nothing all the same: it reads
// each word once and bounds it before use, and a ring that makes no sense is dead for good.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/bytes.hpp"
#include "base/gid.hpp"
#include "transport/transmit_batch.hpp"

namespace feroce::port {

// The addresses of a packet, and what else the IP header would have said.
struct RingPath {
    Gid source;
    Gid destination;
    std::uint8_t traffic_class = 0;

    bool operator==(const RingPath&) const = default;
};

namespace detail {

inline constexpr std::size_t kRingLine = 128;  // Adjacent lines are fetched in pairs.

struct alignas(kRingLine) RingSlot {
    std::atomic<std::uint32_t> stamp;
    std::uint32_t size;
    std::uint16_t path;
    std::uint16_t packets;  // That it stands for.
    std::uint32_t skipped;  // Bytes of the area that were passed over before it.
    std::array<std::byte, 112> bytes;
};
static_assert(sizeof(RingSlot) == kRingLine);

inline constexpr std::uint32_t kRingSlots = 2048;
inline constexpr std::uint32_t kRingBytes = 1 << 20;
// Where a lap may end early: beyond what a window of fixed size has in flight, with the last wide
// packet that begins within it (transport/send_window.hpp).
inline constexpr std::uint32_t kRingLap = 640 * 1024;
inline constexpr std::uint32_t kSmallRingSlots = 32;
inline constexpr std::uint32_t kSmallRingBytes = 32 * 1024;
// One member talks to another between few addresses of their machine. A further path takes the
// place of none: its packets do not go by the ring.
inline constexpr std::uint32_t kRingPaths = 62;
// How many acknowledgements a writer may leave behind.
inline constexpr std::uint32_t kRingLegacies = 16;

// One of them.
struct alignas(32) RingLegacy {
    std::uint32_t path;
    std::array<std::byte, transport::kAckSize> ack;
};
static_assert(sizeof(RingLegacy) == 32);

// The reader's: where it will read next.
struct alignas(kRingLine) RingPosition {
    std::atomic<std::uint64_t> packets;
    std::atomic<std::uint64_t> bytes;
};

struct RingMemory {
    RingPosition small_read;
    RingPosition read;
    // Written before the first packet that names it, and never again.
    alignas(kRingLine) std::array<RingPath, kRingPaths> paths;
    // The writer's: how many it leaves behind now. Each is complete before it is counted.
    alignas(kRingLine) std::atomic<std::uint32_t> legacy_count;
    std::array<RingLegacy, kRingLegacies> legacies;
    std::array<RingSlot, kSmallRingSlots> small_slots;
    alignas(kRingLine) std::array<std::byte, kSmallRingBytes> small_bytes;
    // Of pages of their own, which are not touched before they are needed.
    alignas(4096) std::array<RingSlot, kRingSlots> slots;
    alignas(kRingLine) std::array<std::byte, kRingBytes> bytes;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// Where packets are put and taken: the small area of a ring, or the large one.
struct RingArea {
    std::span<RingSlot> slots;
    ByteSpan bytes;
    RingPosition* read;
    int lap_shift;  // Both sizes are powers of two: nothing is divided for a packet.

    static RingArea small(RingMemory& ring) {
        return {ring.small_slots, ring.small_bytes, &ring.small_read,
                std::countr_zero(kSmallRingSlots)};
    }
    static RingArea large(RingMemory& ring) {
        return {ring.slots, ring.bytes, &ring.read, std::countr_zero(kRingSlots)};
    }
    bool is_small() const { return slots.size() == kSmallRingSlots; }
    RingSlot& slot(std::uint64_t number) const { return slots[number & (slots.size() - 1)]; }
    std::size_t offset(std::uint64_t position) const { return position & (bytes.size() - 1); }
};
static_assert(std::has_single_bit(kSmallRingSlots) && std::has_single_bit(kRingSlots));
static_assert(std::has_single_bit(kSmallRingBytes) && std::has_single_bit(kRingBytes));

}  // namespace detail

// How much memory a ring is. All zero: nothing was ever sent.
inline constexpr std::size_t kRingSize = sizeof(detail::RingMemory);
// Of which a small ring uses this.
inline constexpr std::size_t kSmallRingSize = offsetof(detail::RingMemory, slots);
// The largest packet: a wide one (transport/packet_builder.hpp).
inline constexpr std::uint32_t kRingPacketMax = 128 * 1024 + 128;

class RingWriter {
public:
    explicit RingWriter(void* memory)
        : ring_(*static_cast<detail::RingMemory*>(memory)), area_(detail::RingArea::small(ring_)) {}

    bool is_small() const { return area_.is_small(); }
    void grow();  // One that is small. Shows the reader what was placed until now.
    // The number of a path in this ring; none if there are too many.
    std::optional<std::uint32_t> path(const RingPath& path);
    bool has_room_for(const RingPath& path) const;           // path() would find it a number.
    bool has_room(std::uint32_t size);                       // place() would find some.
    bool has_room(std::uint32_t size, std::uint32_t count);  // So many times; of a small one.
    // Room for one more packet, empty if there is none. What it holds is the caller's to write
    // until publish(). `packets`: more than 1 for a wide one.
    ByteSpan place(std::uint32_t path, std::uint32_t size, std::uint32_t packets = 1);
    void take_back();                     // What was placed last, and is not published.
    transport::RunSink::Unread unread();  // Of what was placed.
    // Shows the reader all that was placed. False if there was nothing.
    bool publish();
    // For the reader, if this process ends before take_legacies_back(). False: there is no room.
    bool leave_behind(std::uint32_t path, transport::AckView ack);
    bool leaves_behind() const { return legacies_ > 0; }
    void take_legacies_back();

private:
    detail::RingSlot& slot(std::uint64_t number) const;
    std::optional<std::uint64_t> bytes_for(std::uint32_t size);
    std::optional<std::uint64_t> next_lap(std::uint32_t size);
    bool has_slot();
    void look_at_packets_read();
    void look_at_bytes_read();

    detail::RingMemory& ring_;
    detail::RingArea area_;
    std::uint32_t paths_ = 0;
    std::uint32_t last_path_ = 0;
    std::uint32_t legacies_ = 0;
    // How many were ever, in this area: placed, and of these published; and read, when last looked
    // at.
    std::uint64_t placed_ = 0;
    std::uint64_t published_ = 0;
    std::uint64_t read_ = 0;
    // The same of the byte area; its numbers pass over what is left of a lap that is too short.
    std::uint64_t bytes_placed_ = 0;
    std::uint64_t bytes_placed_before_ = 0;  // The last packet.
    std::uint64_t bytes_read_ = 0;
    std::uint64_t skip_begin_ = 0, skip_end_ = 0;  // What was passed over last.
    // Where a lap may end early; the whole area once there was more in flight than that.
    std::size_t lap_ = area_.bytes.size();
};

class RingReader {
public:
    explicit RingReader(void* memory)
        : ring_(*static_cast<detail::RingMemory*>(memory)), area_(detail::RingArea::small(ring_)) {}

    struct Packet {
        ByteView bytes;  // Where they lie in the ring, until release().
        RingPath path;
        std::uint32_t packets = 1;
    };
    // Whether next() would find something, if only that the ring has grown.
    bool waiting() const;
    std::optional<Packet> next();
    // Gives the writer the room of all that next() returned.
    void release();
    // What a writer that is dead has left behind: the i-th, none if it left no more. After next()
    // has found nothing.
    std::optional<Packet> left_behind(std::uint32_t i) const;
    bool dead() const { return dead_; }  // What its writer wrote makes no sense.

private:
    const detail::RingSlot& slot() const;
    void follow();  // The writer to the large area.

    detail::RingMemory& ring_;
    detail::RingArea area_;
    std::uint64_t taken_ = 0;  // In this area, as the next.
    std::uint64_t bytes_taken_ = 0;
    bool dead_ = false;
};

}  // namespace feroce::port
