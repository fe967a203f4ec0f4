// Writing pcapng: little-endian, one interface, nanosecond times.
#include <algorithm>
#include <utility>

#include "wire/pcapng.hpp"
#include "wire/pcapng_blocks.hpp"

namespace feroce::wire {

namespace {

constexpr std::size_t kUdpHeaderSize = 8;

using Buffer = std::vector<std::byte>;

void put_le(Buffer& out, std::uint64_t value, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i)
        out.push_back(static_cast<std::byte>(value >> (8 * i) & 0xff));
}

void put_be(Buffer& out, std::uint64_t value, std::size_t bytes) {
    for (std::size_t i = bytes; i-- > 0;)
        out.push_back(static_cast<std::byte>(value >> (8 * i) & 0xff));
}

void begin_block(Buffer& out, std::uint32_t type) {
    out.clear();
    put_le(out, type, 4);
    put_le(out, 0, 4);  // The length, known at the end.
}

void end_block(Buffer& out) {
    out.resize((out.size() + 3) / 4 * 4);
    const std::size_t length = out.size() + 4;
    put_le(out, length, 4);
    for (std::size_t i = 0; i < 4; ++i) out[4 + i] = static_cast<std::byte>(length >> (8 * i));
}

// The internet checksum's sum; fold() makes it the checksum.
std::uint32_t sum_words(ByteView bytes) {
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) sum += byte_at(bytes, i) << (i % 2 == 0 ? 8 : 0);
    return sum;
}

std::uint16_t fold(std::uint32_t sum) {
    while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
    return static_cast<std::uint16_t>(~sum & 0xffff);
}

std::uint32_t address_sum(const Gid& gid) {
    return sum_words(std::as_bytes(std::span(gid.raw)).subspan(gid.is_v4() ? 12 : 0));
}

void put_gid(Buffer& out, const Gid& gid) {
    const ByteView raw = std::as_bytes(std::span(gid.raw)).subspan(gid.is_v4() ? 12 : 0);
    out.insert(out.end(), raw.begin(), raw.end());
}

void put_ip(Buffer& out, const RoceDatagram& d, std::size_t udp_length) {
    const std::size_t start = out.size();
    if (d.address.destination.is_v4()) {
        put_be(out, 0x45, 1);
        put_be(out, d.traffic_class, 1);
        put_be(out, 20 + udp_length, 2);
        put_be(out, d.ipv4_id, 2);
        put_be(out, d.dont_fragment ? 0x4000 : 0, 2);
        put_be(out, 64 << 8 | 17, 2);  // TTL, UDP.
        put_be(out, 0, 2);
        put_gid(out, d.address.source);
        put_gid(out, d.address.destination);
        const std::span<std::byte> header = std::span(out).subspan(start);
        store_be16(header.subspan<10, 2>(), fold(sum_words(header)));
    } else {
        put_be(out, 6u << 28 | std::uint32_t{d.traffic_class} << 20, 4);
        put_be(out, udp_length, 2);
        put_be(out, 17 << 8 | 64, 2);  // UDP, hop limit.
        put_gid(out, d.address.source);
        put_gid(out, d.address.destination);
    }
}

void put_udp(Buffer& out, const RoceDatagram& d, std::size_t udp_length) {
    const std::size_t start = out.size();
    put_be(out, d.address.source_port, 2);
    put_be(out, d.address.destination_port, 2);
    put_be(out, udp_length, 2);
    put_be(out, 0, 2);
    out.insert(out.end(), d.udp_payload.begin(), d.udp_payload.end());
    const std::span<std::byte> udp = std::span(out).subspan(start);
    const std::uint32_t pseudo = address_sum(d.address.source) +
                                 address_sum(d.address.destination) + 17 +
                                 static_cast<std::uint32_t>(udp_length);
    const std::uint16_t checksum = fold(pseudo + sum_words(udp));
    // 0 on the wire means that there is none.
    store_be16(udp.subspan<6, 2>(), checksum == 0 ? std::uint16_t{0xffff} : checksum);
}

}  // namespace

PcapngWriter::PcapngWriter(Sink sink, LinkType link) : sink_(std::move(sink)), link_(link) {
    begin_block(block_, kSectionBlock);
    put_le(block_, kByteOrderMagic, 4);
    put_le(block_, 1, 4);                  // Version 1.0.
    put_le(block_, ~std::uint64_t{0}, 8);  // Section length unknown.
    end_block(block_);
    sink_(block_);

    begin_block(block_, kInterfaceBlock);
    put_le(block_, static_cast<std::uint16_t>(link_), 4);
    put_le(block_, 0, 4);            // No limit to what is kept of a packet.
    put_le(block_, 9 | 1 << 16, 4);  // Option if_tsresol, one byte:
    put_le(block_, 9, 4);            // 10^-9 s.
    put_le(block_, 0, 4);            // End of options.
    end_block(block_);
    sink_(block_);
}

PcapngWriter::Sink PcapngWriter::file_sink(std::FILE* file) {
    return [file](ByteView block) {
        // A full disk costs the capture, never the traffic: errors are left to the file's state.
        std::fwrite(block.data(), 1, block.size(), file);
        std::fflush(file);
    };
}

void PcapngWriter::write_frame(Duration since_epoch, ByteView frame, std::string_view comment,
                               Direction direction) {
    const auto time = static_cast<std::uint64_t>(since_epoch.count());
    begin_block(block_, kPacketBlock);
    put_le(block_, 0, 4);  // Interface.
    put_le(block_, time >> 32, 4);
    put_le(block_, time & 0xffff'ffff, 4);
    put_le(block_, frame.size(), 4);
    put_le(block_, frame.size(), 4);
    block_.insert(block_.end(), frame.begin(), frame.end());
    block_.resize((block_.size() + 3) / 4 * 4);
    if (!comment.empty()) {
        constexpr std::uint16_t kComment = 1;
        put_le(block_, kComment, 2);
        put_le(block_, comment.size(), 2);
        const ByteView text = std::as_bytes(std::span(comment));
        block_.insert(block_.end(), text.begin(), text.end());
        block_.resize((block_.size() + 3) / 4 * 4);
    }
    if (direction != Direction::Unknown) {
        put_le(block_, kFlagsOption, 2);
        put_le(block_, 4, 2);
        put_le(block_, direction == Direction::Inbound ? kInboundFlag : kOutboundFlag, 4);
    }
    if (!comment.empty() || direction != Direction::Unknown)
        put_le(block_, 0, 4);  // End of options.
    end_block(block_);
    sink_(block_);
}

void PcapngWriter::write_datagram(Duration since_epoch, const RoceDatagram& datagram) {
    frame_.clear();
    if (link_ == LinkType::Ethernet) {
        frame_.resize(12);
        put_be(frame_, datagram.address.destination.is_v4() ? 0x0800 : 0x86dd, 2);
    }
    const std::size_t udp_length = kUdpHeaderSize + datagram.udp_payload.size();
    put_ip(frame_, datagram, udp_length);
    put_udp(frame_, datagram, udp_length);
    write_frame(since_epoch, frame_, {}, datagram.direction);
}

}  // namespace feroce::wire
