// Parsing and emitting: the two places that walk a packet's bytes. Both stand on the data path, so
// they look up the opcode once and touch only the headers that it names.
#include "wire/packet.hpp"

#include <type_traits>

namespace feroce::wire {

const char* to_string(ParseError error) {
    switch (error) {
        case ParseError::None:
            return "no error";
        case ParseError::TooShort:
            return "shorter than its headers";
        case ParseError::UnknownOpcode:
            return "unknown opcode";
        case ParseError::BadVersion:
            return "transport version is not 0";
        case ParseError::BadPad:
            return "more pad than payload";
        case ParseError::BadLength:
            return "length does not fit the opcode";
    }
    return "?";
}

ParseError parse_packet(ByteView udp_payload, Packet& out) {
    if (udp_payload.size() < Bth::kSize + kIcrcSize) return ParseError::TooShort;
    out.bth = Bth::parse(udp_payload.first<Bth::kSize>());
    out.info = &opcode_info(out.bth.opcode);
    if (!out.info->known) return ParseError::UnknownOpcode;
    if (out.bth.transport_version != 0) return ParseError::BadVersion;

    const std::size_t headers = Bth::kSize + out.info->extension_size;
    if (udp_payload.size() < headers + kIcrcSize) return ParseError::TooShort;
    if (udp_payload.size() % 4 != 0) return ParseError::BadLength;
    const std::size_t padded = udp_payload.size() - headers - kIcrcSize;
    if (out.bth.pad_count > padded) return ParseError::BadPad;
    const bool is_list = out.info->may_carry_list() && padded == kListSize;
    if (padded != 0 && !out.info->may_carry_payload() && !is_list) return ParseError::BadLength;

    out.extension = udp_payload.subspan(Bth::kSize, out.info->extension_size);
    out.payload = udp_payload.subspan(headers, padded - out.bth.pad_count);
    return ParseError::None;
}

Extensions extensions_of(const Packet& packet) {
    const OpcodeInfo& info = *packet.info;
    Extensions e;
    if (info.has(Header::Deth)) e.deth = packet.deth();
    if (info.has(Header::Xrceth)) e.xrceth = packet.xrceth();
    if (info.has(Header::Feth)) e.feth = packet.feth();
    if (info.has(Header::Reth)) e.reth = packet.reth();
    if (info.has(Header::AtomicEth)) e.atomic = packet.atomic_eth();
    if (info.has(Header::Aeth)) e.aeth = packet.aeth();
    if (info.has(Header::AtomicAckEth)) e.atomic_ack = packet.atomic_ack();
    if (info.has(Header::Immediate)) e.immediate = packet.immediate();
    if (info.has(Header::Ieth)) e.invalidate = packet.invalidate();
    return e;
}

std::size_t emit_headers(ByteSpan out, const Bth& bth, const Extensions& extensions) {
    const OpcodeInfo& info = opcode_info(bth.opcode);
    const std::size_t size = Bth::kSize + info.extension_size;
    ASSERT(info.known && out.size() >= size);
    bth.emit(out.first<Bth::kSize>());
    if (info.headers == 0) return size;  // Middles, plain sends and lasts: most of the bytes.

    const auto put = [&](Header h, const auto& header) {
        constexpr std::size_t kSize = std::remove_cvref_t<decltype(header)>::kSize;
        if (info.has(h)) header.emit(out.subspan(Bth::kSize + info.offset(h)).first<kSize>());
    };
    const auto put_u32 = [&](Header h, std::uint32_t value) {
        if (info.has(h)) store_be32(out.subspan(Bth::kSize + info.offset(h)).first<4>(), value);
    };
    // Of all but atomics, datagrams and what else is rare.
    constexpr unsigned kUsual = static_cast<unsigned>(Header::Reth) |
                                static_cast<unsigned>(Header::Aeth) |
                                static_cast<unsigned>(Header::Immediate);
    put(Header::Reth, extensions.reth);
    put(Header::Aeth, extensions.aeth);
    put_u32(Header::Immediate, extensions.immediate);
    if ((info.headers & ~kUsual) == 0) return size;
    put(Header::AtomicEth, extensions.atomic);
    put(Header::AtomicAckEth, extensions.atomic_ack);
    put_u32(Header::Ieth, extensions.invalidate.raw);
    put(Header::Deth, extensions.deth);
    put(Header::Xrceth, extensions.xrceth);
    put(Header::Feth, extensions.feth);
    return size;
}

}  // namespace feroce::wire
