#include "rsocket/messages.hpp"

#include <algorithm>

namespace feroce::rsockets {
namespace {

constexpr std::uint8_t kVersion = 1;
constexpr std::uint8_t kBigEndian = 1;    // The sender's memory is.
constexpr std::uint8_t kHasMappings = 2;  // The byte with their number means something.
constexpr std::uint32_t kCoarse = 0x80;   // Set in that byte: the number is in units of 256.

void put32(std::span<std::byte, 4> to, std::uint32_t v, std::endian order) {
    order == std::endian::big ? store_be32(to, v) : store_le32(to, v);
}
void put64(std::span<std::byte, 8> to, std::uint64_t v, std::endian order) {
    order == std::endian::big ? store_be64(to, v) : store_le64(to, v);
}
std::uint32_t get32(std::span<const std::byte, 4> from, std::endian order) {
    return order == std::endian::big ? load_be32(from) : load_le32(from);
}
std::uint64_t get64(std::span<const std::byte, 8> from, std::endian order) {
    return order == std::endian::big ? load_be64(from) : load_le64(from);
}

Target parse_target(std::span<const std::byte, kTargetBytes> from, std::endian order) {
    return {get64(from.first<8>(), order), get32(from.subspan<8, 4>(), order),
            get32(from.subspan<12, 4>(), order)};
}

std::uint8_t scale(std::uint32_t count) {
    if (count <= kCoarse) return static_cast<std::uint8_t>(count);
    return static_cast<std::uint8_t>(kCoarse | std::min(count, kMostMappings) >> 8);
}

std::uint32_t unscale(std::uint8_t told) {
    return told <= kCoarse ? told : (told & ~kCoarse) << 8;
}

}  // namespace

void emit_target(std::span<std::byte, kTargetBytes> to, const Target& t, std::endian order) {
    put64(to.first<8>(), t.address, order);
    put32(to.subspan<8, 4>(), t.key, order);
    put32(to.subspan<12, 4>(), t.length, order);
}

void emit_mapping(std::span<std::byte, kMappingBytes> to, const Mapping& m, std::endian order) {
    put64(to.first<8>(), m.offset, order);
    emit_target(to.subspan<8, kTargetBytes>(), m.target, order);
}

Mapping parse_mapping(std::span<const std::byte, kMappingBytes> from, std::endian order) {
    return {get64(from.first<8>(), order), parse_target(from.subspan<8, kTargetBytes>(), order)};
}

std::uint32_t told_mappings(std::uint32_t count) {
    return unscale(scale(count));
}

Greeting::Bytes Greeting::emit() const {
    Bytes bytes{};
    const std::span<std::byte, kSize> to(bytes);
    const std::uint8_t flags = order == std::endian::big ? kBigEndian | kHasMappings : kHasMappings;
    store_u8(to.first<1>(), kVersion);
    store_u8(to.subspan<1, 1>(), flags);
    store_be16(to.subspan<2, 2>(), credits);
    store_u8(to.subspan<7, 1>(), scale(mappings));
    emit_target(to.subspan<8, kTargetBytes>(), targets, std::endian::big);
    emit_target(to.subspan<24, kTargetBytes>(), first, std::endian::big);
    return bytes;
}

std::optional<Greeting> Greeting::parse(ByteView from) {
    if (from.size() < kSize) return std::nullopt;
    const std::span<const std::byte, kSize> bytes = from.first<kSize>();
    if (load_u8(bytes.first<1>()) != kVersion) return std::nullopt;
    const std::uint8_t flags = load_u8(bytes.subspan<1, 1>());
    Greeting g;
    g.order = (flags & kBigEndian) != 0 ? std::endian::big : std::endian::little;
    g.credits = load_be16(bytes.subspan<2, 2>());
    if ((flags & kHasMappings) != 0) g.mappings = unscale(load_u8(bytes.subspan<7, 1>()));
    g.targets = parse_target(bytes.subspan<8, kTargetBytes>(), std::endian::big);
    g.first = parse_target(bytes.subspan<24, kTargetBytes>(), std::endian::big);
    return g;
}

}  // namespace feroce::rsockets
