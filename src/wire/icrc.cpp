// The CRC is a polynomial over GF(2) modulo P, bits reflected: 1 is the top bit, and feeding a zero
// byte multiplies the register by x^8. Two facts follow and carry all that is clever here.
// - A register s that is fed n bytes equals one fed zeros after xoring the first four bytes into s.
//   So changing bytes at a known place changes the CRC by that change times x^(8 * bytes from there
//   to the end): equal segments share the CRC of everything before them.
// - x has an inverse modulo P. Dividing the difference between the stored and the computed CRC by
//   x^(8 * distance) takes it back to where the id stands: it must be the two id bytes and 16
//   zeros.
#include "wire/icrc.hpp"

#include <isa-l/crc.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace feroce::wire {

namespace {

constexpr std::uint32_t kPolynomial = 0xedb8'8320;
constexpr std::uint32_t kOne = 0x8000'0000;

constexpr std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
    std::uint32_t product = 0;
    for (int bit = 31; bit >= 0; --bit) {
        product ^= b & (0u - (a >> bit & 1));
        b = b >> 1 ^ (kPolynomial & (0u - (b & 1)));
    }
    return product;
}

// step^0 .. step^256, and step^(256 * 0) .. step^(256 * 256): any power up to 65,791 is one
// product.
struct Powers {
    std::array<std::uint32_t, 257> ones{};
    std::array<std::uint32_t, 257> pages{};

    constexpr explicit Powers(std::uint32_t step) {
        ones[0] = pages[0] = kOne;
        for (std::size_t i = 1; i <= 256; ++i) ones[i] = multiply(ones[i - 1], step);
        for (std::size_t i = 1; i <= 256; ++i) pages[i] = multiply(pages[i - 1], ones[256]);
    }
    constexpr std::uint32_t times(std::uint32_t value, std::size_t exponent) const {
        return multiply(multiply(value, ones[exponent % 256]), pages[exponent / 256]);
    }
};

constexpr std::uint32_t kXToThe8 = kOne >> 8;
constexpr std::uint32_t inverse_of_x_to_the_8() {
    std::uint32_t v = kOne;
    for (int i = 0; i < 8; ++i) v = (v & kOne) != 0 ? (v ^ kPolynomial) << 1 | 1 : v << 1;
    return v;
}

constexpr Powers kForward(kXToThe8);
constexpr Powers kBackward(inverse_of_x_to_the_8());
static_assert(kBackward.times(kForward.times(0x1234'5678, 65'535), 65'535) == 0x1234'5678);

constexpr std::size_t kOnes = 8;  // In place of the absent local route header.
constexpr std::size_t kIpv4Size = 20;
constexpr std::size_t kIpv6Size = 40;
constexpr std::size_t kUdpSize = 8;
constexpr std::size_t kMaskedBthByte = 4;
constexpr std::size_t kHeadMax = 64;
constexpr std::size_t kSmallest = Bth::kSize + kIcrcSize;
constexpr std::size_t kLargest = 0xffff - kIpv4Size - kUdpSize;
// From the IPv4 id to the end of the UDP header, both included.
constexpr std::size_t kIdToBth = kIpv4Size - 4 + kUdpSize;

// What an id changes in the CRC of the prefix, as against id 0.
struct IdEffect {
    std::array<std::uint32_t, 256> first{};  // Of the id's byte that is sent first, the high one.
    std::array<std::uint32_t, 256> second{};

    constexpr IdEffect() {
        const std::uint32_t factor = kForward.times(kOne, kIdToBth);
        for (std::uint32_t i = 0; i < 256; ++i) {
            first[i] = multiply(i, factor);
            second[i] = multiply(i << 8, factor);
        }
    }
    std::uint32_t operator()(std::uint16_t id) const { return first[id >> 8] ^ second[id & 0xff]; }
};
constexpr IdEffect kIdEffect;

// Everything that is fed before the BTH, with room behind it for a masked BTH or a short packet.
struct Prefix {
    std::array<std::byte, kOnes + kIpv6Size + kUdpSize + kHeadMax> bytes;
    std::size_t size = 0;  // Without what is behind it.
};

// Ones are both the stand-in for the route header and the value of every masked field. By words of
// eight bytes: it is done for every packet, twice.
constexpr std::uint64_t kOnesWord = ~std::uint64_t{0};

void put_ipv4(const DatagramAddress& address, std::uint16_t id, std::uint64_t udp_length,
              std::span<std::byte, kIpv4Size + kUdpSize> out) {
    constexpr std::uint64_t kDontFragment = 0x4000, kTtlProtocolChecksum = 0xff11'ffff;
    const std::uint64_t ports = std::uint64_t{address.source_port} << 16 | address.destination_port;
    store_be64(out.subspan<0, 8>(), std::uint64_t{0x45ff} << 48 | (kIpv4Size + udp_length) << 32 |
                                        std::uint64_t{id} << 16 | kDontFragment);
    store_be64(out.subspan<8, 8>(), kTtlProtocolChecksum << 32 | address.source.v4());
    store_be64(out.subspan<16, 8>(), std::uint64_t{address.destination.v4()} << 32 | ports);
    store_be32(out.subspan<24, 4>(), static_cast<std::uint32_t>(udp_length << 16 | 0xffff));
}

void put_ipv6(const DatagramAddress& address, std::uint64_t udp_length,
              std::span<std::byte, kIpv6Size + kUdpSize> out) {
    constexpr std::uint64_t kVersion = 0x6fff'ffff, kNextHeaderHopLimit = 0x11ff;
    store_be64(out.subspan<0, 8>(), kVersion << 32 | udp_length << 16 | kNextHeaderHopLimit);
    std::memcpy(out.subspan<8, 16>().data(), address.source.raw.data(), 16);
    std::memcpy(out.subspan<24, 16>().data(), address.destination.raw.data(), 16);
    store_be64(out.subspan<40, 8>(), std::uint64_t{address.source_port} << 48 |
                                         std::uint64_t{address.destination_port} << 32 |
                                         udp_length << 16 | 0xffff);
}

Prefix make_prefix(const DatagramAddress& address, std::uint16_t ipv4_id, std::size_t udp_payload) {
    Prefix p;
    const std::span bytes(p.bytes);
    const std::uint64_t udp_length = kUdpSize + udp_payload;  // Of possible() packets: 16 bits.
    store_be64(bytes.subspan<0, kOnes>(), kOnesWord);
    if (address.destination.is_v4()) {
        put_ipv4(address, ipv4_id, udp_length, bytes.subspan<kOnes, kIpv4Size + kUdpSize>());
        p.size = kOnes + kIpv4Size + kUdpSize;
    } else {
        put_ipv6(address, udp_length, bytes.subspan<kOnes, kIpv6Size + kUdpSize>());
        p.size = kOnes + kIpv6Size + kUdpSize;
    }
    return p;
}

// From this size on ISA-L uses 512-bit registers where the processor has them, and leaves their
// upper halves set, which makes all later 128-bit code slow: sealing 1 KiB took 333 ns instead
// of 94. A function of its own, so that no vector register of ours is live across it.
constexpr std::size_t kWideFrom = 256;
#if defined(__x86_64__)
__attribute__((target("avx"), noinline)) void clear_upper_halves() {
    __builtin_ia32_vzeroupper();
}
void after_wide_code() {
    if (__builtin_cpu_supports("avx")) clear_upper_halves();
}
#else
void after_wide_code() {}
#endif

std::uint32_t feed(std::uint32_t crc, const std::byte* bytes, std::size_t size) {
    // ISA-L reads only, but its prototype lacks the const.
    auto* p = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(bytes));
    const std::uint32_t result = crc32_gzip_refl(crc, p, size);
    if (size >= kWideFrom) after_wide_code();
    return result;
}

std::uint32_t compute(const DatagramAddress& address, std::uint16_t ipv4_id, ByteView packet) {
    Prefix p = make_prefix(address, ipv4_id, packet.size());
    // A short packet is fed in one piece with its prefix: ISA-L is slow below 16 bytes.
    const std::size_t covered = packet.size() - kIcrcSize;
    const std::size_t head = covered <= kHeadMax ? covered : Bth::kSize;
    std::memcpy(p.bytes.data() + p.size, packet.data(), head);
    p.bytes[p.size + kMaskedBthByte] = std::byte{0xff};
    const std::uint32_t crc = feed(0, p.bytes.data(), p.size + head);
    return head == covered ? crc : feed(crc, packet.data() + head, covered - head);
}

bool possible(ByteView udp_payload) {
    return udp_payload.size() >= kSmallest && udp_payload.size() <= kLargest;
}

std::uint16_t swap_bytes(std::uint32_t v) {
    return static_cast<std::uint16_t>((v & 0xff) << 8 | (v >> 8 & 0xff));
}

// Below this many bytes what segments share is not worth its own cost.
constexpr std::size_t kSharedFrom = 256;

// Segments of one length. Each costs one CRC over its own bytes: the id is xored into the shared
// prefix's CRC and the masked byte is corrected afterwards.
class EqualSegments {
public:
    EqualSegments(const DatagramAddress& address, std::size_t segment_size)
        : size_(segment_size), has_id_(address.destination.is_v4()) {
        const Prefix p = make_prefix(address, 0, segment_size);
        prefix_crc_ = feed(0, p.bytes.data(), p.size);
    }

    void seal(std::uint16_t id, ByteSpan segment) {
        const std::uint32_t seed = has_id_ ? prefix_crc_ ^ kIdEffect(id) : prefix_crc_;
        const std::uint32_t crc = feed(seed, segment.data(), size_ - kIcrcSize);
        store_le32(segment.last<4>(), crc ^ correction_of(segment[kMaskedBthByte]));
    }

private:
    std::uint32_t correction_of(std::byte masked) {
        if (!known_ || masked != masked_) {  // In practice it is 0 in every segment of a run.
            const auto change = std::to_integer<std::uint32_t>(~masked);
            correction_ = kForward.times(change, size_ - kIcrcSize - kMaskedBthByte);
            masked_ = masked;
            known_ = true;
        }
        return correction_;
    }

    std::size_t size_;
    bool has_id_;
    std::uint32_t prefix_crc_ = 0;
    bool known_ = false;  // Whether the two below are valid.
    std::byte masked_{};
    std::uint32_t correction_ = 0;
};

}  // namespace

void seal(const DatagramAddress& address, std::uint16_t ipv4_id, ByteSpan udp_payload) {
    ASSERT(possible(udp_payload));
    store_le32(udp_payload.last<4>(), compute(address, ipv4_id, udp_payload));
}

void seal_run(const DatagramAddress& address, ByteSpan bytes, std::size_t segment_size) {
    ASSERT(segment_size >= kSmallest && segment_size <= kLargest);
    std::uint16_t id = 0;
    if (bytes.size() >= std::max(2 * segment_size, kSharedFrom)) {
        EqualSegments segments(address, segment_size);
        for (; bytes.size() >= segment_size; bytes = bytes.subspan(segment_size))
            segments.seal(id++, bytes.first(segment_size));
    }
    for (; !bytes.empty(); bytes = bytes.subspan(std::min(segment_size, bytes.size())))
        seal(address, id++, bytes.first(std::min(segment_size, bytes.size())));
}

bool verify(const DatagramAddress& address, std::uint16_t ipv4_id, ByteView udp_payload) {
    return possible(udp_payload) &&
           compute(address, ipv4_id, udp_payload) == load_le32(udp_payload.last<4>());
}

std::optional<std::uint16_t> solve_id(const DatagramAddress& address, ByteView udp_payload) {
    if (!possible(udp_payload)) return std::nullopt;
    const std::uint32_t difference =
        compute(address, 0, udp_payload) ^ load_le32(udp_payload.last<4>());
    if (difference == 0) return std::uint16_t{0};
    if (!address.destination.is_v4()) return std::nullopt;
    const std::uint32_t at_id =
        kBackward.times(difference, kIdToBth + udp_payload.size() - kIcrcSize);
    if (at_id > 0xffff) return std::nullopt;
    return swap_bytes(at_id);
}

}  // namespace feroce::wire
