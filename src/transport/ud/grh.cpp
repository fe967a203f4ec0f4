#include "transport/ud/grh.hpp"

#include <algorithm>
#include <span>

namespace feroce::transport {

namespace {

constexpr std::uint8_t kProtocolUdp = 17;
constexpr std::size_t kUdpHeaderBytes = 8;
constexpr std::size_t kIpv4HeaderBytes = 20;
constexpr std::uint16_t kDontFragment = 0x4000;

using Grh = std::array<std::byte, kGrhBytes>;

void put_gid(ByteSpan out, const Gid& gid) {
    std::transform(gid.raw.begin(), gid.raw.end(), out.begin(),
                   [](std::uint8_t b) { return std::byte{b}; });
}

Gid get_gid(std::span<const std::byte, 16> in) {
    Gid gid;
    std::transform(in.begin(), in.end(), gid.raw.begin(),
                   [](std::byte b) { return std::to_integer<std::uint8_t>(b); });
    return gid;
}

std::uint16_t ipv4_checksum(std::span<const std::byte, kIpv4HeaderBytes> header) {
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < kIpv4HeaderBytes; i += 2)
        sum += load_be16(header.subspan(i).first<2>());
    while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
    return static_cast<std::uint16_t>(~sum);
}

void put_ipv6(std::span<std::byte, kGrhBytes> out, const Arrival& arrival, std::size_t udp_bytes) {
    store_be32(out.subspan<0, 4>(), 6U << 28 | std::uint32_t{arrival.traffic_class} << 20);
    store_be16(out.subspan<4, 2>(), static_cast<std::uint16_t>(udp_bytes));
    store_u8(out.subspan<6, 1>(), kProtocolUdp);
    store_u8(out.subspan<7, 1>(), arrival.hop_limit);
    put_gid(out.subspan<8, 16>(), arrival.source);
    put_gid(out.subspan<24, 16>(), arrival.destination);
}

void put_ipv4(std::span<std::byte, kIpv4HeaderBytes> out, const Arrival& arrival,
              std::size_t udp_bytes) {
    constexpr std::uint8_t kVersionAndWords = 0x45;
    store_u8(out.subspan<0, 1>(), kVersionAndWords);
    store_u8(out.subspan<1, 1>(), arrival.traffic_class);
    store_be16(out.subspan<2, 2>(), static_cast<std::uint16_t>(kIpv4HeaderBytes + udp_bytes));
    store_be16(out.subspan<6, 2>(), kDontFragment);
    store_u8(out.subspan<8, 1>(), arrival.hop_limit);
    store_u8(out.subspan<9, 1>(), kProtocolUdp);
    store_be32(out.subspan<12, 4>(), arrival.source.v4());
    store_be32(out.subspan<16, 4>(), arrival.destination.v4());
    store_be16(out.subspan<10, 2>(), ipv4_checksum(out));
}

}  // namespace

Grh make_grh(const Arrival& arrival, std::size_t udp_payload_bytes) {
    Grh grh{};
    const std::size_t udp_bytes = kUdpHeaderBytes + udp_payload_bytes;
    const std::span<std::byte, kGrhBytes> out(grh);
    if (arrival.destination.is_v4())
        put_ipv4(out.last<kIpv4HeaderBytes>(), arrival, udp_bytes);
    else
        put_ipv6(out, arrival, udp_bytes);
    return grh;
}

GrhAddresses read_grh(std::span<const std::byte, kGrhBytes> header) {
    const std::uint32_t first = load_be32(header.first<4>());
    if (first >> 28 == 6)
        return {get_gid(header.subspan<8, 16>()), get_gid(header.subspan<24, 16>()),
                static_cast<std::uint8_t>(first >> 20)};
    return {Gid::from_v4(load_be32(header.subspan<32, 4>())),
            Gid::from_v4(load_be32(header.subspan<36, 4>())), load_u8(header.subspan<21, 1>())};
}

}  // namespace feroce::transport
