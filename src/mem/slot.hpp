// Slot: one key's entry in Memory's table; a sequence lock whose sequence holds the key itself.
//
// Writers hold Memory's lock and go: hide(), change fields, show(). Readers take no lock: they load
// the stamp, the fields and the stamp again; only two equal stamps that hold their key count. The
// version in the stamp's upper half grows with each show(), so that a key that comes back (a
// re-registration) is not mistaken for one that stayed.
#pragma once

#include <atomic>
#include <cstddef>
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
        const std::uint64_t before = seen_.stamp.load(std::memory_order_acquire);
        if (static_cast<std::uint32_t>(before) != asked) return false;
        out = fields();
        // The fields' acquire loads keep this one after them: had we seen a field of a later
        // change, we would see that change's hide() here.
        return seen_.stamp.load(std::memory_order_relaxed) == before;
    }

    // The writer's side; all under Memory's lock.
    void hide() { seen_.stamp.store(version_ << 32, std::memory_order_relaxed); }
    void change(const SlotFields& f) {
        // release: a reader that sees one of these sees hide() as well.
        constexpr auto order = std::memory_order_release;
        seen_.kind.store(f.kind, order);
        seen_.pd.store(f.pd.raw, order);
        seen_.access.store(f.access.raw, order);
        seen_.qpn.store(f.qpn.raw, order);
        seen_.base.store(f.base, order);
        seen_.length.store(f.length, order);
        seen_.iova.store(f.iova, order);
    }
    void show() {
        ++version_;
        // release: readers that see the key see the fields.
        seen_.stamp.store(version_ << 32 | key, std::memory_order_release);
    }
    bool shown() const {
        return static_cast<std::uint32_t>(seen_.stamp.load(std::memory_order_relaxed));
    }

    SlotFields fields() const {
        constexpr auto order = std::memory_order_acquire;
        SlotFields f;
        f.kind = seen_.kind.load(order);
        f.pd.raw = seen_.pd.load(order);
        f.access.raw = seen_.access.load(order);
        f.qpn.raw = seen_.qpn.load(order);
        f.base = seen_.base.load(order);
        f.length = seen_.length.load(order);
        f.iova = seen_.iova.load(order);
        return f;
    }

private:
    // All that lookups load, in one cache line: a message costs a lookup, and the line is often not
    // in the cache. What only writers use fills the rest of it and the next.
    struct Seen {
        std::atomic<std::uint64_t> stamp{0};  // version << 32 | key; key 0 while hidden.
        std::atomic<std::uint64_t> base{0};
        std::atomic<std::uint64_t> length{0};
        std::atomic<std::uint64_t> iova{0};
        std::atomic<SlotKind> kind{SlotKind::Free};
        std::atomic<std::uint32_t> pd{0};
        std::atomic<std::uint32_t> access{0};
        std::atomic<std::uint32_t> qpn{0};
    };
    static constexpr std::size_t kLine = 64;
    static_assert(sizeof(Seen) <= kLine);
    alignas(kLine) Seen seen_;  // The first member, so that it begins with the line.

public:
    // Owned by the holder of Memory's lock; readers never look.
    std::uint32_t key = 0;    // The current or last key; upper 24 bits name a window for life.
    std::uint32_t bound = 0;  // Region: windows bound to it. Bound window: key of its region.
    std::uint32_t next = 0;   // Queue of freed slots.
    std::shared_ptr<FarMemory> far;  // Region with Access::Far.

private:
    std::uint64_t version_ = 0;
};
static_assert(alignof(Slot) == 64 && sizeof(Slot) == 128);

}  // namespace feroce::mem
