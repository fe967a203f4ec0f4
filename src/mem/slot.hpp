// Slot: one key's entry in Memory's table; a sequence lock whose sequence holds the key itself.
//
// Writers hold Memory's lock and go: hide(), change fields, show(). Readers take no lock: they load
// the stamp, the fields and the stamp again; only two equal stamps that hold their key count. The
// version in the stamp's upper half grows with each show(), so that a key that comes back (a
// re-registration) is not mistaken for one that stayed.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/ids.hpp"
#include "mem/access.hpp"
#include "mem/far_memory.hpp"

namespace feroce::mem {

enum class SlotKind : std::uint32_t { Free, Region, NullRegion, Window1, Window2 };

struct SlotFields {
    SlotKind kind = SlotKind::Free;
    PdId pd;
    AccessSet access;
    Qpn qpn;                 // Type 2 windows only.
    std::uint64_t base = 0;  // Host address of the first byte.
    std::uint64_t length = 0;
    std::uint64_t iova = 0;  // What the holder of the key calls the first byte.
};

class alignas(64) Slot {
public:
    // The reader's side, lock-free: true and a consistent copy if the slot answers to `asked` now.
    bool read(std::uint32_t asked, SlotFields& out) const {
        // acquire: pairs with show()'s release, so the fields are at least as new as the stamp.
        const std::uint64_t before = stamp_.load(std::memory_order_acquire);
        if (static_cast<std::uint32_t>(before) != asked) return false;
        out = fields();
        // The fields' acquire loads keep this one after them: had we seen a field of a later
        // change, we would see that change's hide() here.
        return stamp_.load(std::memory_order_relaxed) == before;
    }

    // The writer's side; all under Memory's lock.
    void hide() { stamp_.store(version_ << 32, std::memory_order_relaxed); }
    void change(const SlotFields& f) {
        // release: a reader that sees one of these sees hide() as well.
        constexpr auto order = std::memory_order_release;
        kind_.store(f.kind, order);
        pd_.store(f.pd.raw, order);
        access_.store(f.access.raw, order);
        qpn_.store(f.qpn.raw, order);
        base_.store(f.base, order);
        length_.store(f.length, order);
        iova_.store(f.iova, order);
    }
    void show() {
        ++version_;
        // release: readers that see the key see the fields.
        stamp_.store(version_ << 32 | key, std::memory_order_release);
    }
    bool shown() const {
        return static_cast<std::uint32_t>(stamp_.load(std::memory_order_relaxed));
    }

    SlotFields fields() const {
        constexpr auto order = std::memory_order_acquire;
        SlotFields f;
        f.kind = kind_.load(order);
        f.pd.raw = pd_.load(order);
        f.access.raw = access_.load(order);
        f.qpn.raw = qpn_.load(order);
        f.base = base_.load(order);
        f.length = length_.load(order);
        f.iova = iova_.load(order);
        return f;
    }

    // Owned by whoever holds Memory's lock; readers never look.
    std::uint32_t key = 0;    // The current or last key; upper 24 bits name a window for life.
    std::uint32_t bound = 0;  // Region: windows bound to it. Bound window: key of its region.
    std::uint32_t next = 0;   // Queue of freed slots.
    std::shared_ptr<FarMemory> far;  // Region with Access::Far.

private:
    std::atomic<std::uint64_t> stamp_{0};  // version << 32 | key; key 0 while hidden.
    std::atomic<std::uint64_t> base_{0};
    std::atomic<std::uint64_t> length_{0};
    std::atomic<std::uint64_t> iova_{0};
    std::atomic<SlotKind> kind_{SlotKind::Free};
    std::atomic<std::uint32_t> pd_{0};
    std::atomic<std::uint32_t> access_{0};
    std::atomic<std::uint32_t> qpn_{0};
    std::uint64_t version_ = 0;
};

}  // namespace feroce::mem
