// Estates: the bonds of a port group's members (host/estate.hpp), behind the records of the slot
// table in the group's memory file: a part per slot, written by the slot's owner alone and read by
// the holder of the slot's lock after it. How many entries of a part count is in the slot's record.
//
// Only members of the group have the file. What is read is checked all the same.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "host/estate.hpp"
#include "port/slot_table.hpp"

namespace feroce::port {

class Estates {
public:
    using Inherit = std::function<void(std::vector<cm::Bond>&)>;

    explicit Estates(SlotTable& table) : table_(table) {}

    // For a slot that this process owns; null if the file has no room for it. `inherit` calls the
    // one below with what its caller knows, and keeps this object alive.
    std::unique_ptr<host::Estate> open(SlotNumber slot, Inherit inherit);

    // For the holder of the slot's lock, before it opens an estate: what the last owner left is
    // ours now. Where memory is wanting it throws, and nothing was taken.
    void take(std::uint32_t slot);
    // Takes what the dead have left. `own`: the slots that this process has locked; these must not
    // change meanwhile.
    void inherit(const SlotSet& own, std::vector<cm::Bond>& out);
    // Whether inherit() would find something. Any thread.
    bool waiting(const SlotSet& own) const;

private:
    bool is_orphaned(std::uint32_t slot, const SlotSet& own) const;

    SlotTable& table_;
    std::vector<cm::Bond> taken_;          // By take(), given to nobody yet. Guarded as inherit().
    std::atomic<bool> has_taken_ = false;  // A hint for waiting(), hence relaxed.
};

}  // namespace feroce::port
