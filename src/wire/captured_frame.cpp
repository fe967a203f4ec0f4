// The RoCE datagram inside a captured frame, below whatever link header the capture has. All of it
// is a stranger's word.
#include <isa-l/crc.h>

#include <algorithm>
#include <array>

#include "wire/pcapng.hpp"

namespace feroce::wire {

namespace {

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
    out.dont_fragment = (byte_at(ip, 6) & 0x40) != 0;
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

constexpr std::uint16_t kIpv4Type = 0x0800, kIpv6Type = 0x86dd;
constexpr std::size_t kTagsMax = 4;  // VLAN tags of one frame.

bool is_tag(std::uint16_t type) {
    return type == 0x8100 || type == 0x88a8 || type == 0x9100;
}

// What follows an Ethernet type and its VLAN tags, if that is IP. `rest` begins behind the type.
std::optional<ByteView> behind_type(std::uint16_t type, ByteView rest) {
    for (std::size_t tags = 0; is_tag(type) && tags < kTagsMax && rest.size() >= 4; ++tags) {
        type = load_be16(rest.subspan<2, 2>());
        rest = rest.subspan(4);
    }
    if (type != kIpv4Type && type != kIpv6Type) return std::nullopt;
    return rest;
}

std::optional<ByteView> behind_ethernet(ByteView frame) {
    if (frame.size() < 14) return std::nullopt;
    return behind_type(load_be16(frame.subspan<12, 2>()), frame.subspan(14));
}

// The pseudo link of tcpdump -i any. Packet type 4 is "sent by us".
std::optional<ByteView> behind_cooked(ByteView frame, Direction& direction) {
    if (frame.size() < 16) return std::nullopt;
    direction = load_be16(frame.subspan<0, 2>()) == 4 ? Direction::Outbound : Direction::Inbound;
    return behind_type(load_be16(frame.subspan<14, 2>()), frame.subspan(16));
}

std::optional<ByteView> behind_cooked2(ByteView frame, Direction& direction) {
    if (frame.size() < 20) return std::nullopt;
    direction = byte_at(frame, 10) == 4 ? Direction::Outbound : Direction::Inbound;
    return behind_type(load_be16(frame.subspan<0, 2>()), frame.subspan(20));
}

std::optional<ByteView> behind_link(const CapturedFrame& frame, Direction& direction) {
    switch (frame.link) {
        case LinkType::Ethernet:
            return behind_ethernet(frame.bytes);
        case LinkType::LinuxCooked:
            return behind_cooked(frame.bytes, direction);
        case LinkType::LinuxCooked2:
            return behind_cooked2(frame.bytes, direction);
        case LinkType::BsdLoopback:
        case LinkType::OpenBsdLoopback:  // Four bytes of address family.
            return frame.bytes.size() < 4 ? std::nullopt : std::optional(frame.bytes.subspan(4));
        case LinkType::RawIpOfBsd:
        case LinkType::RawIpOfOpenBsd:
        case LinkType::RawIp:
        case LinkType::Ipv4:
        case LinkType::Ipv6:
            return frame.bytes;
    }
    return std::nullopt;
}

// The ICRC of an IPv4 packet without DF, as senders other than ours may make it. One CRC of it all:
// captures are read at leisure.
bool verify_fragmentable(const RoceDatagram& datagram) {
    constexpr std::size_t kOnes = 8, kIp = 20, kUdp = 8;
    const ByteView packet = datagram.udp_payload;
    if (packet.size() < Bth::kSize + kIcrcSize) return false;
    std::array<std::byte, kOnes + kIp + kUdp + Bth::kSize> head;
    head.fill(std::byte{0xff});  // What is masked, and what stands for the route header.
    const std::span bytes(head);
    const auto udp_length = static_cast<std::uint16_t>(kUdp + packet.size());
    head[kOnes] = std::byte{0x45};
    store_be16(bytes.subspan<kOnes + 2, 2>(), static_cast<std::uint16_t>(kIp + udp_length));
    store_be16(bytes.subspan<kOnes + 4, 2>(), datagram.ipv4_id);
    store_be16(bytes.subspan<kOnes + 6, 2>(), 0);
    head[kOnes + 9] = std::byte{17};
    store_be32(bytes.subspan<kOnes + 12, 4>(), datagram.address.source.v4());
    store_be32(bytes.subspan<kOnes + 16, 4>(), datagram.address.destination.v4());
    store_be16(bytes.subspan<kOnes + kIp, 2>(), datagram.address.source_port);
    store_be16(bytes.subspan<kOnes + kIp + 2, 2>(), datagram.address.destination_port);
    store_be16(bytes.subspan<kOnes + kIp + 4, 2>(), udp_length);
    std::copy_n(packet.begin(), Bth::kSize, head.end() - Bth::kSize);
    head[kOnes + kIp + kUdp + 4] = std::byte{0xff};  // FECN and BECN.
    // ISA-L reads only, but its prototype lacks the const.
    auto* rest = const_cast<unsigned char*>(
        reinterpret_cast<const unsigned char*>(packet.data() + Bth::kSize));
    const std::uint32_t seed =
        crc32_gzip_refl(0, reinterpret_cast<unsigned char*>(head.data()), head.size());
    return crc32_gzip_refl(seed, rest, packet.size() - Bth::kSize - kIcrcSize) ==
           load_le32(packet.last<4>());
}

}  // namespace

bool is_read(LinkType link) {
    switch (link) {
        case LinkType::BsdLoopback:
        case LinkType::Ethernet:
        case LinkType::RawIpOfBsd:
        case LinkType::RawIpOfOpenBsd:
        case LinkType::RawIp:
        case LinkType::OpenBsdLoopback:
        case LinkType::LinuxCooked:
        case LinkType::Ipv4:
        case LinkType::Ipv6:
        case LinkType::LinuxCooked2:
            return true;
    }
    return false;
}

bool verify(const RoceDatagram& datagram) {
    return datagram.dont_fragment ? verify(datagram.address, datagram.ipv4_id, datagram.udp_payload)
                                  : verify_fragmentable(datagram);
}

std::optional<RoceDatagram> find_datagram(const CapturedFrame& frame) {
    RoceDatagram found;
    found.direction = frame.direction;
    const std::optional<ByteView> ip = behind_link(frame, found.direction);
    if (ip && (read_ipv4(*ip, found) || read_ipv6(*ip, found))) return found;
    return std::nullopt;
}

}  // namespace feroce::wire
