// RingReceiver: the rings by which other members of the port group send to one slot, and the bell
// that wakes its owner. All but answer_bell() and overlooked() under the shard's lock.
//
// A member that has put something into its ring sets its bit in the slot's door. While its packets
// keep coming the bit stays set, so that it has nothing more to do there: such a ring is *hot*, and
// poll() looks into it. A ring that was found empty for a while gets its bit cleared, and is looked
// at again when the bit is set.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

#include "base/time.hpp"
#include "device/engine.hpp"
#include "port/fd.hpp"
#include "port/packet_ring.hpp"
#include "port/ring_file.hpp"
#include "port/ring_message.hpp"
#include "port/slot_table.hpp"

namespace feroce::port {

class RingReceiver {
public:
    RingReceiver(SlotTable& table, SlotNumber slot) : table_(table), slot_(slot) {}
    bool open();
    int bell() const { return bell_.get(); }

    // The ring of the slot's owner before is still here, which may have sent by UDP as well.
    bool replaces_another(const RingMessage& offer) const {
        const Link& link = links_[offer.from];
        return link.reader && link.writer != offer.incarnation;
    }
    // An offer with its memory. What is left in the ring of the slot's owner before is delivered.
    // The answer leaves by `socket`.
    void accept(Instant now, device::Engine& engine, const RingMessage& message, Fd memory,
                int socket);
    // True if a ring has its first packets: those that its writer has sent by UDP before come
    // first. From then on poll() reads it.
    bool take_begun();
    bool poll(Instant now, device::Engine& engine);  // False if nothing had arrived.
    // Those with a ring whose writer is gone, or makes no sense.
    SlotSet departed() const;
    // Delivers what is in their rings and what they have left behind, and gives the rings up. After
    // what they have sent by UDP. False if there was nothing.
    bool deliver_rest(Instant now, device::Engine& engine, const SlotSet& departed);

    // Whether a writer rings the bell. What has arrived already rings it at once.
    void arm();
    void disarm();
    void answer_bell();                                                // It has rung.
    void woken() { sleeps_.store(false, std::memory_order_relaxed); }  // Once for each arm().
    // Something arrived since arm(), nobody was woken, and its writer may have died before it could
    // ring. Any thread.
    bool overlooked() const;

private:
    // What is read before the writer gets its room back.
    static constexpr int kBatch = 64;
    static constexpr std::size_t kBatchBytes = 64 * 1024;

    struct Link {
        std::uint64_t writer = 0;  // Its incarnation.
        RingFile file;
        std::optional<RingReader> reader;
        std::uint32_t empty_looks = 0;  // In a row.
    };
    bool read(Instant now, device::Engine& engine, Link& link);
    bool read_rest(Instant now, device::Engine& engine, Link& link);
    bool read_left_behind(Instant now, device::Engine& engine, const Link& link);
    void drop(std::uint32_t slot);
    SlotSet mapped() const { return mapped_.load(std::memory_order_relaxed); }
    void warm_up(const SlotSet& slots);
    void warm_up_untold(const SlotSet& slots);  // Their writers have not set the bits.
    void cool_down(const SlotSet& slots);
    bool has_pending() const;                     // Of those with a ring.
    SlotSet waiting(const SlotSet& slots) const;  // Those that have something to read.
    SlotTable::Door& door() const { return table_.door(slot_); }

    SlotTable& table_;
    SlotNumber slot_;
    Fd bell_;
    std::array<Link, kSlots> links_;
    SharedSlotSet mapped_;  // Those with a ring. Written under the lock.
    SlotSet hot_;           // Of these; their bits in the door are set.
    SlotSet new_;           // Of these: nothing was read from them.
    // Since arm() nobody was woken.
    std::atomic<bool> sleeps_{false};
};

}  // namespace feroce::port
