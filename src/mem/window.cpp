// Memory's windows. A bound window is a slot with host address, bounds and rights of its own, so
// that a lookup through it costs what one through a region does; the region counts its windows and
// cannot go or change under them.
#include <cerrno>
#include <mutex>

#include "mem/memory.hpp"

namespace feroce::mem {

namespace {

using Hold = std::lock_guard<Spinlock>;

constexpr AccessSet kWindowAccess = Access::RemoteWrite | Access::RemoteRead |
                                    (Access::RemoteAtomic | Access::FlushGlobal) |
                                    Access::FlushPersistent;

constexpr bool is_window(SlotKind kind) {
    return kind == SlotKind::Window1 || kind == SlotKind::Window2;
}

constexpr std::uint32_t name_of(std::uint32_t key) {
    return key >> 8;
}

bool in_bounds(const WindowBind& bind, const SlotFields& region) {
    const std::uint64_t offset = bind.address - region.iova;
    return bind.address >= region.iova && offset <= region.length &&
           bind.length <= region.length - offset;
}

BindOutcome judge_region(const WindowBind& bind, const SlotFields& region) {
    if (region.pd != bind.pd) return BindOutcome::WrongPd;
    if (!region.access.has(Access::MwBind)) return BindOutcome::NoPermission;
    if (bind.access.overlaps(kRemoteChange) && !region.access.has(Access::LocalWrite))
        return BindOutcome::NoPermission;
    // IBTA 10.6.7.2.6: a zero-based region cannot be the ground of a window.
    if (region.access.has(Access::ZeroBased)) return BindOutcome::BadAccess;
    return in_bounds(bind, region) ? BindOutcome::Bound : BindOutcome::OutOfBounds;
}

}  // namespace

Slot* Memory::find_window(RKey key) const {
    Slot* const slot = slot_of(key.raw);
    if (slot == nullptr || name_of(slot->key) != name_of(key.raw)) return nullptr;
    return is_window(slot->fields().kind) ? slot : nullptr;
}

Result<RKey> Memory::allocate_window(PdId pd, WindowType type) {
    std::unique_lock hold(lock_);
    SlotFields fields;
    fields.kind = type == WindowType::Type1 ? SlotKind::Window1 : SlotKind::Window2;
    fields.pd = pd;
    const auto taken = take_slot(hold, pd, fields.kind);
    if (!taken) return taken.error();
    (*taken)->change(fields);  // Not shown: an unbound window answers to no key.
    return RKey{(*taken)->key};
}

Result<std::shared_ptr<FarMemory>> Memory::free_window(RKey key) {
    const Hold hold(lock_);
    Slot* const window = find_window(key);
    if (window == nullptr) return Error{EINVAL, "no such memory window"};
    std::shared_ptr<FarMemory> far = find_far(window->key);
    unbind(*window);
    give_slot(*window);
    return far;
}

RKey Memory::fresh_window_key(RKey current) {
    const Hold hold(lock_);
    const std::uint32_t step = 1 + static_cast<std::uint32_t>(random_.next() % 255);
    return RKey{(current.raw & ~0xffu) | ((current.raw + step) & 0xff)};
}

void Memory::unbind(Slot& window) {
    if (!window.shown()) return;
    window.hide();
    Slot* const region = find_region(LKey{window.bound});
    ASSERT(region != nullptr && region->bound > 0);
    --region->bound;
    window.bound = 0;
}

BindOutcome Memory::judge_bind(const WindowBind& bind, const Slot* window,
                               const Slot* region) const {
    if (window == nullptr) return BindOutcome::NoSuchWindow;
    const SlotFields own = window->fields();
    const bool type2 = own.kind == SlotKind::Window2;
    if (own.pd != bind.pd) return BindOutcome::WrongPd;
    if (type2 && window->shown()) return BindOutcome::NotFree;
    if (bound_key(RKey{window->key}, bind.new_rkey).raw == window->key) return BindOutcome::BadKey;
    if (bind.length == 0) return type2 ? BindOutcome::BadLength : BindOutcome::Unbound;
    const AccessSet possible = type2 ? kWindowAccess | Access::ZeroBased : kWindowAccess;
    if (!possible.covers(bind.access)) return BindOutcome::BadAccess;
    if (region == nullptr || region->fields().kind != SlotKind::Region)
        return BindOutcome::NoSuchRegion;
    return judge_region(bind, region->fields());
}

BindOutcome Memory::bind_window(const WindowBind& bind) {
    const Hold hold(lock_);
    Slot* const window = find_window(bind.window);
    Slot* const region = find_region(bind.region);
    const BindOutcome outcome = judge_bind(bind, window, region);
    if (!succeeded(outcome)) return outcome;

    unbind(*window);
    window->key = bound_key(RKey{window->key}, bind.new_rkey).raw;
    if (outcome == BindOutcome::Unbound) return outcome;
    const SlotFields ground = region->fields();
    SlotFields fields = window->fields();
    fields.access = ground.access.has(Access::Far) ? bind.access | Access::Far : bind.access;
    fields.qpn = bind.qpn;
    fields.base = ground.base + (bind.address - ground.iova);
    fields.length = bind.length;
    fields.iova = bind.access.has(Access::ZeroBased) ? 0 : bind.address;
    window->change(fields);
    window->bound = region->key;
    ++region->bound;
    window->show();
    return outcome;
}

Fault Memory::invalidate(PdId pd, Qpn qpn, RKey key) {
    const Hold hold(lock_);
    Slot* const slot = slot_of(key.raw);
    if (slot == nullptr || slot->key != key.raw || !slot->shown()) return Fault::NoSuchKey;
    const SlotFields f = slot->fields();
    if (f.kind != SlotKind::Window2) return Fault::NoPermission;
    if (f.pd != pd) return Fault::WrongPd;
    if (f.qpn != qpn) return Fault::NotBoundToQp;
    unbind(*slot);
    return Fault::None;
}

Fault Memory::invalidate_local(PdId pd, Qpn qpn, RKey key) {
    return invalidate(pd, qpn, key);
}

Fault Memory::invalidate_remote(PdId pd, Qpn qpn, RKey key) {
    return invalidate(pd, qpn, key);
}

void Memory::unbind_windows_of(Qpn qpn) {
    const Hold hold(lock_);
    for (std::uint32_t index = 1; window_count_ > 0 && index < slots_used_; ++index) {
        Slot& slot = *slot_of(index << 16);
        const SlotFields f = slot.fields();
        if (f.kind == SlotKind::Window2 && f.qpn == qpn) unbind(slot);
    }
}

}  // namespace feroce::mem
