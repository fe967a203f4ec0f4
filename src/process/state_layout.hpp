// Where things are in a state page's file, for its writer and its reader.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/gid.hpp"
#include "base/result.hpp"

namespace feroce::process {

inline constexpr std::size_t kSequenceOffset =
    0;                                            // Odd while the owner writes; 0 before the first.
inline constexpr std::size_t kRequestOffset = 4;  // Changed by readers, who then wake the owner.
inline constexpr std::size_t kLengthOffset = 8;   // Of the snapshot.
// Connections, 8 bytes each, at a place that the QPN gives: see StatePage::note_connection().
inline constexpr std::size_t kConnectionsOffset = 64;
inline constexpr std::size_t kConnections = 1024;
inline constexpr std::uint32_t kConnectionTries = 8;  // Places that an entry may be in.

// A StateReason that was written at once, beside the snapshot and without any lock of an engine.
struct PageNote {
    std::uint32_t sequence = 0;  // Odd while the owner writes; 0 before the first.
    std::uint32_t count = 0;     // How often it happened.
    std::uint32_t qpn = 0;
    std::uint32_t peer_qpn = 0;
    std::uint32_t psn = 0;
    std::uint8_t kind = 0;
    std::uint8_t peer_silent = 0;
    std::uint8_t with_peer = 0;
    std::uint8_t minor = 0;
    Gid source;
    Gid destination;
    std::uint32_t length = 0;
    std::array<char, 452> text{};
};
static_assert(sizeof(PageNote) == 512);
inline constexpr std::size_t kNotesOffset = kConnectionsOffset + kConnections * 8;
inline constexpr std::size_t kNotes = 32;

inline constexpr std::size_t kSnapshotOffset = kNotesOffset + kNotes * sizeof(PageNote);
inline constexpr std::size_t kSnapshotMax = 16 * 1024 * 1024;  // What readers believe.

// The directory of that user if it is there and nobody else's. Never makes it: a process that has
// become another user since would make it that one's.
Result<std::string> existing_directory(std::uint32_t user);

// Removes pages of ended processes but for the youngest few. Who ended well with nothing to explain
// has removed its own.
void prune_dead_pages(const std::string& directory, std::uint32_t user);

}  // namespace feroce::process
