// IcrcCheck: is a datagram as its sender sealed it? IPv6 is exact. The ICRC covers the IPv4 id,
// which a UDP socket does not show: first the predicted id, which is exact too; else the id is
// solved for, which alone would be only 16 bits strong, so the solved id must be one that fits the
// source's habit (see Habit). After 10 s without a good datagram any id will do. Remembers a
// bounded number of sources, the least recently heard is forgotten. Engine lock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/gid.hpp"
#include "base/time.hpp"
#include "device/port.hpp"

namespace feroce::device {

enum class IcrcVerdict : std::uint8_t {
    Good,
    Bad,         // No IPv4 id makes it right.
    Unsolvable,  // An id would make it right, but not one this source is believed to use.
};

class IcrcCheck {
public:
    static constexpr std::uint16_t kSegmentIds = 128;
    static constexpr std::uint16_t kIdLead = 4096;
    static constexpr Duration kSilence = std::chrono::seconds(10);
    static constexpr std::size_t kSourcesMax = 1024;

    IcrcCheck();

    IcrcVerdict verify(Instant now, const Datagram& datagram);

    // A source of which at least `threshold` datagrams came and none was good: something on the way
    // rewrites its packets. Looks at the whole table: not for every packet.
    std::optional<Gid> never_verified(std::uint64_t threshold) const;

private:
    static constexpr std::size_t kWays = 4;
    static constexpr std::size_t kSets = kSourcesMax / kWays;

    // How a source numbers its datagrams, as far as they showed. One that segments its sends has
    // ids below kSegmentIds, mostly as predicted; one that counts goes on from its last id. An
    // address may be both, through address translation.
    enum class Habit : std::uint8_t { Unknown, AsPredicted, Segments, Counts, Both };
    // What the id of a good datagram shows.
    enum class Sign : std::uint8_t {
        PredictedSegment,
        PredictedOther,
        SolvedSegment,
        SolvedOther,
        StrangersSegment,  // Solved, of a source that is new or was long silent: may count as well.
    };
    struct Source {
        Gid address;
        bool used = false;
        Habit habit = Habit::Unknown;
        std::uint16_t last_id = 0;
        Instant last_heard{};  // Good or bad: who is forgotten first.
        Instant last_good{};   // Meaningful if good > 0.
        std::uint64_t good = 0;
        std::uint64_t bad = 0;
    };
    using Set = std::array<Source, kWays>;

    Source& source_of(Instant now, const Gid& address);
    Source& find(const Gid& address);                       // Forgets another for it if need be.
    static bool is_new(Instant now, const Source& source);  // Or so long silent that it may be.
    static bool believable(Instant now, const Source& source, std::uint16_t id);
    static Sign sign_of(bool solved, bool stranger, std::uint16_t id);
    static Habit after(Habit habit, Sign sign);
    static IcrcVerdict accept(Instant now, Source& source, std::uint16_t id, Sign sign);
    static IcrcVerdict reject(Source& source, IcrcVerdict verdict);

    std::vector<Set> sets_;   // By a hash of the address.
    Source* last_ = nullptr;  // Packets of one source come in a row.
};

}  // namespace feroce::device
