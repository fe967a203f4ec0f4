// The packet parser on any bytes. What parses must re-emit byte for byte and print as one line;
// what does not parse must not crash. The ICRC functions must agree with each other, and the same
// bytes are read as a capture file and as an IP frame.
#include <algorithm>
#include <vector>

#include "wire/pcapng.hpp"
#include "wire/print.hpp"

namespace {

using namespace feroce;
using namespace feroce::wire;

void check_packet(ByteView input) {
    Packet packet;
    const ParseError error = parse_packet(input, packet);
    ASSERT(to_string(error)[0] != '?');
    if (error != ParseError::None) return;
    std::vector<std::byte> again(input.begin(), input.end());
    const std::size_t headers = header_size(packet.bth.opcode);
    std::fill_n(again.begin(), headers, std::byte{0});
    ASSERT(emit_headers(again, packet.bth, extensions_of(packet)) == headers);
    ASSERT(std::equal(again.begin(), again.end(), input.begin(), input.end()));
    ASSERT(packet.payload.size() + packet.bth.pad_count + headers + kIcrcSize == input.size());
    ASSERT(describe(packet).find('\n') == std::string::npos);
}

void check_icrc(ByteView input) {
    const DatagramAddress v4{.source = Gid::from_v4(0x7f000001),
                             .destination = Gid::from_v4(0x7f000002),
                             .source_port = 0xc000};
    if (const auto id = solve_id(v4, input)) ASSERT(verify(v4, *id, input));
    if (input.size() < 16 || input.size() > 0x4000) return;
    std::vector<std::byte> run(input.begin(), input.end());
    run.insert(run.end(), input.begin(), input.end());
    seal_run(v4, run, input.size());
    ASSERT(solve_id(v4, ByteView(run).first(input.size())) == 0);
    ASSERT(solve_id(v4, ByteView(run).subspan(input.size())) == 1);
}

void check_capture(ByteView input) {
    for (const LinkType link : {LinkType::Ethernet, LinkType::RawIp})
        if (const auto datagram = find_datagram({.link = link, .bytes = input}))
            check_packet(datagram->udp_payload);
    PcapngReader reader(input);
    while (const auto frame = reader.next())
        if (const auto datagram = find_datagram(*frame)) check_packet(datagram->udp_payload);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const ByteView input = std::as_bytes(std::span(data, size));
    check_packet(input);
    check_icrc(input);
    check_capture(input);
    return 0;
}
