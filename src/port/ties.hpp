// Ties: how a member of the port group hears of the end of others without looking. A tie is a pair
// of connected sockets, an end in each of two processes. The kernel closes the end of a process
// that dies, in whatever way, or that execs; the other one then reads the end of file. A process
// that is stopped keeps its ends, and so does one whose process id is taken again after its death.
//
// A member is tied to those with which it shares a ring, and to the nearest ones below and above it
// in the table of slots. So a process has few ties, and whichever processes die at once, their
// neighbours that survive hear of it and look at all slots.
//
// Any thread; abandon() takes no lock.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>

#include "port/fd.hpp"
#include "port/fork_gate.hpp"
#include "port/ring_message.hpp"
#include "port/slot_table.hpp"

namespace feroce::port {

class Ties {
public:
    // To so many on each side: one that is stopped tells nobody.
    static constexpr int kNearest = 2;
    // On each side, beyond those with a ring: what is left when others come in between.
    static constexpr int kKeptPerSide = 8;

    // Of the owner of a slot. Messages leave by `socket`.
    Ties(SlotTable& table, int socket, SlotNumber slot, ForkGate& gate)
        : table_(table), socket_(socket), slot_(slot), gate_(gate) {}
    bool open();
    int fd() const { return set_.get(); }  // Readable once a tie has ended.

    // For a ring with the owner of that slot, which is another process. False: none can be made
    // now, but by renew().
    bool hold(std::uint32_t slot);
    void accept(const RingMessage& message, Fd end);  // That another member has made.
    bool take_ended();                                // False if none had.
    // Makes those that are wanting, `nearest`: not only those for rings; but none in the place of
    // one that has just ended. False if it should be called again, after a while.
    bool renew(bool nearest);
    std::uint32_t count() const;
    void abandon();  // Closes them, in a forked child.

private:
    struct Tie {
        Fd end;
        std::uint64_t incarnation = 0;  // Of the other process in its slot.
    };

    // Under the lock.
    bool tie(std::uint32_t slot);
    bool keep(std::uint32_t slot, std::uint64_t incarnation, Fd end);
    void untie(std::uint32_t slot);
    bool is_tied(std::uint32_t slot) const;
    bool tie_to_nearest(int step);
    void untie_farthest(int step);

    SlotTable& table_;
    int socket_;
    SlotNumber slot_;
    ForkGate& gate_;            // A child with an end would keep the tie of its parent alive.
    mutable std::mutex mutex_;  // Guards what follows.
    Fd set_;                    // The epoll set of all ends.
    std::array<Tie, kSlots> ties_;
    SlotSet held_;   // Those with a ring.
    SlotSet ended_;  // Since the last renew().
};

}  // namespace feroce::port
