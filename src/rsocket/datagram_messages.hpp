// The bytes in front of a datagram: of one that goes by the kernel's UDP, which carries the
// sender's queue pair too, and of one that goes by queue pairs. As rdma-core writes them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.hpp"
#include "rsocket/name.hpp"

namespace feroce::rsockets {

// A header of at most 28 bytes.
struct HeaderBytes {
    std::array<std::byte, 28> bytes{};
    std::size_t size = 0;
    ByteView view() const { return ByteView(bytes).first(size); }
};

// By UDP: asks for the receiver's queue pair, or tells of one's own.
struct UdpHeader {
    enum class Kind : std::uint8_t { Data = 0, Control = 7 };
    static constexpr std::size_t kMost = 28;

    HeaderBytes emit() const;
    // None unless the whole header is there and of this protocol. `size` is where the data begins.
    static std::optional<UdpHeader> parse(ByteView from, std::size_t& size);

    Kind kind = Kind::Data;
    std::uint32_t queue_pair = 0;
    Name sender;  // Its port is that of the UDP packet.
};

// By a queue pair: says whose datagram it is.
struct UdHeader {
    static constexpr std::size_t kMost = 24;

    HeaderBytes emit() const;
    static std::optional<UdHeader> parse(ByteView from, std::size_t& size);

    Name sender;
};

}  // namespace feroce::rsockets
