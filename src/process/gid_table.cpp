#include "process/gid_table.hpp"

#include <algorithm>

namespace feroce::process {

bool GidTable::update(const std::vector<Gid>& now) {
    const std::lock_guard lock(mutex_);
    bool changed = false;
    for (Gid& gid : entries_) {
        if (gid.is_zero() || std::count(now.begin(), now.end(), gid) > 0) continue;
        gid = Gid{};
        changed = true;
    }
    for (const Gid& gid : now) {
        if (std::count(entries_.begin(), entries_.end(), gid) > 0) continue;
        const auto empty = std::find(entries_.begin(), entries_.end(), Gid{});
        if (empty != entries_.end()) {
            *empty = gid;
        } else if (entries_.size() < entries_max_) {
            entries_.push_back(gid);
        } else {
            continue;
        }
        changed = true;
    }
    return changed;
}

Gid GidTable::at(std::size_t index) const {
    const std::lock_guard lock(mutex_);
    return index < entries_.size() ? entries_[index] : Gid{};
}

std::vector<Gid> GidTable::all() const {
    const std::lock_guard lock(mutex_);
    return entries_;
}

}  // namespace feroce::process
