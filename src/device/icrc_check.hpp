// IcrcCheck: is a datagram as its sender sealed it? IPv6 is exact. The ICRC covers the IPv4 id,
// which a UDP socket does not show: first the predicted id, which is exact too; else the id is
// solved for, which alone would be only 16 bits strong, so the solved id must be one that this
// source may well have used: below 128 (one segmented send) if it ever sent such an id, else at
// most 4096 ahead of its last one, or 128 if its ids were always as predicted. After 10 s without a
// good datagram any id will do. Remembers a bounded number of sources, the least recently heard is
// forgotten. Engine lock.
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

    struct Source {
        Gid address;
        bool used = false;
        bool sent_segment_id = false;
        bool counts = false;  // It sent an id that was not predicted and is no segment's.
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
    static IcrcVerdict accept(Instant now, Source& source, std::uint16_t id);
    static IcrcVerdict reject(Source& source, IcrcVerdict verdict);

    std::vector<Set> sets_;   // By a hash of the address.
    Source* last_ = nullptr;  // Packets of one source come in a row.
};

}  // namespace feroce::device
