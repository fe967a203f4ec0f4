// SlotTable: who owns which slot of a port group. One memory file, whose fd and pages all members
// share. A slot is owned by a POSIX lock on its byte, so it is free again when its owner dies,
// whatever the way; what is written beside the lock is only true while the lock is held.
//
// Exactly one fd of the file in a process, never duplicated: closing any would drop all its locks.
#pragma once

#include <sys/types.h>
#include <sys/un.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "port/fd.hpp"
#include "port/slot_set.hpp"

namespace feroce::port {

inline constexpr std::uint32_t kSeatsPerUser = 32;  // So that one user cannot take all of them.

class SlotTable {
public:
    // Behind the records, for each slot, what its owner leaves behind: see estates.hpp.
    static constexpr std::size_t kRecordBytes = 2 * 65536;  // Of the largest pages.
    static constexpr std::uint32_t kBondsPerSlot = 4096;
    static constexpr std::size_t kBondBytes = 64;

    SlotTable() = default;
    ~SlotTable();
    SlotTable(const SlotTable&) = delete;
    SlotTable& operator=(const SlotTable&) = delete;

    bool create();
    bool adopt(Fd fd);  // One that another member handed over.
    int fd() const { return fd_.get(); }
    void abandon() { fd_.reset(); }  // In a forked child, where no lock is ours.

    // How many chunks of slots have sockets. It grows by one, by a process that holds the lock for
    // it, which does not exclude other threads of that process.
    std::uint32_t chunks() const {
        return std::min(head_->chunks.load(std::memory_order_acquire), kChunks);
    }
    std::uint32_t slots() const { return chunks() * kChunkSlots; }  // Those of these chunks.
    void set_chunks(std::uint32_t count) { head_->chunks.store(count, std::memory_order_release); }
    bool try_lock_growth();
    void unlock_growth();

    // Does not exclude this process itself: it must remember what it has locked.
    bool try_lock(std::uint32_t slot);
    void unlock(std::uint32_t slot);
    bool locked_by_another(std::uint32_t slot) const;
    bool has_living_owner(std::uint32_t slot) const;  // This process, or another.
    std::uint32_t members() const;  // How many slots of members have a living owner.
    // Whether that other process owns a slot. A stranger's id costs no system call. False for a
    // process of another pid namespace, whose id says nothing here.
    bool has_owner(pid_t process) const;

    // Where the owner takes packets that landed elsewhere: the abstract unix name that the kernel
    // chose for its socket, so nobody could have taken it before.
    void set_parcel_name(std::uint32_t slot, const sockaddr_un& name);
    bool parcel_name(std::uint32_t slot, sockaddr_un& out) const;  // False: it has no owner.

    // The guest on a slot. The holder of the slot's lock writes, or a relay that takes the guest
    // over from a holder that is stopped.
    enum class Guest : std::uint32_t { Never, Seated, Orphaned, Left };
    struct Seat {
        Guest guest = Guest::Never;
        std::uint32_t user = 0;
        std::int64_t since_ns = 0;  // CLOCK_MONOTONIC, of the last change.
        // By which the guest knows what members of the group bring it; 0 unless it is seated.
        std::uint64_t token = 0;
        // The one before, until the guest has said that it knows the new one; 0: none.
        std::uint64_t former_token = 0;
    };
    Seat seat(std::uint32_t slot) const;
    void set_seat(std::uint32_t slot, const Seat& seat);
    std::vector<Seat> guests() const;  // Those that are seated.

    // The owner of a slot, told from those before it by a number that the claim drew; 0: none.
    // `rings`: it takes packets by rings (ring_receiver.hpp). Neither changes while it owns the
    // slot.
    void set_owner(std::uint32_t slot, std::uint64_t incarnation, bool rings);
    std::uint64_t incarnation(std::uint32_t slot) const {
        return records_[slot].incarnation.load(std::memory_order_acquire);
    }
    bool takes_rings(std::uint32_t slot) const {
        return records_[slot].rings.load(kRelaxed) == kRingFormat;
    }

    // Whether the owner, which is the one with that incarnation, is to be tied to its nearest
    // (ties.hpp). A process with several slots is so by one of them. Before set_owner().
    void set_takes_ties(std::uint32_t slot, bool takes) {
        records_[slot].ties.store(takes ? 1 : 0, kRelaxed);
    }
    bool takes_ties(std::uint32_t slot) const {
        return incarnation(slot) != 0 && records_[slot].ties.load(kRelaxed) != 0;
    }

    // Where other members say that they have put something into a ring for the owner of a slot.
    struct alignas(128) Door {
        SharedSlotSet pending;             // Those that have.
        std::atomic<std::uint32_t> armed;  // The owner's tag: it sleeps, and wants to be woken.
    };
    static_assert(sizeof(SharedSlotSet) + sizeof(std::uint32_t) <= 64);  // A look is one line.
    // Of an incarnation, never 0: a late writer must not take what the next owner put there.
    static std::uint32_t tag_of(std::uint64_t incarnation) {
        return static_cast<std::uint32_t>(incarnation) | 1;
    }
    Door& door(std::uint32_t slot) const { return doors_[slot]; }

    // How many places of the slot's estate count. Not 0 without an owner: somebody died.
    std::uint32_t bonds(std::uint32_t slot) const { return records_[slot].bonds.load(kRelaxed); }
    void set_bonds(std::uint32_t slot, std::uint32_t count) {
        records_[slot].bonds.store(count, kRelaxed);
    }

private:
    // Shared between processes, so lock-free atomics only. Relaxed: a record is only believed by
    // the holder of its lock, and taking a lock is a system call; hand-over checks the packet. The
    // incarnation is different: with it come the rest, and the end of what its owner has written.
    struct alignas(64) Record {
        std::atomic<std::uint64_t> parcel_name;  // The five characters, 0 if none.
        std::atomic<std::int64_t> since_ns;
        std::atomic<std::uint64_t> token;
        std::atomic<std::uint32_t> user;
        std::atomic<std::uint32_t> guest;
        std::atomic<std::int32_t> process;  // Of the owner, in its own pid namespace.
        std::atomic<std::uint32_t> bonds;
        std::atomic<std::uint64_t> incarnation;
        std::atomic<std::uint32_t> rings;
        std::atomic<std::uint32_t> ties;
        std::atomic<std::uint64_t> former_token;
    };
    static constexpr std::memory_order kRelaxed = std::memory_order_relaxed;
    // What a reader understands. 3: rings that begin small; 4: laps that end early; 5:
    // acknowledgements that are left behind.
    static constexpr std::uint32_t kRingFormat = 5;
    static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
    struct alignas(64) Head {
        std::atomic<std::uint32_t> chunks;
    };
    static constexpr std::size_t kDoors = kSlots * sizeof(Record);
    static constexpr std::size_t kHead = kDoors + kSlots * sizeof(Door);
    static constexpr std::size_t kMapped = kHead + sizeof(Head);
    static_assert(sizeof(Record) == 64 && kDoors % alignof(Door) == 0 && kMapped <= kRecordBytes);

    static off_t file_size();
    bool map();

    Fd fd_;
    SharedSlotSet locked_;  // By this process: its own locks are not told from none.
    Record* records_ = nullptr;
    Door* doors_ = nullptr;  // Behind the records, and the head behind them.
    Head* head_ = nullptr;
};

}  // namespace feroce::port
