// Memory: the process-wide table of protection domains, regions and windows, shared by all shards.
//
// Threads. Control calls (allocate, register, bind, invalidate, ...) take one spinlock and may come
// from any thread. local() and remote() take no lock and do no read-modify-write: each slot is
// guarded by its own sequence stamp, and a slot that is being changed answers NoSuchKey.
// Deregistration makes the key invalid at once, and the slot may be reused at once. What it cannot
// do is wait for copies under way: before ibv_dereg_mr, ibv_rereg_mr or ibv_dealloc_mw return to
// the application, the CALLER must pass through (take and drop) every shard's lock, because Slices
// live only within a shard's critical section. No other step is owed.
//
// Keys are 16 bits of slot index and 16 random bits; lkey and rkey of a region are equal. A freed
// slot rests in a queue, and its next key differs from its last one in the upper random byte, which
// the holder of a type 2 window cannot choose.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/ids.hpp"
#include "base/random.hpp"
#include "base/result.hpp"
#include "base/spinlock.hpp"
#include "mem/access.hpp"
#include "mem/far_memory.hpp"
#include "mem/slice.hpp"
#include "mem/slot.hpp"

namespace feroce::mem {

struct Limits {
    std::uint32_t pds = 4096;
    std::uint32_t regions = 49'152;  // Regions and windows share 65,535 slots.
    std::uint32_t windows = 16'383;
};

struct RegionSpec {
    PdId pd;
    void* address = nullptr;
    std::uint64_t length = 0;
    std::uint64_t iova = 0;  // What peers and Sges call the first byte; ZeroBased makes it 0.
    AccessSet access;
    bool implicit = false;  // The whole address space; address, length and iova are ignored.
    // Not null: the address is one of this memory, and means nothing to the CPU. Deregistration
    // owes it a close(), see far_memory.hpp.
    std::shared_ptr<FarMemory> far = nullptr;
};

struct RegionKeys {
    LKey lkey;
    RKey rkey;
};

// A region as a person knows it.
struct RegionName {
    std::uint32_t key = 0;  // lkey and rkey. 0: no region.
    std::uint64_t address = 0;
    std::uint64_t length = 0;
    AccessSet access;
};

// What was asked of memory, for a person. Nothing was if the length is 0.
struct Attempt {
    std::uint32_t key = 0;
    AccessSet need;  // At most one bit.
    std::uint64_t address = 0;
    std::uint64_t length = 0;
};

struct RegionChange {  // What ibv_rereg_mr's flags ask for; the rest of the spec is ignored.
    bool translation = false;
    bool pd = false;
    bool access = false;
};

// A lookup for a copy.
struct FarLookup {
    Lookup found;
    std::shared_ptr<FarMemory> memory;  // Not null if and only if the fault is Far.
};

enum class WindowType : std::uint8_t { Type1 = 1, Type2 = 2 };

struct WindowBind {
    RKey window;  // Any key that the window ever had: only its upper 24 bits name the window.
    LKey region;
    std::uint64_t address = 0;  // In the region's address space.
    std::uint64_t length = 0;   // Zero unbinds a type 1 window.
    AccessSet access;           // Remote bits; ZeroBased for type 2 only.
    RKey new_rkey;              // Its low 8 bits, other than the window's current ones, count.
    Qpn qpn;                    // Who binds; the only one a type 2 window will serve.
    PdId pd;                    // Of that queue pair.
};

enum class BindOutcome : std::uint8_t {
    Bound,
    Unbound,  // Type 1 with length zero: success, and the window answers to no key.
    NoSuchWindow,
    NoSuchRegion,
    WrongPd,       // Window, region and queue pair are not all in one domain.
    NotFree,       // Type 2 is bound already and must be invalidated first.
    BadKey,        // new_rkey repeats the low byte of the current key.
    NoPermission,  // Region without MwBind, or without LocalWrite where the window would change it.
    OutOfBounds,
    BadAccess,  // Bits that no window of this type can grant, or a zero-based region.
    BadLength,  // Type 2 with length zero.
};

constexpr bool succeeded(BindOutcome o) {
    return o == BindOutcome::Bound || o == BindOutcome::Unbound;
}

class Memory {
public:
    // The source is used under the lock, but may be shared with others only if it is thread-safe.
    Memory(const Limits& limits, RandomSource& random);

    Result<PdId> alloc_pd();
    Result<void> dealloc_pd(PdId pd);  // EBUSY while regions, windows or pins use it.
    Result<void> pin_pd(PdId pd);      // A queue pair, shared receive queue or address handle.
    void unpin_pd(PdId pd);

    Result<RegionKeys> register_region(const RegionSpec& spec);
    Result<RegionKeys> register_null_region(PdId pd);  // Writes vanish, reads give zeros.
    Result<void> deregister_region(LKey key);          // EBUSY while windows are bound to it.
    // The keys stay the same. EBUSY while windows are bound; on any error nothing has changed.
    Result<RegionKeys> reregister_region(LKey key, RegionChange change, const RegionSpec& spec);

    RegionName region_at(std::uintptr_t address);  // The shortest that holds it. Slow.
    // The region or window that answers to the key, its address as peers know it.
    RegionName region_with(std::uint32_t key) const;
    bool had_key(std::uint32_t key);  // Something that is gone was the last to have it.
    // Of the region or window that answers to the key; null if it is not far. For a copy.
    std::shared_ptr<FarMemory> far_memory(std::uint32_t key);

    Result<RKey> allocate_window(PdId pd, WindowType type);
    // By any key it ever had; a bound window is unbound. The far memory that it was bound to, or
    // null: what was started through the window may be on its way, and drain() waits for it.
    Result<std::shared_ptr<FarMemory>> free_window(RKey key);
    // A key for the next bind of a type 1 window, known before that bind is carried out.
    RKey fresh_window_key(RKey current);
    BindOutcome bind_window(const WindowBind& bind);
    // The key that a bind gives: the window's upper 24 bits, and the low 8 that the program chose.
    static constexpr RKey bound_key(RKey window, RKey chosen) {
        return {(window.raw & ~0xffU) | (chosen.raw & 0xffU)};
    }
    // LOCAL_INV and SEND_WITH_INV: type 2 windows only; None or the reason of the refusal.
    Fault invalidate_local(PdId pd, Qpn qpn, RKey key);
    Fault invalidate_remote(PdId pd, Qpn qpn, RKey key);
    void unbind_windows_of(Qpn qpn);  // The queue pair is going away; its number may be reused.

    // The data path. `need` is LocalWrite for what we write locally and empty for what we read;
    // for peers it is one of the remote bits. A remote access of length zero succeeds unseen
    // (IBTA C9-88: its key is not checked).
    Lookup local(PdId pd, LKey key, std::uint64_t address, std::uint64_t length,
                 AccessSet need) const;
    Lookup remote(PdId pd, Qpn qpn, RKey key, std::uint64_t address, std::uint64_t length,
                  AccessSet need) const;
    // The same for memory that may be far. Slice and memory are of one registration, even if the
    // region moves at this moment: its key stays. Takes the lock if it is far.
    FarLookup local_or_far(PdId pd, LKey key, std::uint64_t address, std::uint64_t length,
                           AccessSet need);
    FarLookup remote_or_far(PdId pd, Qpn qpn, RKey key, std::uint64_t address, std::uint64_t length,
                            AccessSet need);

private:
    static constexpr std::uint32_t kChunkSlots = 1024;
    static constexpr std::uint32_t kChunks = 64;
    static constexpr std::uint32_t kSlots = kChunkSlots * kChunks;
    // A freed slot is reused only after this many others, or when no unused one is left.
    static constexpr std::uint32_t kRestingSlots = 256;

    struct Pd {
        bool live = false;
        std::uint32_t users = 0;
    };

    // All below but slot_of need lock_.
    Pd* find_pd(PdId pd);
    Slot* slot_of(std::uint32_t key) const {  // Null if no such slot was ever used.
        const std::uint32_t index = key >> 16;
        if (index == 0) return nullptr;  // Else key 0 would match a hidden slot's stamp.
        // acquire: pairs with make_room's release, so the slots are constructed.
        Slot* const chunk = chunks_[index / kChunkSlots].load(std::memory_order_acquire);
        return chunk == nullptr ? nullptr : &chunk[index % kChunkSlots];
    }
    Slot* find_region(LKey key) const;
    std::shared_ptr<FarMemory> find_far(std::uint32_t key) const;
    Slot* find_window(RKey key) const;
    // Lets go of the lock for a while where the table has to grow, before it does anything.
    Result<Slot*> take_slot(std::unique_lock<Spinlock>& hold, PdId pd, SlotKind kind);
    void give_slot(Slot& slot);
    bool reuses_slots() const;
    bool wants_chunk() const;
    bool make_room(std::unique_lock<Spinlock>& hold);
    void unbind(Slot& window);
    BindOutcome judge_bind(const WindowBind& bind, const Slot* window, const Slot* region) const;
    Result<RegionKeys> publish_region(const SlotFields& fields, SlotKind kind,
                                      std::shared_ptr<FarMemory> far = nullptr);
    Fault invalidate(PdId pd, Qpn qpn, RKey key);

    const Limits limits_;
    RandomSource& random_;
    Spinlock lock_;
    std::vector<Pd> pds_;  // PdId is the index + 1.
    std::uint32_t region_count_ = 0;
    std::uint32_t window_count_ = 0;
    std::uint32_t slots_used_ = 1;  // Slots ever handed out; index 0 never is, so no key is 0.
    std::uint32_t resting_ = 0;     // Length of the queue of freed slots, linked by Slot::next.
    std::uint32_t oldest_resting_ = 0;
    std::uint32_t newest_resting_ = 0;
    // Grown under lock_, published with release, read by lookups with acquire; never shrinks.
    std::array<std::atomic<Slot*>, kChunks> chunks_{};
    std::vector<std::unique_ptr<Slot[]>> chunk_owner_;
};

}  // namespace feroce::mem
