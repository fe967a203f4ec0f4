#include "cli/trace.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "wire/icrc.hpp"
#include "wire/packet.hpp"
#include "wire/pcapng.hpp"
#include "wire/print.hpp"

namespace feroce::cli {
namespace {

std::string line(Duration time, const wire::RoceDatagram& datagram) {
    const double seconds = std::chrono::duration<double>(time).count();
    const std::string head =
        fmt::format("{:.6f} {} > {}", seconds, to_string(datagram.address.source),
                    to_string(datagram.address.destination));
    wire::Packet packet;
    const wire::ParseError error = wire::parse_packet(datagram.udp_payload, packet);
    if (error != wire::ParseError::None)
        return fmt::format("{} not a packet: {}", head, wire::to_string(error));
    const bool sealed = wire::verify(datagram.address, datagram.ipv4_id, datagram.udp_payload);
    return fmt::format("{} {}{}", head, wire::describe(packet), sealed ? "" : " (bad ICRC)");
}

}  // namespace

int trace(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        fmt::print(stderr, "feroce: {}: {}\n", path, std::strerror(errno));
        return 2;
    }
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    wire::PcapngReader reader(std::as_bytes(std::span(bytes)));
    std::size_t packets = 0;
    Duration first{};
    while (const auto frame = reader.next()) {
        const auto datagram = wire::find_datagram(*frame);
        if (!datagram) continue;
        if (packets++ == 0) first = frame->since_epoch;
        fmt::print("{}\n", line(frame->since_epoch - first, *datagram));
    }
    if (!reader.damaged()) return 0;
    const char* what = packets == 0 ? "is not a pcapng file" : "is damaged, the rest is left out";
    fmt::print(stderr, "feroce: {} {}\n", path, what);
    return packets == 0 ? 2 : 1;
}

}  // namespace feroce::cli
