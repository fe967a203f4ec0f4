// The opcode table: what each of the 256 BTH opcodes means and which extension headers follow it.
// The table says only which headers; their sizes, offsets and total are derived at compile time
// from the one wire order below, so no length is ever typed by hand.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace feroce::wire {

// The top three bits of an opcode.
enum class Service : std::uint8_t {
    Rc = 0x00,
    Uc = 0x20,
    Rd = 0x40,
    Ud = 0x60,
    Cnp = 0x80,
    Xrc = 0xa0
};

enum class Opcode : std::uint8_t {
    RcSendFirst = 0x00,
    RcSendMiddle = 0x01,
    RcSendLast = 0x02,
    RcSendLastImmediate = 0x03,
    RcSendOnly = 0x04,
    RcSendOnlyImmediate = 0x05,
    RcWriteFirst = 0x06,
    RcWriteMiddle = 0x07,
    RcWriteLast = 0x08,
    RcWriteLastImmediate = 0x09,
    RcWriteOnly = 0x0a,
    RcWriteOnlyImmediate = 0x0b,
    RcReadRequest = 0x0c,
    RcReadResponseFirst = 0x0d,
    RcReadResponseMiddle = 0x0e,
    RcReadResponseLast = 0x0f,
    RcReadResponseOnly = 0x10,
    RcAck = 0x11,
    RcAtomicAck = 0x12,
    RcCompareSwap = 0x13,
    RcFetchAdd = 0x14,
    RcSendLastInvalidate = 0x16,
    RcSendOnlyInvalidate = 0x17,
    RcFlush = 0x1c,
    RcAtomicWrite = 0x1d,

    UcSendFirst = 0x20,
    UcSendMiddle = 0x21,
    UcSendLast = 0x22,
    UcSendLastImmediate = 0x23,
    UcSendOnly = 0x24,
    UcSendOnlyImmediate = 0x25,
    UcWriteFirst = 0x26,
    UcWriteMiddle = 0x27,
    UcWriteLast = 0x28,
    UcWriteLastImmediate = 0x29,
    UcWriteOnly = 0x2a,
    UcWriteOnlyImmediate = 0x2b,

    UdSendOnly = 0x64,
    UdSendOnlyImmediate = 0x65,

    Cnp = 0x81,

    XrcSendFirst = 0xa0,
    XrcSendMiddle = 0xa1,
    XrcSendLast = 0xa2,
    XrcSendLastImmediate = 0xa3,
    XrcSendOnly = 0xa4,
    XrcSendOnlyImmediate = 0xa5,
    XrcWriteFirst = 0xa6,
    XrcWriteMiddle = 0xa7,
    XrcWriteLast = 0xa8,
    XrcWriteLastImmediate = 0xa9,
    XrcWriteOnly = 0xaa,
    XrcWriteOnlyImmediate = 0xab,
    XrcReadRequest = 0xac,
    XrcReadResponseFirst = 0xad,
    XrcReadResponseMiddle = 0xae,
    XrcReadResponseLast = 0xaf,
    XrcReadResponseOnly = 0xb0,
    XrcAck = 0xb1,
    XrcAtomicAck = 0xb2,
    XrcCompareSwap = 0xb3,
    XrcFetchAdd = 0xb4,
    XrcSendLastInvalidate = 0xb6,
    XrcSendOnlyInvalidate = 0xb7,
};

enum class Verb : std::uint8_t {
    Send,
    Write,
    ReadRequest,
    ReadResponse,
    Ack,
    AtomicAck,
    CompareSwap,
    FetchAdd,
    Flush,
    AtomicWrite,
    Cnp
};

// Of a request: it goes back to the requester.
constexpr bool is_answer(Verb verb) {
    return verb == Verb::ReadResponse || verb == Verb::Ack || verb == Verb::AtomicAck;
}

enum class Position : std::uint8_t { First, Middle, Last, Only };

// Bit flags, lowest bit first on the wire: a FLUSH is FETH then RETH, an atomic ACK is AETH then
// AtomicAckETH, immediate and invalidate keys stand last before the payload.
enum class Header : std::uint16_t {
    Xrceth = 1 << 0,
    Deth = 1 << 1,
    Feth = 1 << 2,
    Reth = 1 << 3,
    AtomicEth = 1 << 4,
    Aeth = 1 << 5,
    AtomicAckEth = 1 << 6,
    Immediate = 1 << 7,
    Ieth = 1 << 8,
};
inline constexpr std::size_t kHeaderKinds = 9;
inline constexpr std::array<std::uint8_t, kHeaderKinds> kHeaderSizes{4, 8, 4, 16, 28, 4, 8, 4, 4};

struct OpcodeInfo {
    bool known = false;  // When false nothing below means anything but `name`.
    Service service = Service::Rc;
    Verb verb = Verb::Send;
    Position position = Position::Only;
    std::uint16_t headers = 0;                         // Header flags.
    std::uint8_t extension_size = 0;                   // Bytes between BTH and payload.
    std::array<std::uint8_t, kHeaderKinds> offsets{};  // From the end of the BTH.
    const char* name = "UNKNOWN";

    constexpr bool has(Header h) const { return (headers & static_cast<std::uint16_t>(h)) != 0; }
    constexpr std::size_t offset(Header h) const {  // Valid only if has(h).
        return offsets[static_cast<std::size_t>(std::countr_zero(static_cast<std::uint16_t>(h)))];
    }
    constexpr bool starts_message() const {
        return position == Position::First || position == Position::Only;
    }
    constexpr bool ends_message() const {
        return position == Position::Last || position == Position::Only;
    }
    constexpr bool may_carry_payload() const {
        return verb == Verb::Send || verb == Verb::Write || verb == Verb::ReadResponse ||
               verb == Verb::AtomicWrite || verb == Verb::Cnp;
    }
    // IBTA gives an acknowledgement none. One of a Feroce may have a list of gaps (ADR 34).
    constexpr bool may_carry_list() const { return verb == Verb::Ack && service == Service::Rc; }
};

// The same operation under another service: the low five bits name it in RC, UC and XRC alike.
constexpr Opcode opcode_of(Service service, Opcode rc_opcode) {
    return static_cast<Opcode>(static_cast<unsigned>(service) |
                               (static_cast<unsigned>(rc_opcode) & 0x1f));
}

}  // namespace feroce::wire

#include "wire/opcode_table.hpp"
