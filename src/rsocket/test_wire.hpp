// For the tests of streams: an Outlet that keeps what is sent, memory for a stream, and the words
// of rdma-core's rstream as the kernel's device carried them (tests/golden/data/rstream-v4.pcapng).
#pragma once

#include <array>
#include <cstring>
#include <deque>
#include <string_view>
#include <vector>

#include "rsocket/stream.hpp"

namespace feroce::rsockets {

inline std::vector<std::byte> from_hex(std::string_view text) {
    const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
    std::vector<std::byte> out;
    for (std::size_t i = 0; i + 1 < text.size(); i += 2)
        out.push_back(static_cast<std::byte>(digit(text[i]) << 4 | digit(text[i + 1])));
    return out;
}

// The private data of its REQ and of its REP, and the first entry that the client wrote.
inline constexpr std::string_view kRequestHex =
    "01020180000000000000aaaaf2d91000000010b4000000020000ffff8d41b000000011a100080000";
inline constexpr std::string_view kReplyHex =
    "01020180000000000000ffff8800300000000e27000000020000ffff8c0eb00000000f4e00080000";
inline constexpr std::string_view kFirstEntryHex = "00b0498dffff0000a111000000000800";

// A work request with its bytes.
struct Sent {
    Send send;
    std::vector<std::byte> bytes;

    Immediate immediate() const { return Immediate::parse(send.immediate); }
};

struct KeptSends final : Outlet {
    void post(const Send& send) override {
        Sent& kept = sends.emplace_back();
        kept.send = send;
        for (const ByteView part : send.bytes)
            kept.bytes.insert(kept.bytes.end(), part.begin(), part.end());
    }

    std::deque<Sent> sends;
};

// What the real layer takes from registered memory.
struct StreamMemory {
    explicit StreamMemory(std::size_t ring, std::uint32_t mappings = 0)
        : send_ring(ring), receive_ring(ring), targets(targets_size(mappings) / 8) {
        config.mappings = mappings;
        config.send_ring = send_ring;
        config.receive_ring = receive_ring;
        config.receive_address = reinterpret_cast<std::uintptr_t>(receive_ring.data());
        config.receive_key = 7;
        config.targets = std::as_writable_bytes(std::span(targets));
        config.targets_address = reinterpret_cast<std::uintptr_t>(targets.data());
        config.targets_key = 8;
    }

    std::vector<std::byte> send_ring;
    std::vector<std::byte> receive_ring;
    std::vector<std::uint64_t> targets;
    StreamConfig config;
};

inline std::size_t send_all(Stream& stream, ByteView bytes, Outlet& out) {
    return stream.send({&bytes, 1}, 0, out);
}

}  // namespace feroce::rsockets
