// GidTable: the addresses of a device by index. Indexes are what programs remember: an address that
// stays keeps its index, one that goes leaves an empty (zero) entry, and a new one takes the first
// empty entry. Any thread; readers get copies, because the table changes under their feet.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

#include "base/gid.hpp"

namespace feroce::process {

class GidTable {
public:
    explicit GidTable(std::size_t entries_max) : entries_max_(entries_max) {}

    bool update(const std::vector<Gid>& now);  // True if something changed.
    Gid at(std::size_t index) const;           // Zero if there is none.
    std::vector<Gid> all() const;

private:
    const std::size_t entries_max_;
    mutable std::mutex mutex_;
    std::vector<Gid> entries_;
};

}  // namespace feroce::process
