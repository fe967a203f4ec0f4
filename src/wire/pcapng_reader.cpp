// Reading pcapng. Every length in the file is a stranger's word: it is compared with what is left
// before it is used, and the first that does not fit ends the reading.
#include <cmath>

#include "wire/pcapng.hpp"
#include "wire/pcapng_blocks.hpp"

namespace feroce::wire {

namespace {

constexpr std::uint32_t kByteOrderMagic = 0x1a2b'3c4d;
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

Gid gid_at(ByteView bytes, bool v4) {
    if (v4) return Gid::from_v4(load_be32(bytes.first<4>()));
    Gid gid;
    for (std::size_t i = 0; i < 16; ++i) gid.raw[i] = std::to_integer<std::uint8_t>(bytes[i]);
    return gid;
}

// Fills `out` from the UDP header on. `ip_payload` may be longer than the datagram only by
// Ethernet's padding, which its caller has cut.
bool read_udp(ByteView ip_payload, RoceDatagram& out) {
    if (ip_payload.size() < 8) return false;
    out.address.source_port = load_be16(ip_payload.subspan<0, 2>());
    out.address.destination_port = load_be16(ip_payload.subspan<2, 2>());
    out.udp_payload = ip_payload.subspan(8);
    return out.address.destination_port == kRocePort &&
           load_be16(ip_payload.subspan<4, 2>()) == ip_payload.size();
}

bool read_ipv4(ByteView ip, RoceDatagram& out) {
    if (ip.size() < 20 || byte_at(ip, 0) != 0x45 || byte_at(ip, 9) != 17) return false;
    const std::size_t length = load_be16(ip.subspan<2, 2>());
    const bool fragment = (load_be16(ip.subspan<6, 2>()) & 0x3fff) != 0;
    if (fragment || length < 20 || length > ip.size()) return false;
    out.traffic_class = std::to_integer<std::uint8_t>(ip[1]);
    out.ipv4_id = load_be16(ip.subspan<4, 2>());
    out.address.source = gid_at(ip.subspan(12, 4), true);
    out.address.destination = gid_at(ip.subspan(16, 4), true);
    return read_udp(ip.subspan(20, length - 20), out);
}

bool read_ipv6(ByteView ip, RoceDatagram& out) {
    if (ip.size() < 40 || byte_at(ip, 0) >> 4 != 6 || byte_at(ip, 6) != 17) return false;
    const std::size_t length = load_be16(ip.subspan<4, 2>());
    if (length > ip.size() - 40) return false;
    out.traffic_class = static_cast<std::uint8_t>(load_be16(ip.subspan<0, 2>()) >> 4 & 0xff);
    out.address.source = gid_at(ip.subspan(8, 16), false);
    out.address.destination = gid_at(ip.subspan(24, 16), false);
    return read_udp(ip.subspan(40, length), out);
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
    interfaces_.push_back({static_cast<LinkType>(u16(body, 0)), time_units(body.subspan(8))});
    return true;
}

std::uint64_t PcapngReader::time_units(ByteView options) const {
    while (options.size() >= 4) {
        const std::uint16_t code = u16(options, 0);
        const std::size_t length = u16(options, 2);
        const std::size_t padded = 4 + (length + 3) / 4 * 4;
        if (code == 0 || padded > options.size()) break;
        if (code == kTimeResolutionOption && length == 1)
            return units_of(std::to_integer<std::uint8_t>(options[4]));
        options = options.subspan(padded);
    }
    return 1'000'000;  // pcapng's default.
}

std::optional<CapturedFrame> PcapngReader::read_packet(ByteView body) const {
    if (body.size() < 20) return std::nullopt;
    const std::size_t interface = u32(body, 0);
    const std::size_t captured = u32(body, 12);
    if (interface >= interfaces_.size() || captured > body.size() - 20) return std::nullopt;
    const std::uint64_t ticks = std::uint64_t{u32(body, 4)} << 32 | u32(body, 8);
    return CapturedFrame{.since_epoch = to_duration(ticks, interfaces_[interface].units_per_second),
                         .link = interfaces_[interface].link,
                         .bytes = body.subspan(20, captured),
                         .original_size = u32(body, 16)};
}

std::optional<CapturedFrame> PcapngReader::next() {
    while (!damaged_ && !rest_.empty()) {
        const std::optional<ByteView> block = next_block();
        damaged_ = !block.has_value();
        if (damaged_) break;
        const std::uint32_t type = u32(*block, 0);
        const ByteView body = block->subspan(8, block->size() - kBlockFrame);
        if (type == kInterfaceBlock) damaged_ = !read_interface(body);
        if (type != kPacketBlock) continue;
        const std::optional<CapturedFrame> frame = read_packet(body);
        damaged_ = !frame.has_value();
        return frame;
    }
    return std::nullopt;
}

std::optional<RoceDatagram> find_datagram(const CapturedFrame& frame) {
    ByteView ip = frame.bytes;
    if (frame.link == LinkType::Ethernet) {
        if (ip.size() < 14) return std::nullopt;
        ip = ip.subspan(14);  // The IP version below is proof enough of the Ethernet type.
    } else if (frame.link != LinkType::RawIp) {
        return std::nullopt;
    }
    RoceDatagram found;
    if (read_ipv4(ip, found) || read_ipv6(ip, found)) return found;
    return std::nullopt;
}

}  // namespace feroce::wire
