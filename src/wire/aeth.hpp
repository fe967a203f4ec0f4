// Aeth: what an answer says. The syndrome is an ACK with credits, an RNR NAK with a timer code, or
// a NAK with a code; MSN is the responder's 24-bit count of completed messages.
#pragma once

#include <array>

#include "base/bytes.hpp"

namespace feroce::wire {

enum class NakCode : std::uint8_t {
    SequenceError = 0,
    InvalidRequest = 1,
    RemoteAccess = 2,
    RemoteOperational = 3,
    InvalidRdRequest = 4
};

// The credit count that means the responder does not do end-to-end flow control.
inline constexpr std::uint8_t kNoCredits = 31;

struct Syndrome {
    std::uint8_t raw = 0;

    enum class Kind : std::uint8_t { Ack, Rnr, Reserved, Nak };

    constexpr Kind kind() const {  // The top bit is always 0 in what IBTA defines.
        return (raw & 0x80) != 0 ? Kind::Reserved : static_cast<Kind>(raw >> 5 & 3);
    }
    constexpr std::uint8_t value() const { return raw & 0x1f; }
    constexpr NakCode nak_code() const { return static_cast<NakCode>(value()); }

    static constexpr Syndrome ack(std::uint8_t credits) { return {mask(credits)}; }
    static constexpr Syndrome rnr(std::uint8_t timer) {
        return {static_cast<std::uint8_t>(0x20 | mask(timer))};
    }
    static constexpr Syndrome nak(NakCode code) {
        return {static_cast<std::uint8_t>(0x60 | mask(static_cast<std::uint8_t>(code)))};
    }
    friend constexpr bool operator==(Syndrome, Syndrome) = default;

private:
    static constexpr std::uint8_t mask(std::uint8_t v) { return v & 0x1f; }
};

// The pause an RNR timer code asks for, in microseconds. IBTA's table; code 0 is the longest.
constexpr std::uint32_t rnr_timer_us(std::uint8_t code) {
    constexpr std::array<std::uint32_t, 32> kTensOfMicroseconds{
        65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
        48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
        2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
    return kTensOfMicroseconds[code & 0x1f] * 10;
}

struct Aeth {
    Syndrome syndrome{};
    std::uint32_t msn = 0;  // 24 bits.

    static constexpr std::size_t kSize = 4;
    static constexpr Aeth parse(std::span<const std::byte, kSize> b) {
        return {.syndrome = {load_u8(b.first<1>())}, .msn = load_be24(b.last<3>())};
    }
    constexpr void emit(std::span<std::byte, kSize> b) const {
        store_be32(b, std::uint32_t{syndrome.raw} << 24 | (msn & 0xff'ffff));
    }
    friend constexpr bool operator==(const Aeth&, const Aeth&) = default;
};

}  // namespace feroce::wire
