#include "port/estates.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "base/rollback.hpp"
#include "base/shortage.hpp"

namespace feroce::port {
namespace {

constexpr std::size_t kPartBytes = SlotTable::kBondsPerSlot * SlotTable::kBondBytes;

// An entry counts while `used` is 1. The owner may die between any two stores, so it changes the
// rest only while `used` is 0; a reader has the slot's lock and finds what the dead one stored.
struct Entry {
    std::atomic<std::uint32_t> used;
    std::uint32_t local_id;
    std::uint32_t remote_id;
    std::uint32_t remote_qpn;
    std::array<std::uint8_t, 16> local;
    std::array<std::uint8_t, 16> remote;
    std::array<std::uint8_t, 16> reserved;
};
static_assert(sizeof(Entry) == SlotTable::kBondBytes);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

off_t part_of(std::uint32_t slot) {
    return static_cast<off_t>(SlotTable::kRecordBytes + slot * kPartBytes);
}

// An id names its slot: nobody can make an heir speak for another one's connection.
std::optional<cm::Bond> read_entry(const std::byte* bytes, std::uint32_t slot) {
    std::uint32_t used = 0;
    std::memcpy(&used, bytes, sizeof used);
    cm::Bond b;
    std::memcpy(&b.local_id.raw, bytes + offsetof(Entry, local_id), 4);
    std::memcpy(&b.remote_id.raw, bytes + offsetof(Entry, remote_id), 4);
    std::memcpy(&b.remote_qpn.raw, bytes + offsetof(Entry, remote_qpn), 4);
    std::memcpy(b.local.raw.data(), bytes + offsetof(Entry, local), 16);
    std::memcpy(b.remote.raw.data(), bytes + offsetof(Entry, remote), 16);
    const bool good = used == 1 && b.local_id.raw >> kCommIdLowBits == slot &&
                      b.remote_id.raw != 0 && b.remote_qpn.raw <= 0xff'ffff && !b.local.is_zero() &&
                      !b.remote.is_zero() && !b.local.is_multicast() && !b.remote.is_multicast() &&
                      b.local.is_v4() == b.remote.is_v4();
    return good ? std::optional(b) : std::nullopt;
}

class SlotEstate final : public host::Estate {
public:
    SlotEstate(SlotTable& table, std::uint32_t slot, Entry* entries, Estates::Inherit inherit)
        : table_(table), slot_(slot), entries_(entries), inherit_(std::move(inherit)) {
        free_.reserve(SlotTable::kBondsPerSlot);
    }
    ~SlotEstate() override { ::munmap(entries_, kPartBytes); }

    void keep(const cm::Bond& bond) override {
        if (index_.contains(bond.local_id.raw) || index_.size() == SlotTable::kBondsPerSlot) return;
        const std::uint32_t at = free_.empty() ? high_ : free_.back();
        // First, and without memory not at all.
        if (!with_memory([&] { index_.emplace(bond.local_id.raw, at); })) return;
        if (!free_.empty()) {
            free_.pop_back();
        } else {
            ++high_;
            entries_[at].used.store(0, std::memory_order_relaxed);  // The last owner's.
            table_.set_bonds(slot_, high_);
        }
        Entry& e = entries_[at];
        // The entry's old content is gone before any of the new is there.
        std::atomic_thread_fence(std::memory_order_release);
        e.local_id = bond.local_id.raw;
        e.remote_id = bond.remote_id.raw;
        e.remote_qpn = bond.remote_qpn.raw;
        e.local = bond.local.raw;
        e.remote = bond.remote.raw;
        e.used.store(1, std::memory_order_release);
    }

    void forget(wire::CommId local_id) override {
        const auto found = index_.find(local_id.raw);
        if (found == index_.end()) return;
        entries_[found->second].used.store(0, std::memory_order_relaxed);
        free_.push_back(found->second);
        index_.erase(found);
        if (!index_.empty()) return;
        // Nobody needs to look here.
        free_.clear();
        high_ = 0;
        table_.set_bonds(slot_, 0);
    }

    void inherit(std::vector<cm::Bond>& out) override { inherit_(out); }

private:
    SlotTable& table_;
    std::uint32_t slot_;
    Entry* entries_;
    Estates::Inherit inherit_;
    std::uint32_t high_ = 0;                        // Entries below count.
    std::vector<std::uint32_t> free_;               // Of those.
    std::map<std::uint32_t, std::uint32_t> index_;  // By local id.
};

}  // namespace

std::unique_ptr<host::Estate> Estates::open(SlotNumber slot, Inherit inherit) {
    struct stat file {};
    const off_t end = part_of(slot) + static_cast<off_t>(kPartBytes);
    if (::fstat(table_.fd(), &file) != 0 || file.st_size < end) return nullptr;
    void* part =
        ::mmap(nullptr, kPartBytes, PROT_READ | PROT_WRITE, MAP_SHARED, table_.fd(), part_of(slot));
    if (part == MAP_FAILED) return nullptr;
    Rollback unmap([part] { ::munmap(part, kPartBytes); });
    auto estate =
        std::make_unique<SlotEstate>(table_, slot, static_cast<Entry*>(part), std::move(inherit));
    unmap.keep();
    return estate;
}

void Estates::take(std::uint32_t slot) {
    const std::size_t count = std::min(table_.bonds(slot), SlotTable::kBondsPerSlot);
    if (count == 0) return;
    // All of it first: what is taken in part would be taken again.
    std::vector<std::byte> bytes(count * sizeof(Entry));
    taken_.reserve(taken_.size() + count);
    const ssize_t n = ::pread(table_.fd(), bytes.data(), bytes.size(), part_of(slot));
    for (std::size_t at = 0; n > 0 && at + sizeof(Entry) <= static_cast<std::size_t>(n);
         at += sizeof(Entry))
        if (const std::optional<cm::Bond> bond = read_entry(bytes.data() + at, slot))
            taken_.push_back(*bond);
    table_.set_bonds(slot, 0);
    has_taken_.store(!taken_.empty(), std::memory_order_relaxed);
}

bool Estates::is_orphaned(std::uint32_t slot, const SlotSet& own) const {
    return is_member_slot(slot) && !own.has(slot) && table_.bonds(slot) != 0 &&
           !table_.locked_by_another(slot);
}

void Estates::inherit(const SlotSet& own, std::vector<cm::Bond>& out) {
    for (std::uint32_t slot = 1; slot < kSlots; ++slot) {
        // Another heir may have been faster; then it is nobody's any more, or locked.
        if (!is_orphaned(slot, own) || !table_.try_lock(slot)) continue;
        const Rollback unlock([&] { table_.unlock(slot); });
        take(slot);
    }
    out.insert(out.end(), taken_.begin(), taken_.end());
    taken_.clear();
    has_taken_.store(false, std::memory_order_relaxed);
}

bool Estates::waiting(const SlotSet& own) const {
    if (has_taken_.load(std::memory_order_relaxed)) return true;
    for (std::uint32_t slot = 1; slot < kSlots; ++slot)
        if (is_orphaned(slot, own)) return true;
    return false;
}

}  // namespace feroce::port
