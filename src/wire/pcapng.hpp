// pcapng files of RoCE traffic: a writer that Wireshark opens, and a reader that takes any bytes at
// all without crashing. Both see one section with any number of interfaces; other block types are
// skipped. Times are since the Unix epoch: the caller has the clock.
#pragma once

#include <cstdio>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "base/time.hpp"
#include "wire/icrc.hpp"

namespace feroce::wire {

// As the registry of tcpdump.org numbers them. A reader may meet any other.
enum class LinkType : std::uint16_t {
    BsdLoopback = 0,
    Ethernet = 1,
    RawIpOfBsd = 12,
    RawIpOfOpenBsd = 14,
    RawIp = 101,
    OpenBsdLoopback = 108,
    LinuxCooked = 113,
    Ipv4 = 228,
    Ipv6 = 229,
    LinuxCooked2 = 276
};

bool is_read(LinkType link);  // Whether find_datagram knows it.

// As the machine that captured saw it.
enum class Direction : std::uint8_t { Unknown, Inbound, Outbound };

// One RoCE datagram with the IP fields a capture shows beyond the addresses.
struct RoceDatagram {
    DatagramAddress address{};
    std::uint16_t ipv4_id = 0;
    std::uint8_t traffic_class = 0;  // TOS or IPv6 class; the low two bits are ECN.
    ByteView udp_payload{};          // BTH to ICRC.
    Direction direction = Direction::Unknown;
    bool dont_fragment = true;  // IPv4's flag, which the ICRC covers.
};

// Whether the ICRC of a datagram from a capture is right.
bool verify(const RoceDatagram& datagram);

// Every block goes out in one call of the sink, so blocks of several writers never mix in a file.
class PcapngWriter {
public:
    using Sink = std::function<void(ByteView)>;

    // Writes the section and interface blocks at once.
    PcapngWriter(Sink sink, LinkType link);

    static Sink file_sink(std::FILE* file);  // Borrows the file. Flushes each block.

    // Wireshark shows the comment with the packet; empty: none.
    void write_frame(Duration since_epoch, ByteView frame, std::string_view comment = {},
                     Direction direction = Direction::Unknown);
    // Makes IP and UDP headers (and, for Ethernet, zero MAC addresses) around the packet.
    void write_datagram(Duration since_epoch, const RoceDatagram& datagram);

private:
    Sink sink_;
    LinkType link_;
    std::vector<std::byte> block_;  // Reused, so that a steady capture does not allocate.
    std::vector<std::byte> frame_;
};

struct CapturedFrame {
    Duration since_epoch{};
    LinkType link = LinkType::Ethernet;
    ByteView bytes{};                 // Into the reader's input.
    std::uint32_t original_size = 0;  // More than bytes.size() if the capture cut it.
    Direction direction = Direction::Unknown;
};

class PcapngReader {
public:
    explicit PcapngReader(ByteView file) : rest_(file) {}

    // The bytes that follow those that were read, all of them: for files that come in pieces.
    void go_on_with(ByteView bytes) { rest_ = bytes; }

    // The next packet, or nothing at the end or at the first block that makes no sense.
    std::optional<CapturedFrame> next();
    bool damaged() const { return damaged_; }                 // Reading ended before the bytes did.
    bool is_capture() const { return !interfaces_.empty(); }  // As far as it was read.

private:
    struct Interface {
        LinkType link;
        std::uint64_t units_per_second;
        std::uint32_t kept_max;  // Of a frame; 0: all.
    };

    std::uint32_t u32(ByteView block, std::size_t offset) const;
    std::uint16_t u16(ByteView block, std::size_t offset) const;
    std::optional<ByteView> next_block();
    bool read_section(ByteView block);
    bool read_interface(ByteView body);
    std::optional<ByteView> option(ByteView options, std::uint16_t wanted) const;
    std::uint64_t time_units(ByteView options) const;
    Direction direction_of(ByteView options) const;
    std::optional<CapturedFrame> read_packet(std::uint32_t type, ByteView body) const;
    std::optional<CapturedFrame> read_simple_packet(ByteView body) const;

    ByteView rest_;
    bool big_endian_ = false;
    bool damaged_ = false;
    std::vector<Interface> interfaces_;
};

// The RoCE datagram in a frame, if there is one: IPv4 without options and fragments or IPv6 without
// extension headers, UDP to port 4791, all lengths consistent. Checksums are not looked at, VLAN
// tags are passed over.
std::optional<RoceDatagram> find_datagram(const CapturedFrame& frame);

}  // namespace feroce::wire
