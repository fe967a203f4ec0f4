// The bytes of the stream protocol that rdma-core's rsockets speak: the private data of a
// connection, the 32 bits of an immediate, and the two kinds of entries that one side writes into
// the other's memory. Values with parse and emit, no state.
//
// Private data is big-endian. An entry in memory is in the order of the host that owns the memory:
// the writer swaps.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <optional>

#include "base/bytes.hpp"

namespace feroce::rsockets {

// A piece of a peer's memory.
struct Target {
    std::uint64_t address = 0;
    std::uint32_t key = 0;
    std::uint32_t length = 0;

    bool operator==(const Target&) const = default;
};

// Memory that a program offered by riomap(), under an offset of its choice.
struct Mapping {
    std::uint64_t offset = 0;
    Target target;
};

inline constexpr std::size_t kTargetBytes = 16;
inline constexpr std::size_t kMappingBytes = 24;
// A side has so many targets of the peer at a time: the halves of its receive ring.
inline constexpr std::size_t kTargets = 2;

void emit_target(std::span<std::byte, kTargetBytes> to, const Target& t, std::endian order);
void emit_mapping(std::span<std::byte, kMappingBytes> to, const Mapping& m, std::endian order);
Mapping parse_mapping(std::span<const std::byte, kMappingBytes> from, std::endian order);

// What each side tells of itself when the connection is made.
struct Greeting {
    static constexpr std::size_t kSize = 40;
    using Bytes = std::array<std::byte, kSize>;

    std::endian order = std::endian::little;  // Of the sender's memory.
    std::uint16_t credits = 0;                // Data messages that may be sent to it at first.
    std::uint32_t mappings = 0;               // Entries for riomap() in its memory.
    Target targets;                           // Where its targets lie; the length is their number.
    Target first;                             // The first target: half of its receive ring.

    Bytes emit() const;
    // Nothing if it is too short or of another version.
    static std::optional<Greeting> parse(ByteView from);
};

// The largest number of mappings that a greeting can tell.
inline constexpr std::uint32_t kMostMappings = 0x7f00;
// The number that the peer reads when told of `count`: above 128 only multiples of 256 can be told.
std::uint32_t told_mappings(std::uint32_t count);

enum class Kind : std::uint8_t { Data = 0, Credits = 4, Mapping = 6, Control = 7 };
enum class Control : std::uint32_t { Disconnect = 0, KeepAlive = 1, Shutdown = 2 };

struct Immediate {
    static constexpr std::uint32_t kMostValue = 0x1fffffff;

    Kind kind = Kind::Data;
    std::uint32_t value = 0;

    constexpr std::uint32_t emit() const {
        return static_cast<std::uint32_t>(kind) << 29 | (value & kMostValue);
    }
    // The kind may be one that is reserved.
    static constexpr Immediate parse(std::uint32_t raw) {
        return {static_cast<Kind>(raw >> 29), raw & kMostValue};
    }
};

}  // namespace feroce::rsockets
