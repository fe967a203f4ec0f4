// Memory: slots, keys, protection domains, regions and the lookups. Windows are in window.cpp.
#include "mem/memory.hpp"

#include <cerrno>
#include <limits>
#include <mutex>
#include <new>
#include <utility>

#include "base/assert.hpp"
#include "mem/guard.hpp"
#include "mem/touch.hpp"

namespace feroce::mem {

namespace {

using Hold = std::lock_guard<Spinlock>;

constexpr std::uint64_t kWholeSpace = std::numeric_limits<std::uint64_t>::max();

constexpr bool is_region(SlotKind kind) {
    return kind == SlotKind::Region || kind == SlotKind::NullRegion;
}

constexpr AccessSet without_far(AccessSet access) {
    return AccessSet(access.raw & ~AccessSet(Access::Far).raw);
}

Result<void> judge_access(AccessSet access) {
    if (!(kMandatoryAccess | kOptionalAccess).covers(access))
        return Error{EINVAL, "access flags that no region can have"};
    if (access.overlaps(kRemoteChange) && !access.has(Access::LocalWrite))
        return Error{EINVAL, "remote write or atomic access needs IBV_ACCESS_LOCAL_WRITE too"};
    return {};
}

Result<void> judge_range(const SlotFields& f) {
    if (f.length == 0) return {};  // As cards have it: a key with which nothing can be touched.
    if (f.base + (f.length - 1) < f.base) return Error{EINVAL, "the region wraps around"};
    if (f.iova + (f.length - 1) < f.iova) return Error{EINVAL, "the region's iova wraps around"};
    return {};
}

void set_range(SlotFields& f, const RegionSpec& spec) {
    f.base = spec.implicit ? 0 : reinterpret_cast<std::uintptr_t>(spec.address);
    f.length = spec.implicit ? kWholeSpace : spec.length;
    f.iova = spec.implicit || f.access.has(Access::ZeroBased) ? 0 : spec.iova;
    f.access = spec.far == nullptr ? without_far(f.access) : f.access | Access::Far;
}

// What rdma-core gives when it cannot pin. On-demand regions may be mapped later.
Result<void> judge_mapping(const SlotFields& f) {
    if (f.access.has(Access::Far)) return {};
    guard_recheck();
    if (f.access.has(Access::OnDemand) || f.length == kWholeSpace || f.length == 0) return {};
    if (!probe_memory(reinterpret_cast<void*>(f.base), f.length, f.access.has(Access::LocalWrite)))
        return Error{EFAULT, "the memory is not mapped, or read-only with local write access"};
    return {};
}

Result<void> judge_region(const SlotFields& f) {
    TRY(judge_access(without_far(f.access)));
    TRY(judge_range(f));
    return judge_mapping(f);
}

constexpr Error kNoPd{EINVAL, "no such protection domain"};
constexpr Error kNoRegion{EINVAL, "no such memory region"};
constexpr Error kBound{EBUSY, "memory windows are bound to the region"};

// Bounds without overflow, then the pointer.
Fault cut(const SlotFields& f, std::uint64_t address, std::uint64_t length, Slice& out) {
    const std::uint64_t offset = address - f.iova;
    if (address < f.iova || offset > f.length || length > f.length - offset)
        return Fault::OutOfBounds;
    out.length = length;
    if (f.kind == SlotKind::NullRegion) return Fault::None;
    out.base = reinterpret_cast<std::byte*>(f.base + offset);
    // Only an implicit region reaches address 0, which is never mapped and means the null region.
    if (out.base == nullptr) return Fault::Unmapped;
    return f.access.has(Access::Far) ? Fault::Far : Fault::None;
}

}  // namespace

const char* to_string(Fault fault) {
    switch (fault) {
        case Fault::None:
            return "no fault";
        case Fault::NoSuchKey:
            return "the key is unknown, stale or not bound";
        case Fault::WrongPd:
            return "the key belongs to another protection domain";
        case Fault::NoPermission:
            return "the region or window does not allow this access";
        case Fault::OutOfBounds:
            return "the access leaves the region, window or list";
        case Fault::Misaligned:
            return "an atomic must be aligned to 8 bytes";
        case Fault::NotBoundToQp:
            return "the window is bound to another queue pair";
        case Fault::Unmapped:
            return "the memory was unmapped or protected after registration";
        case Fault::Far:
            return "the memory is a GPU's, which this operation cannot use";
    }
    ASSERT(false);
}

Memory::Memory(const Limits& limits, RandomSource& random)
    : limits_(limits), random_(random), pds_(limits.pds) {
    ASSERT(std::uint64_t{limits.regions} + limits.windows < kSlots);
    chunk_owner_.reserve(kChunks);
}

Memory::Pd* Memory::find_pd(PdId pd) {
    if (pd.raw == 0 || pd.raw > pds_.size() || !pds_[pd.raw - 1].live) return nullptr;
    return &pds_[pd.raw - 1];
}

Result<PdId> Memory::alloc_pd() {
    const Hold hold(lock_);
    for (std::uint32_t i = 0; i < pds_.size(); ++i) {
        if (pds_[i].live) continue;
        pds_[i] = {true, 0};
        return PdId{i + 1};
    }
    return Error{ENOMEM, "no protection domain is left"};
}

Result<void> Memory::dealloc_pd(PdId pd) {
    const Hold hold(lock_);
    Pd* const found = find_pd(pd);
    if (found == nullptr) return kNoPd;
    if (found->users != 0) return Error{EBUSY, "the protection domain is in use"};
    found->live = false;
    return {};
}

Result<void> Memory::pin_pd(PdId pd) {
    const Hold hold(lock_);
    Pd* const found = find_pd(pd);
    if (found == nullptr) return kNoPd;
    ++found->users;
    return {};
}

void Memory::unpin_pd(PdId pd) {
    const Hold hold(lock_);
    Pd* const found = find_pd(pd);
    ASSERT(found != nullptr && found->users > 0);
    --found->users;
}

RegionName Memory::region_at(std::uintptr_t address) {
    const Hold hold(lock_);
    RegionName found;
    for (std::uint32_t i = 1; i < slots_used_; ++i) {
        const Slot* const slot = slot_of(i << 16);
        ASSERT(slot != nullptr);
        const SlotFields f = slot->fields();
        const bool holds = slot->shown() && f.kind == SlotKind::Region && address >= f.base &&
                           address - f.base < f.length;
        if (holds && (found.key == 0 || f.length < found.length))
            found = {slot->key, f.base, f.length, without_far(f.access)};
    }
    return found;
}

RegionName Memory::region_with(std::uint32_t key) const {
    const Slot* const slot = slot_of(key);
    SlotFields f;
    if (slot == nullptr || !slot->read(key, f)) return {};
    return {key, f.iova, f.length, without_far(f.access)};
}

std::shared_ptr<FarMemory> Memory::far_memory(std::uint32_t key) {
    const Hold hold(lock_);
    return find_far(key);
}

std::shared_ptr<FarMemory> Memory::find_far(std::uint32_t key) const {
    const Slot* slot = slot_of(key);
    if (slot == nullptr || slot->key != key || !slot->shown()) return nullptr;
    if (!is_region(slot->fields().kind)) slot = find_region(LKey{slot->bound});
    return slot == nullptr ? nullptr : slot->far;
}

bool Memory::had_key(std::uint32_t key) {
    const Hold hold(lock_);
    const Slot* const slot = slot_of(key);
    return slot != nullptr && slot->key == key && !slot->shown();
}

bool Memory::reuses_slots() const {
    return resting_ > kRestingSlots || slots_used_ == kSlots;
}

bool Memory::wants_chunk() const {
    return !reuses_slots() && slots_used_ / kChunkSlots == chunk_owner_.size();
}

// An allocation may take long, and other threads spin meanwhile: so it is made without the lock.
// If several threads come here at once, the table has room for longer.
bool Memory::make_room(std::unique_lock<Spinlock>& hold) {
    if (!wants_chunk()) return true;
    hold.unlock();
    std::unique_ptr<Slot[]> chunk(new (std::nothrow) Slot[kChunkSlots]);
    hold.lock();
    if (chunk == nullptr) return !wants_chunk();
    if (chunk_owner_.size() == kChunks) return true;
    chunks_[chunk_owner_.size()].store(chunk.get(), std::memory_order_release);
    chunk_owner_.push_back(std::move(chunk));
    return true;
}

Result<Slot*> Memory::take_slot(std::unique_lock<Spinlock>& hold, PdId pd, SlotKind kind) {
    if (!make_room(hold)) return Error{ENOMEM, "out of memory for a table of memory regions"};
    Pd* const domain = find_pd(pd);
    if (domain == nullptr) return kNoPd;
    std::uint32_t& count = is_region(kind) ? region_count_ : window_count_;
    if (count == (is_region(kind) ? limits_.regions : limits_.windows))
        return Error{ENOMEM, "no memory region or window is left"};

    std::uint32_t index = slots_used_;
    if (reuses_slots()) {
        ASSERT(resting_ > 0);
        index = oldest_resting_;
        oldest_resting_ = slot_of(index << 16)->next;
        --resting_;
    } else {
        ASSERT(!wants_chunk());
        ++slots_used_;
    }
    Slot& slot = *slot_of(index << 16);
    const std::uint64_t dice = random_.next();
    const std::uint32_t low = dice & 0xff;
    // Any upper byte but the last one's: a stale key does not come alive, whatever its low byte.
    const std::uint32_t step = 1 + (dice >> 8) % 255;
    const std::uint32_t upper = ((slot.key >> 8) + step) & 0xff;
    slot.key = index << 16 | upper << 8 | low;
    slot.bound = 0;
    ++count;
    ++domain->users;
    return &slot;
}

void Memory::give_slot(Slot& slot) {
    slot.hide();
    const SlotFields old = slot.fields();
    --(is_region(old.kind) ? region_count_ : window_count_);
    --find_pd(old.pd)->users;
    slot.change({});
    const std::uint32_t index = slot.key >> 16;
    if (resting_ == 0) {
        oldest_resting_ = index;
    } else {
        slot_of(newest_resting_ << 16)->next = index;
    }
    newest_resting_ = index;
    ++resting_;
}

Slot* Memory::find_region(LKey key) const {
    Slot* const slot = slot_of(key.raw);
    if (slot == nullptr || slot->key != key.raw || !is_region(slot->fields().kind)) return nullptr;
    return slot;
}

Result<RegionKeys> Memory::publish_region(const SlotFields& fields, SlotKind kind,
                                          std::shared_ptr<FarMemory> far) {
    std::unique_lock hold(lock_);
    const auto taken = take_slot(hold, fields.pd, kind);
    if (!taken) return taken.error();
    Slot& slot = **taken;
    SlotFields complete = fields;
    complete.kind = kind;
    slot.change(complete);
    slot.far = std::move(far);
    slot.show();
    return RegionKeys{{slot.key}, {slot.key}};
}

Result<RegionKeys> Memory::register_region(const RegionSpec& spec) {
    SlotFields fields;
    fields.pd = spec.pd;
    TRY(judge_access(spec.access));
    fields.access = spec.access;
    set_range(fields, spec);
    TRY(judge_region(fields));
    return publish_region(fields, SlotKind::Region, spec.far);
}

Result<RegionKeys> Memory::register_null_region(PdId pd) {
    SlotFields fields;
    fields.pd = pd;
    fields.access = Access::LocalWrite;
    fields.length = kWholeSpace;
    return publish_region(fields, SlotKind::NullRegion);
}

Result<void> Memory::deregister_region(LKey key) {
    std::shared_ptr<FarMemory> far;  // Let go of without the lock.
    const Hold hold(lock_);
    Slot* const slot = find_region(key);
    if (slot == nullptr) return kNoRegion;
    if (slot->bound != 0) return kBound;
    far.swap(slot->far);
    give_slot(*slot);
    return {};
}

Result<RegionKeys> Memory::reregister_region(LKey key, RegionChange change,
                                             const RegionSpec& spec) {
    SlotFields fields;
    {
        const Hold hold(lock_);
        const Slot* const slot = find_region(key);
        if (slot == nullptr || slot->fields().kind != SlotKind::Region) return kNoRegion;
        fields = slot->fields();
    }
    const PdId old_pd = fields.pd;
    if (change.pd) fields.pd = spec.pd;
    if (change.access) {
        TRY(judge_access(spec.access));
        fields.access = fields.access.has(Access::Far) ? spec.access | Access::Far : spec.access;
    }
    if (change.translation) set_range(fields, spec);
    TRY(judge_region(fields));  // Outside of the lock: it makes system calls.

    std::shared_ptr<FarMemory> far = change.translation ? spec.far : nullptr;
    const Hold hold(lock_);
    Slot* const slot = find_region(key);
    if (slot == nullptr || slot->fields().pd != old_pd) return kNoRegion;
    if (slot->bound != 0) return kBound;
    Pd* const next = find_pd(fields.pd);
    if (next == nullptr) return kNoPd;
    ++next->users;
    --find_pd(old_pd)->users;
    slot->hide();
    slot->change(fields);
    if (change.translation) slot->far.swap(far);  // The old one is let go of without the lock.
    slot->show();
    return RegionKeys{{slot->key}, {slot->key}};
}

// Both fill one Lookup in place: copies of it, a byte and two words, would stall on a partial
// store.
Lookup Memory::local(PdId pd, LKey key, std::uint64_t address, std::uint64_t length,
                     AccessSet need) const {
    Lookup found;
    if (length == 0) return found;
    const Slot* const slot = slot_of(key.raw);
    SlotFields f;
    if (slot == nullptr || !slot->read(key.raw, f) || !is_region(f.kind)) {
        found.fault = Fault::NoSuchKey;
    } else if (f.pd != pd) {
        found.fault = Fault::WrongPd;
    } else if (!f.access.covers(need)) {
        found.fault = Fault::NoPermission;
    } else {
        found.fault = cut(f, address, length, found.slice);
    }
    return found;
}

Lookup Memory::remote(PdId pd, Qpn qpn, RKey key, std::uint64_t address, std::uint64_t length,
                      AccessSet need) const {
    Lookup found;
    if (length == 0) return found;
    const Slot* const slot = slot_of(key.raw);
    SlotFields f;
    if (slot == nullptr || !slot->read(key.raw, f)) {
        found.fault = Fault::NoSuchKey;
    } else if (f.pd != pd) {
        found.fault = Fault::WrongPd;
    } else if (f.kind == SlotKind::Window2 && f.qpn != qpn) {
        found.fault = Fault::NotBoundToQp;
    } else if (f.kind == SlotKind::NullRegion || !f.access.covers(need)) {
        found.fault = Fault::NoPermission;
    } else {
        found.fault = cut(f, address, length, found.slice);
        // Both: IBTA asks it of the address on the wire, the CPU of the one in memory.
        const bool aligned = address % 8 == 0 && is_aligned_word(found.slice);
        if (need.has(Access::RemoteAtomic) && found.fault == Fault::None && !aligned)
            found.fault = Fault::Misaligned;
    }
    return found;
}

FarLookup Memory::local_or_far(PdId pd, LKey key, std::uint64_t address, std::uint64_t length,
                               AccessSet need) {
    FarLookup out{local(pd, key, address, length, need), nullptr};
    if (out.found.fault != Fault::Far) return out;
    const Hold hold(lock_);
    out.found = local(pd, key, address, length, need);
    if (out.found.fault == Fault::Far) out.memory = find_far(key.raw);
    return out;
}

FarLookup Memory::remote_or_far(PdId pd, Qpn qpn, RKey key, std::uint64_t address,
                                std::uint64_t length, AccessSet need) {
    FarLookup out{remote(pd, qpn, key, address, length, need), nullptr};
    if (out.found.fault != Fault::Far) return out;
    const Hold hold(lock_);
    out.found = remote(pd, qpn, key, address, length, need);
    if (out.found.fault == Fault::Far) out.memory = find_far(key.raw);
    return out;
}

}  // namespace feroce::mem
