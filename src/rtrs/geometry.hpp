// The shape of a session's server memory, as the server announces it: queue_depth chunks, each with
// room for max_io_size bytes of data and max_header_size bytes of message and header. Both ends
// derive from it how a 28-bit immediate splits into chunk and offset.
#pragma once

#include <bit>
#include <cerrno>
#include <cstdint>

#include "base/result.hpp"

namespace feroce::rtrs {

inline constexpr unsigned kPayloadBits = 28;  // Of an immediate; the other four are its type.

struct Geometry {
    std::uint16_t queue_depth = 0;
    std::uint32_t max_io_size = 0;
    std::uint32_t max_header_size = 0;

    std::uint64_t chunk_size() const { return std::uint64_t{max_io_size} + max_header_size; }
    std::uint64_t total_size() const { return chunk_size() * queue_depth; }
    // What is left of the payload for the offset inside a chunk.
    unsigned offset_bits() const { return kPayloadBits - ceil_log2(queue_depth); }

    // Whether both ends can address every byte of every chunk.
    Result<void> check() const {
        if (queue_depth == 0 || max_io_size == 0 || max_header_size == 0)
            return Error{EPROTO, "the server announces no chunks, or chunks without room"};
        if (ceil_log2(queue_depth) + ceil_log2(chunk_size()) > kPayloadBits)
            return Error{EPROTO,
                         "queue depth times chunk size exceeds 28 bits: use fewer or "
                         "smaller chunks"};
        return {};
    }

    static unsigned ceil_log2(std::uint64_t value) {
        return value <= 1 ? 0 : static_cast<unsigned>(std::bit_width(value - 1));
    }

    friend bool operator==(const Geometry&, const Geometry&) = default;
};

}  // namespace feroce::rtrs
