#include "sim/trace.hpp"

#include <cinttypes>
#include <cstring>

#include "wire/packet.hpp"
#include "wire/print.hpp"

namespace feroce::sim {

namespace {

const char* name(TraceEvent event) {
    switch (event) {
        case TraceEvent::Sent:
            return "sent";
        case TraceEvent::Delivered:
            return "delivered";
        case TraceEvent::Dropped:
            return "DROPPED";
        case TraceEvent::Duplicated:
            return "DUPLICATED";
        case TraceEvent::Corrupted:
            return "CORRUPTED";
        case TraceEvent::Completed:
            return "completed";
    }
    return "?";
}

double microseconds(Instant now) {
    return static_cast<double>(now.time_since_epoch().count()) / 1000.0;
}

}  // namespace

void Trace::capture_to(std::FILE* file) {
    writer_ = std::make_unique<wire::PcapngWriter>(wire::PcapngWriter::file_sink(file),
                                                   wire::LinkType::Ethernet);
}

void Trace::mix(std::uint64_t word) {
    // FNV-1a by words: eight times quicker than by bytes, and no adversary is about.
    hash_ = (hash_ ^ word) * 0x0000'0100'0000'01b3;
    hash_ ^= hash_ >> 29;
}

void Trace::mix_bytes(ByteView bytes) {
    std::size_t at = 0;
    for (; at + 8 <= bytes.size(); at += 8) {
        std::uint64_t word;
        std::memcpy(&word, bytes.data() + at, 8);
        mix(word);
    }
    for (; at < bytes.size(); ++at) mix(byte_at(bytes, at));
}

void Trace::head(Instant now, TraceEvent event, std::uint32_t where) {
    ++counts_[static_cast<std::size_t>(event)];
    mix(static_cast<std::uint64_t>(now.time_since_epoch().count()));
    mix(std::uint64_t{static_cast<std::uint8_t>(event)} << 32 | where);
}

void Trace::frame(Instant now, TraceEvent event, std::uint32_t where, const Frame& frame) {
    head(now, event, where);
    mix_bytes(frame.bytes);
    if (writer_ && event == TraceEvent::Sent) {
        writer_->write_datagram(now.time_since_epoch(), {.address = frame.address,
                                                         .ipv4_id = frame.ipv4_id,
                                                         .traffic_class = frame.traffic_class,
                                                         .udp_payload = frame.bytes});
    }
    if (text_ == nullptr) return;
    wire::Packet packet;
    const auto error = wire::parse_packet(frame.bytes, packet);
    const std::string text =
        error == wire::ParseError::None ? wire::describe(packet) : wire::to_string(error);
    std::fprintf(text_, "%14.3f us  %-10s @%-3" PRIu32 " %s > %s  %s\n", microseconds(now),
                 name(event), where, to_string(frame.address.source).c_str(),
                 to_string(frame.address.destination).c_str(), text.c_str());
}

void Trace::value(Instant now, TraceEvent event, std::uint32_t where, std::uint64_t value) {
    head(now, event, where);
    mix(value);
}

void Trace::print(Instant now, const std::string& text) {
    std::fprintf(text_, "%14.3f us  %s\n", microseconds(now), text.c_str());
}

}  // namespace feroce::sim
