#include "rsocket/datagram_messages.hpp"

#include <algorithm>

namespace feroce::rsockets {
namespace {

constexpr std::uint32_t kTag = 0x55555555;
constexpr std::uint32_t kQueuePairBits = 0xffffff;
constexpr std::size_t kUdpFixed = 12;  // What is in front of the address.
constexpr std::size_t kUdFixed = 4;
constexpr std::size_t kFlow = 4;  // In front of an IPv6 address by UD: its flow, which is 0.

std::size_t address_size(bool is_v4) {
    return is_v4 ? 4 : 16;
}

void put_address(HeaderBytes& to, std::size_t at, const Name& name) {
    const ByteView bytes = name.is_v4() ? ByteView(name.v4_bytes()) : ByteView(name.address);
    std::copy(bytes.begin(), bytes.end(), to.bytes.begin() + static_cast<std::ptrdiff_t>(at));
}

Name take_address(ByteView from, bool is_v4) {
    if (is_v4) return Name::v4(from.first<4>(), 0);
    Name name;
    std::copy_n(from.begin(), name.address.size(), name.address.begin());
    return name;
}

// The family that a version byte says; none if it is another protocol's.
std::optional<bool> says_v4(std::uint32_t version) {
    if (version == 4) return true;
    if (version == 6) return false;
    return std::nullopt;
}

}  // namespace

HeaderBytes UdpHeader::emit() const {
    HeaderBytes out;
    out.size = kUdpFixed + address_size(sender.is_v4());
    const std::span<std::byte, kMost> to(out.bytes);
    store_be32(to.first<4>(), kTag);
    store_u8(to.subspan<4, 1>(), sender.is_v4() ? 4 : 6);
    store_u8(to.subspan<5, 1>(), static_cast<std::uint8_t>(kind));
    store_u8(to.subspan<6, 1>(), static_cast<std::uint8_t>(out.size));
    store_be32(to.subspan<8, 4>(), queue_pair & kQueuePairBits);
    put_address(out, kUdpFixed, sender);
    return out;
}

std::optional<UdpHeader> UdpHeader::parse(ByteView from, std::size_t& size) {
    if (from.size() < kUdpFixed || load_be32(from.first<4>()) != kTag) return std::nullopt;
    const std::optional<bool> is_v4 = says_v4(byte_at(from, 4));
    if (!is_v4) return std::nullopt;
    size = kUdpFixed + address_size(*is_v4);
    if (byte_at(from, 6) != size || from.size() < size) return std::nullopt;
    UdpHeader header;
    header.kind = static_cast<Kind>(byte_at(from, 5));
    if (header.kind != Kind::Data && header.kind != Kind::Control) return std::nullopt;
    header.queue_pair = load_be32(from.subspan<8, 4>()) & kQueuePairBits;
    header.sender = take_address(from.subspan(kUdpFixed), *is_v4);
    return header;
}

HeaderBytes UdHeader::emit() const {
    HeaderBytes out;
    const std::size_t at = sender.is_v4() ? kUdFixed : kUdFixed + kFlow;
    out.size = at + address_size(sender.is_v4());
    const std::span<std::byte, UdpHeader::kMost> to(out.bytes);
    store_u8(to.first<1>(), sender.is_v4() ? 4 : 6);
    store_u8(to.subspan<1, 1>(), static_cast<std::uint8_t>(out.size));
    store_be16(to.subspan<2, 2>(), sender.port);
    put_address(out, at, sender);
    return out;
}

std::optional<UdHeader> UdHeader::parse(ByteView from, std::size_t& size) {
    if (from.size() < kUdFixed) return std::nullopt;
    const std::optional<bool> is_v4 = says_v4(byte_at(from, 0));
    if (!is_v4) return std::nullopt;
    const std::size_t at = *is_v4 ? kUdFixed : kUdFixed + kFlow;
    size = at + address_size(*is_v4);
    if (byte_at(from, 1) != size || from.size() < size) return std::nullopt;
    UdHeader header;
    header.sender = take_address(from.subspan(at), *is_v4);
    header.sender.port = load_be16(from.subspan<2, 2>());
    return header;
}

}  // namespace feroce::rsockets
