// See immediate.hpp.
#include "rtrs/immediate.hpp"

namespace feroce::rtrs {

namespace {

constexpr unsigned kResponseChunkBits = 19;
constexpr std::uint32_t kErrorMask = 0x1ff;
constexpr std::uint32_t kPayloadMask = (1u << kPayloadBits) - 1;

std::uint32_t error_bits(int error) {
    if (error == 0) return 0;
    const auto positive = static_cast<std::uint32_t>(error < 0 ? -error : error);
    // An errno that does not fit must not turn into success.
    return positive > kErrorMask ? EIO : positive;
}

}  // namespace

std::optional<Immediate> Immediate::parse(std::uint32_t raw) {
    const Immediate found{static_cast<ImmediateType>(raw >> kPayloadBits), raw & kPayloadMask};
    switch (found.type) {
        case ImmediateType::Request:
        case ImmediateType::Response:
        case ImmediateType::ResponseInvalidated:
        case ImmediateType::Heartbeat:
        case ImmediateType::HeartbeatAck:
            return found;
    }
    return std::nullopt;
}

Immediate RequestPlace::immediate(const Geometry& geometry) const {
    ASSERT(chunk < geometry.queue_depth && header_offset < geometry.chunk_size());
    const std::uint32_t high = std::uint32_t{chunk} << geometry.offset_bits();
    return {ImmediateType::Request, high + header_offset};
}

Result<RequestPlace> RequestPlace::parse(const Geometry& geometry, std::uint32_t payload) {
    const std::uint32_t chunk = payload >> geometry.offset_bits();
    const std::uint32_t offset = payload & ((1u << geometry.offset_bits()) - 1);
    if (chunk >= geometry.queue_depth)
        return Error{EPROTO, "a request names a chunk that the session does not have"};
    if (offset >= geometry.chunk_size())
        return Error{EPROTO, "a request's header stands behind the end of its chunk"};
    return RequestPlace{static_cast<std::uint16_t>(chunk), offset};
}

Immediate Response::immediate() const {
    ASSERT(chunk < 1u << kResponseChunkBits);
    const auto type = invalidated ? ImmediateType::ResponseInvalidated : ImmediateType::Response;
    return {type, error_bits(error) << kResponseChunkBits | chunk};
}

std::optional<Response> Response::parse(const Geometry& geometry, Immediate immediate) {
    const bool invalidated = immediate.type == ImmediateType::ResponseInvalidated;
    if (!invalidated && immediate.type != ImmediateType::Response) return std::nullopt;
    const std::uint32_t chunk = immediate.payload & ((1u << kResponseChunkBits) - 1);
    if (chunk >= geometry.queue_depth) return std::nullopt;
    const auto error = static_cast<int>(immediate.payload >> kResponseChunkBits);
    return Response{chunk, error, invalidated};
}

}  // namespace feroce::rtrs
