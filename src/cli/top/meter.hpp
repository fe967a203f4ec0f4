// Meter: how fast the counters of objects grow, from looks at them. An object is known by a key;
// its counters never fall while it lives. So one that fell is another object's, which took the name
// of one that ended between two looks: all that it has counted happened since then.
//
// Pure: the time of a look is handed in.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

namespace feroce::cli {

template <class Key, std::size_t N>
class Meter {
public:
    using Counts = std::array<std::uint64_t, N>;
    using Rates = std::array<double, N>;  // A second.
    using Time = std::chrono::nanoseconds;

    // A look at all objects. Those that the one before did not see are forgotten.
    void begin(Time now) {
        std::erase_if(known_, [this](const auto& entry) { return entry.second.seen != looks_; });
        before_ = now_;
        now_ = now;
        ++looks_;
    }

    // Of one object in this look. Nothing if there is no earlier look to compare with. `fresh`:
    // the counters are of now; else they are what the object showed last, and its next rate is
    // that of the whole time since.
    std::optional<Rates> take(const Key& key, const Counts& counts, bool fresh = true) {
        const auto [at, is_new] = known_.try_emplace(key);
        Place& place = at->second;
        place.seen = looks_;
        if (!fresh) return std::nullopt;
        const std::optional<Time> since = is_new && looks_ > 1 ? before_ : place.since;
        const bool another = falls(place.counts, counts);
        Rates out{};
        for (std::size_t i = 0; i < N; ++i) {
            const std::uint64_t grown = counts[i] - (another ? 0 : place.counts[i]);
            out[i] = since && now_ > *since
                         ? static_cast<double>(grown) /
                               std::chrono::duration<double>(now_ - *since).count()
                         : 0;
        }
        place.counts = counts;
        place.since = now_;
        if (!since || now_ <= *since) return std::nullopt;
        return out;
    }

private:
    struct Place {
        Counts counts{};
        std::optional<Time> since;  // When they were so. Nothing: no fresh ones were seen.
        std::uint64_t seen = 0;     // The last look that saw the object.
    };

    static bool falls(const Counts& before, const Counts& now) {
        for (std::size_t i = 0; i < N; ++i)
            if (now[i] < before[i]) return true;
        return false;
    }

    std::map<Key, Place> known_;
    std::uint64_t looks_ = 0;
    Time before_{};
    Time now_{};
};

}  // namespace feroce::cli
