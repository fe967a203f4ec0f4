// RingSender: the rings by which one slot sends to other members of its port group
// (packet_ring.hpp). A ring is made and offered with the first packets for a member; they and what
// follows go by UDP until it has accepted. From then on all packets for it go by the ring while
// both live and the address is this machine's, so that none overtakes another; but for those that
// find it full.
// Under its shard's lock. Allocates nothing but the rings.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/random.hpp"
#include "port/fd.hpp"
#include "port/local_addresses.hpp"
#include "port/packet_ring.hpp"
#include "port/ring_budget.hpp"
#include "port/ring_file.hpp"
#include "port/ring_message.hpp"
#include "port/slot_table.hpp"
#include "transport/transmit_batch.hpp"

namespace feroce::port {

class RingSender {
public:
    struct Parts {
        SlotTable& table;
        const LocalAddresses& addresses;
        RandomSource& random;
        int socket;    // That offers leave by.
        bool enabled;  // False: nothing goes by rings.
        RingBudget& budget;
    };
    RingSender(const Parts& parts, SlotNumber slot) : parts_(parts), slot_(slot) {}
    ~RingSender();

    // Puts its packets into a ring, not yet seen by the reader; how many of them. The rest must go
    // by UDP: there is no ring, or it is full.
    std::uint32_t send(const transport::TransmitRun& run);
    // One packet, built in the ring by the caller: transport::RunSink. place() only after
    // has_room(). What was put there before is shown first if it is much: the reader need not wait.
    bool has_room(const transport::Path& path, SlotNumber slot, std::uint32_t size);
    ByteSpan place(SlotNumber slot, std::uint32_t size, std::uint32_t packets);
    void take_back();
    // See transport::RunSink. Not of a small ring, nor of one that was full.
    std::optional<transport::RunSink::Unread> unread(SlotNumber slot);
    // Shows the readers what send() and place() have put there, and wakes those that sleep.
    void publish();
    // See transport::RunSink.
    bool inherits(const transport::Path& path, SlotNumber slot);
    bool leave_behind(const transport::Path& path, SlotNumber slot, transport::AckView ack);
    void take_legacies_back();
    // The answer to an offer, with the reader's bell.
    void accepted(const RingMessage& message, Fd bell);
    void forget_departed();  // Rings to members that are gone.

    // Whether packets of this path go by a ring that has had room for all of late.
    bool reaches(const transport::Path& path, SlotNumber slot) const;
    // Changes whenever reaches() may have.
    std::uint64_t changes() const { return changes_ + parts_.addresses.version(); }
    std::uint64_t packets_sent() const { return sent_; }
    std::uint64_t packets_overflowed() const { return overflowed_; }  // The ring was full.
    std::uint64_t memory() const { return memory_; }                  // Of all rings, in bytes.
    std::uint64_t refused() const { return refused_; }  // Rings that there was no memory for.

private:
    enum class Stage : std::uint8_t { None, Offered, Accepted };
    struct Link {
        Stage stage = Stage::None;
        std::uint64_t reader = 0;  // Its incarnation.
        std::uint64_t ring = 0;
        RingFile file;
        std::optional<RingWriter> writer;
        std::size_t memory = 0;  // What it has of the budget.
        Fd bell;
        // Runs to go before the next offer, and after that one.
        std::uint32_t patience = 0;
        std::uint32_t patience_next = 0;
        std::uint32_t overflow = 0;  // Runs to go until it counts as one that has room again.
        // The last path asked for, and the answer while the addresses have this version.
        transport::Path path;
        std::uint32_t version = 0;
        bool stays_here = false;
        std::optional<std::uint32_t> path_number;  // In the ring. None: not asked for since then.
    };

    bool stays_here(Link& link, const transport::Path& path) const;
    // The link by which packets of this path go to the slot now; null if by none.
    Link* open_link(const transport::Path& path, SlotNumber slot);
    void offer(SlotNumber slot);
    void drop(std::uint32_t slot);
    bool take_memory(Link& link, std::size_t bytes);
    void give_memory(Link& link);
    bool grow(Link& link);  // False: it has grown before, or may not.
    std::uint32_t put(Link& link, std::uint32_t path, const transport::TransmitRun& run);
    bool takes_all(Link& link, const transport::TransmitRun& run);
    void note_overflow(Link& link, std::uint32_t packets);
    void call(std::uint32_t slot);

    Parts parts_;
    SlotNumber slot_;
    std::array<Link, kSlots> links_;
    SlotSet touched_;  // Sent to since publish().
    // For which something is left behind, and how many these are: few, and looked at often.
    std::array<SlotNumber, 4> heirs_{};
    std::size_t heir_count_ = 0;
    std::uint32_t unshown_ = 0;  // Bytes that were placed since then.
    // Of the last has_room() that found some, until publish(); else 0, which belongs to nobody.
    // Packets of one path follow each other, and nobody looks for their ring again.
    SlotNumber open_ = 0;
    SlotNumber placed_ = 0;          // The slot of the last place().
    std::uint32_t placed_path_ = 0;  // The number of the path of the last has_room().
    std::uint64_t changes_ = 0;
    std::uint64_t sent_ = 0;
    std::uint64_t overflowed_ = 0;
    std::uint64_t memory_ = 0;
    std::uint64_t refused_ = 0;
};

}  // namespace feroce::port
