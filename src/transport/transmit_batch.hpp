// TransmitBatch: where packets are built. An arena of whole packets, laid out as runs: consecutive
// packets to one path of one size (the last may be shorter), which a port can hand to the kernel as
// one segmented send. Payload is copied in by mem/, so what the port seals cannot change under it.
// Where the receiver reads the port's own memory, a packet can be built there instead, and be wide.
// Engine thread only; allocates nothing after construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.hpp"
#include "base/ids.hpp"
#include "transport/types.hpp"

namespace feroce::transport {

// Packets from the BTH to the four bytes reserved for the ICRC, back to back.
struct TransmitRun {
    Path path;
    ByteSpan bytes;
    std::uint32_t segment_size = 0;
    std::uint32_t packet_count = 0;
    // All packets of a run go to one slot of the peer, which a steering receiver needs.
    SlotNumber destination_slot = 0;
    // To QP1, and hence a run of its own: what the packet says steers it, and not the slot.
    bool is_for_manager = false;
};

// A bare acknowledgement, with the place of its ICRC.
inline constexpr std::size_t kAckSize = 20;
using AckBytes = std::span<std::byte, kAckSize>;
using AckView = std::span<const std::byte, kAckSize>;

class RunSink {
public:
    virtual ~RunSink() = default;
    // Seals and sends. May drop, never blocks; the bytes are the sink's only during the call.
    virtual void transmit(std::span<const TransmitRun> runs) = 0;
    // The errno with which packets of this path are refused of late; 0 if they are not.
    virtual int send_error(const Path&) const { return 0; }
    // Whether a packet of this size can be built in memory that its receiver reads. If so place()
    // gives the room. The packet is sent by the next call of transmit(), which must come, if not
    // before, unless it is taken back until the next call.
    virtual bool has_room(const Path&, SlotNumber /*slot*/, std::size_t /*size*/) { return false; }
    virtual ByteSpan place(const Path&, SlotNumber /*slot*/, std::size_t /*size*/,
                           std::uint32_t /*packets*/) {
        return {};
    }
    virtual void take_back() {}
    // What the owner of that slot has still to read of the memory that packets are built in. None:
    // there is no such memory, or not enough for what a window lets out.
    struct Unread {
        std::uint64_t packets = 0;
        std::uint64_t bytes = 0;
    };
    virtual std::optional<Unread> unread(SlotNumber) { return std::nullopt; }
    // Whether the owner of that slot finds what is left behind. By a network nobody does.
    virtual bool inherits(const Path&, SlotNumber) { return false; }
    // Leaves an acknowledgement where the owner of that slot finds it if this process ends, in
    // whatever way, before take_legacies_back(); until then it is not sent. False if there is no
    // more room: it has to be sent now. True also where nothing can be left.
    virtual bool leave_behind(const Path&, SlotNumber, AckView) { return true; }
    virtual void take_legacies_back() {}
};

class TransmitBatch {
public:
    // The kernel segments at most 64 KiB less headers and 128 packets at once; 64 is what every
    // kernel since UDP_SEGMENT was introduced takes.
    static constexpr std::size_t kRunBytesMax = 65000;
    static constexpr std::uint32_t kRunPacketsMax = 64;

    TransmitBatch(RunSink& sink, std::size_t arena_bytes);

    // Room for one packet of `size` bytes; flushes first if the arena is full.
    ByteSpan append(const Path& path, Qpn destination, std::size_t size);
    // The same, without the arena, in memory that the receiver reads. Only if has_room() says so,
    // which sends all before: packets to one destination keep their order.
    bool has_room(const Path& path, Qpn destination, std::size_t size);
    ByteSpan place(const Path& path, Qpn destination, std::size_t size, std::uint32_t packets);
    // Takes back the packet appended or placed last.
    void retract(std::size_t size);
    void flush();
    int send_error(const Path& path) const { return sink_.send_error(path); }
    std::optional<RunSink::Unread> unread(Qpn destination) const {
        return sink_.unread(slot_of(destination));
    }
    std::uint64_t packets_sent() const { return packets_sent_; }
    std::uint64_t bytes_sent() const { return bytes_sent_; }

private:
    void send();
    bool extends_last_run(const Path& path, Qpn destination, std::size_t size) const;

    RunSink& sink_;
    std::vector<std::byte> arena_;
    std::size_t used_ = 0;
    std::vector<TransmitRun> runs_;  // Capacity reserved: never grows past it.
    std::uint64_t packets_sent_ = 0;
    std::uint64_t bytes_sent_ = 0;
    bool placed_ = false;       // Something since the last transmit().
    bool placed_last_ = false;  // The last packet, and not appended.
    bool refused_ = false;      // There was no room since flush(): the next find none either.
};

}  // namespace feroce::transport
