// RouteMemory: the source addresses that the kernel chose for destinations, until its tables
// change. A connection is asked for in many programs again and again from the same few machines,
// and to ask the kernel takes five system calls. A value: no clock, no lock.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/gid.hpp"
#include "base/time.hpp"

namespace feroce::port {

class RouteMemory {
public:
    // What the kernel does not tell of, such as a setting in /proc, is noticed after this.
    static constexpr Duration kAge = std::chrono::milliseconds(100);
    static constexpr std::size_t kPlaces = 16;  // The oldest answer makes room.

    std::optional<Gid> find(Instant now, const Gid& destination, std::uint32_t scope) const {
        for (const Entry& e : entries_)
            if (now < e.until && e.destination == destination && e.scope == scope) return e.source;
        return std::nullopt;
    }

    // An answer counts only if nothing was forgotten since the kernel was asked.
    std::uint64_t version() const { return version_; }
    void keep(Instant now, const Gid& destination, std::uint32_t scope, const Gid& source,
              std::uint64_t version) {
        if (version != version_) return;
        entries_[next_] = {now + kAge, destination, scope, source};
        next_ = (next_ + 1) % kPlaces;
    }

    void forget() {
        entries_ = {};
        ++version_;
    }

private:
    struct Entry {
        Instant until{};
        Gid destination;
        std::uint32_t scope = 0;
        Gid source;
    };
    std::array<Entry, kPlaces> entries_{};
    std::size_t next_ = 0;
    std::uint64_t version_ = 0;
};

}  // namespace feroce::port
