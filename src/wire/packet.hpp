// A packet as seen from a UDP payload: BTH, extension headers, payload, pad, ICRC. parse_packet
// checks every length once, from the opcode table; after it the accessors cannot run off the end.
// A Packet owns nothing: its views live as long as the datagram's buffer.
#pragma once

#include "base/assert.hpp"
#include "base/bytes.hpp"
#include "wire/headers.hpp"
#include "wire/opcode.hpp"

namespace feroce::wire {

inline constexpr std::size_t kIcrcSize = 4;
inline constexpr std::size_t kExtensionMax = 64;  // No opcode has longer extension headers.
inline constexpr std::size_t kListSize = 12;      // Of gaps, where OpcodeInfo::may_carry_list().

enum class ParseError : std::uint8_t {
    None,
    TooShort,       // Less than its headers and the ICRC.
    UnknownOpcode,  // Reserved by IBTA, or of a service we do not know (RD).
    BadVersion,     // The transport version is not 0.
    BadPad,         // More pad than payload.
    BadLength       // Not a multiple of four, or a payload where the opcode has none.
};

const char* to_string(ParseError error);

struct Packet {
    Bth bth{};
    const OpcodeInfo* info = nullptr;  // Points into the opcode table.
    ByteView extension{};              // All extension headers.
    ByteView payload{};                // Without the pad.

    Reth reth() const { return get<Reth>(Header::Reth); }
    AtomicEth atomic_eth() const { return get<AtomicEth>(Header::AtomicEth); }
    Aeth aeth() const { return get<Aeth>(Header::Aeth); }
    AtomicAckEth atomic_ack() const { return get<AtomicAckEth>(Header::AtomicAckEth); }
    Deth deth() const { return get<Deth>(Header::Deth); }
    Xrceth xrceth() const { return get<Xrceth>(Header::Xrceth); }
    Feth feth() const { return get<Feth>(Header::Feth); }
    std::uint32_t immediate() const { return load_be32(bytes<4>(Header::Immediate)); }
    RKey invalidate() const { return {load_be32(bytes<4>(Header::Ieth))}; }

private:
    template <std::size_t kBytes>
    std::span<const std::byte, kBytes> bytes(Header h) const {
        ASSERT(info != nullptr && info->has(h));
        return extension.subspan(info->offset(h)).first<kBytes>();
    }
    template <class T>
    T get(Header h) const {
        return T::parse(bytes<T::kSize>(h));
    }
};

// `udp_payload` is BTH to ICRC. The ICRC is not looked at (see wire/icrc.hpp). `out` is valid only
// if None is returned.
ParseError parse_packet(ByteView udp_payload, Packet& out);

// What emit_headers may need; it reads only those that the opcode has.
struct Extensions {
    Deth deth{};
    Xrceth xrceth{};
    Feth feth{};
    Reth reth{};
    AtomicEth atomic{};
    Aeth aeth{};
    AtomicAckEth atomic_ack{};
    std::uint32_t immediate = 0;
    RKey invalidate{};
};

// The headers that a packet has; the others are zero. For traces and tests, not for the data path.
Extensions extensions_of(const Packet& packet);

constexpr std::size_t header_size(Opcode opcode) {
    return Bth::kSize + opcode_info(opcode).extension_size;
}

// Bytes that bring a payload to a multiple of four.
constexpr std::size_t pad_of(std::size_t payload_size) {
    return (4 - payload_size % 4) % 4;
}

// Length of the UDP payload, pad and ICRC included.
constexpr std::size_t packet_size(Opcode opcode, std::size_t payload_size) {
    return header_size(opcode) + payload_size + pad_of(payload_size) + kIcrcSize;
}

// Writes BTH and extension headers to the front of `out`, which must have room for them and whose
// opcode must be known; returns header_size(bth.opcode).
std::size_t emit_headers(ByteSpan out, const Bth& bth, const Extensions& extensions);

}  // namespace feroce::wire
