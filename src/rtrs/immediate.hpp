// The 32-bit immediate of every RTRS message: four bits of type, 28 of payload. Values here are in
// host order; on the wire they are big-endian, which is the business of the caller that posts.
#pragma once

#include <cstdint>
#include <optional>

#include "rtrs/geometry.hpp"

namespace feroce::rtrs {

enum class ImmediateType : std::uint8_t {
    Request = 0,              // Client to server: where in which chunk the header is.
    Response = 1,             // Server to client: errno and chunk.
    ResponseInvalidated = 2,  // As Response, after a SEND WITH INVALIDATE of the client's key.
    Heartbeat = 8,
    HeartbeatAck = 9,
};

struct Immediate {
    ImmediateType type = ImmediateType::Request;
    std::uint32_t payload = 0;

    std::uint32_t raw() const { return static_cast<std::uint32_t>(type) << kPayloadBits | payload; }
    static std::optional<Immediate> parse(std::uint32_t raw);

    friend bool operator==(const Immediate&, const Immediate&) = default;
};

inline constexpr Immediate kHeartbeat{ImmediateType::Heartbeat, 0};
inline constexpr Immediate kHeartbeatAck{ImmediateType::HeartbeatAck, 0};

struct RequestPlace {
    std::uint16_t chunk = 0;
    std::uint32_t header_offset = 0;  // Data and user message stand before it.

    Immediate immediate(const Geometry& geometry) const;
    static Result<RequestPlace> parse(const Geometry& geometry, std::uint32_t payload);

    friend bool operator==(const RequestPlace&, const RequestPlace&) = default;
};

struct Response {
    std::uint32_t chunk = 0;   // 19 bits travel.
    int error = 0;             // A positive errno, nine bits travel; 0 is success.
    bool invalidated = false;  // The peer has invalidated the key of the request.

    Immediate immediate() const;
    // nullopt: not a response, or of a chunk that the session does not have.
    static std::optional<Response> parse(const Geometry& geometry, Immediate immediate);

    friend bool operator==(const Response&, const Response&) = default;
};

}  // namespace feroce::rtrs
