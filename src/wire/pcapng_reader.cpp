// Reading pcapng. Every length in the file is a stranger's word: it is compared with what is left
// before it is used, and the first that does not fit ends the reading.
#include <algorithm>
#include <cmath>

#include "wire/pcapng.hpp"
#include "wire/pcapng_blocks.hpp"

namespace feroce::wire {

namespace {

constexpr std::size_t kBlockFrame = 12;  // Type, length, and the length again at the end.
constexpr std::size_t kInterfacesMax = 64;
constexpr std::uint64_t kNanoseconds = 1'000'000'000;
constexpr std::uint16_t kTimeResolutionOption = 9;

std::uint64_t units_of(std::uint8_t resolution) {
    const unsigned exponent = resolution & 0x7f;
    // Finer than these would not fit 64 bits; we fall back to the default, microseconds.
    if ((resolution & 0x80) != 0) return exponent < 63 ? std::uint64_t{1} << exponent : 1'000'000;
    if (exponent > 18) return 1'000'000;
    std::uint64_t units = 1;
    for (unsigned i = 0; i < exponent; ++i) units *= 10;
    return units;
}

Duration to_duration(std::uint64_t ticks, std::uint64_t units_per_second) {
    // Garbage may ask for more seconds than nanoseconds can count; it gets what is left of them.
    const std::uint64_t seconds = ticks / units_per_second % (kNanoseconds * 9);
    const double fraction =
        static_cast<double>(ticks % units_per_second) / static_cast<double>(units_per_second);
    const long long nanoseconds = std::llround(fraction * static_cast<double>(kNanoseconds));
    return Duration(static_cast<std::int64_t>(seconds * kNanoseconds) + nanoseconds);
}

}  // namespace

std::uint32_t PcapngReader::u32(ByteView block, std::size_t offset) const {
    const std::uint32_t high = u16(block, big_endian_ ? offset : offset + 2);
    return high << 16 | u16(block, big_endian_ ? offset + 2 : offset);
}

std::uint16_t PcapngReader::u16(ByteView block, std::size_t offset) const {
    const std::uint16_t value = load_be16(block.subspan(offset).first<2>());
    return big_endian_ ? value : static_cast<std::uint16_t>(value << 8 | value >> 8);
}

// A whole block with its frame, taken off rest_.
std::optional<ByteView> PcapngReader::next_block() {
    if (rest_.size() < kBlockFrame) return std::nullopt;
    // A section block reads the same in both orders, and tells which one its own length is in.
    if (u32(rest_, 0) == kSectionBlock && !read_section(rest_)) return std::nullopt;
    const std::size_t length = u32(rest_, 4);
    if (length < kBlockFrame || length % 4 != 0 || length > rest_.size()) return std::nullopt;
    if (u32(rest_, length - 4) != length) return std::nullopt;
    const ByteView block = rest_.first(length);
    rest_ = rest_.subspan(length);
    return block;
}

bool PcapngReader::read_section(ByteView block) {
    const std::uint32_t magic = load_be32(block.subspan<8, 4>());
    big_endian_ = magic == kByteOrderMagic;
    interfaces_.clear();
    return big_endian_ || u32(block, 8) == kByteOrderMagic;
}

bool PcapngReader::read_interface(ByteView body) {
    if (body.size() < 8 || interfaces_.size() == kInterfacesMax) return false;
    interfaces_.push_back(
        {static_cast<LinkType>(u16(body, 0)), time_units(body.subspan(8)), u32(body, 4)});
    return true;
}

std::optional<ByteView> PcapngReader::option(ByteView options, std::uint16_t wanted) const {
    while (options.size() >= 4) {
        const std::uint16_t code = u16(options, 0);
        const std::size_t length = u16(options, 2);
        const std::size_t padded = 4 + (length + 3) / 4 * 4;
        if (code == 0 || padded > options.size()) break;
        if (code == wanted) return options.subspan(4, length);
        options = options.subspan(padded);
    }
    return std::nullopt;
}

std::uint64_t PcapngReader::time_units(ByteView options) const {
    const auto resolution = option(options, kTimeResolutionOption);
    if (!resolution || resolution->size() != 1) return 1'000'000;  // pcapng's default.
    return units_of(std::to_integer<std::uint8_t>(resolution->front()));
}

Direction PcapngReader::direction_of(ByteView options) const {
    const auto flags = option(options, kFlagsOption);
    if (!flags || flags->size() != 4) return Direction::Unknown;
    const std::uint32_t direction = u32(*flags, 0) & 3;
    if (direction == kInboundFlag) return Direction::Inbound;
    return direction == kOutboundFlag ? Direction::Outbound : Direction::Unknown;
}

std::optional<CapturedFrame> PcapngReader::read_packet(std::uint32_t type, ByteView body) const {
    if (body.size() < 20) return std::nullopt;
    // In the older block the second half of that word is another field.
    const std::size_t interface = type == kOldPacketBlock ? u16(body, 0) : u32(body, 0);
    const std::size_t captured = u32(body, 12);
    if (interface >= interfaces_.size() || captured > body.size() - 20) return std::nullopt;
    const std::uint64_t ticks = std::uint64_t{u32(body, 4)} << 32 | u32(body, 8);
    const std::size_t padded = std::min((captured + 3) / 4 * 4, body.size() - 20);
    return CapturedFrame{.since_epoch = to_duration(ticks, interfaces_[interface].units_per_second),
                         .link = interfaces_[interface].link,
                         .bytes = body.subspan(20, captured),
                         .original_size = u32(body, 16),
                         .direction = direction_of(body.subspan(20 + padded))};
}

// It has no time, and is of the first interface.
std::optional<CapturedFrame> PcapngReader::read_simple_packet(ByteView body) const {
    if (body.size() < 4 || interfaces_.empty()) return std::nullopt;
    const std::uint32_t original = u32(body, 0);
    const std::uint32_t kept_max = interfaces_[0].kept_max;
    const std::size_t captured = kept_max == 0 ? original : std::min(original, kept_max);
    if (captured > body.size() - 4) return std::nullopt;
    return CapturedFrame{
        .link = interfaces_[0].link, .bytes = body.subspan(4, captured), .original_size = original};
}

std::optional<CapturedFrame> PcapngReader::next() {
    while (!damaged_ && !rest_.empty()) {
        const std::optional<ByteView> block = next_block();
        damaged_ = !block.has_value();
        if (damaged_) break;
        const std::uint32_t type = u32(*block, 0);
        const ByteView body = block->subspan(8, block->size() - kBlockFrame);
        if (type == kInterfaceBlock) damaged_ = !read_interface(body);
        const bool simple = type == kSimplePacketBlock;
        if (!simple && type != kPacketBlock && type != kOldPacketBlock) continue;
        const std::optional<CapturedFrame> frame =
            simple ? read_simple_packet(body) : read_packet(type, body);
        damaged_ = !frame.has_value();
        return frame;
    }
    return std::nullopt;
}

}  // namespace feroce::wire
