// Every frame of the golden captures, read by our parser, against tshark's reading in frames.tsv,
// which knows nothing of our code. Each frame must also be rebuilt byte for byte from the values
// that were parsed, and its ICRC must hold with the id known and with the id unknown.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "wire/pcapng.hpp"
#include "wire/print.hpp"

namespace feroce::wire {
namespace {

constexpr std::size_t kFiles = 60;
constexpr std::size_t kFrames = 1624;
// tshark takes these for other protocols or for malformed; it then gives no ICRC.
constexpr std::size_t kFramesWithoutIcrc = 25;

const std::filesystem::path kData = FEROCE_GOLDEN_DATA;

using Bytes = std::vector<std::byte>;
using Row = std::map<std::string, std::string>;  // Column name to text; empty if absent.

Bytes read_file(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(in)), {});
    const ByteView bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
}

std::vector<std::string> split(const std::string& line) {
    std::vector<std::string> cells{""};
    for (const char c : line) {
        if (c == '\t')
            cells.emplace_back();
        else
            cells.back() += c;
    }
    return cells;
}

std::map<std::string, std::vector<Row>> read_table() {
    std::map<std::string, std::vector<Row>> rows;  // By file, in frame order.
    std::ifstream in(kData / "frames.tsv");
    std::string line;
    std::getline(in, line);
    const std::vector<std::string> names = split(line);
    while (std::getline(in, line)) {
        const std::vector<std::string> cells = split(line);
        Row row;
        for (std::size_t i = 0; i < names.size(); ++i) row[names[i]] = cells.at(i);
        rows[row["file"]].push_back(row);
    }
    return rows;
}

// One frame and its row. Columns are compared both ways: a header that tshark shows must be there,
// and one that it does not show must not.
class Comparison {
public:
    Comparison(const Row& row, const Packet& packet, const RoceDatagram& datagram)
        : row_(row), packet_(packet), datagram_(datagram) {}

    void check_all() {
        check_datagram();
        check_bth();
        check_requests();
        check_answers();
    }

private:
    std::string cell(const std::string& name) const { return row_.at(name); }
    std::uint64_t number(const std::string& name, int base = 0) const {
        const std::string text = cell(name);
        return text.empty() ? ~std::uint64_t{0} : std::stoull(text, nullptr, base);
    }
    void same(const std::string& name, std::uint64_t value, int base = 0) const {
        EXPECT_FALSE(cell(name).empty()) << name;
        EXPECT_EQ(number(name, base), value) << name;
    }
    bool present(Header header, const std::string& name) const {
        EXPECT_EQ(packet_.info->has(header), !cell(name).empty()) << name;
        return packet_.info->has(header) && !cell(name).empty();
    }

    void check_datagram() const {
        const bool v4 = datagram_.address.source.is_v4();
        EXPECT_EQ(to_string(datagram_.address.source), cell(v4 ? "ip.src" : "ipv6.src"));
        EXPECT_EQ(to_string(datagram_.address.destination), cell(v4 ? "ip.dst" : "ipv6.dst"));
        if (v4) same("ip.id", datagram_.ipv4_id);
        same("udp.srcport", datagram_.address.source_port);
        same("udp.length", datagram_.udp_payload.size() + 8);
        const std::string icrc = cell("infiniband.invariant.crc");
        if (!icrc.empty())
            same("infiniband.invariant.crc", load_be32(datagram_.udp_payload.last<4>()));
    }

    void check_bth() const {
        const Bth& bth = packet_.bth;
        same("infiniband.bth.opcode", static_cast<std::uint64_t>(bth.opcode));
        same("infiniband.bth.se", bth.solicited);
        same("infiniband.bth.m", bth.migrated);
        same("infiniband.bth.padcnt", bth.pad_count);
        same("infiniband.bth.tver", bth.transport_version);
        same("infiniband.bth.p_key", bth.pkey.raw);
        same("infiniband.bth.destqp", bth.destination.raw);
        same("infiniband.bth.a", bth.ack_request);
        same("infiniband.bth.psn", bth.psn.raw());
    }

    void check_requests() const {
        if (present(Header::Deth, "infiniband.deth.q_key")) {
            same("infiniband.deth.q_key", packet_.deth().qkey.raw);
            same("infiniband.deth.srcqp", packet_.deth().source.raw);
        }
        if (present(Header::Reth, "infiniband.reth.dmalen")) {
            same("infiniband.reth.va", packet_.reth().address);
            same("infiniband.reth.r_key", packet_.reth().rkey.raw);
            same("infiniband.reth.dmalen", packet_.reth().length);
        }
        if (present(Header::AtomicEth, "infiniband.atomiceth.swapdt")) {
            same("infiniband.reth.va", packet_.atomic_eth().address);
            same("infiniband.reth.r_key", packet_.atomic_eth().rkey.raw);
            same("infiniband.atomiceth.swapdt", packet_.atomic_eth().swap_or_add);
            same("infiniband.atomiceth.cmpdt", packet_.atomic_eth().compare);
        }
        if (present(Header::Immediate, "infiniband.immdt"))
            same("infiniband.immdt", packet_.immediate(), 16);
        if (present(Header::Ieth, "infiniband.ieth"))
            same("infiniband.ieth", packet_.invalidate().raw, 16);
    }

    void check_answers() const {
        if (present(Header::Aeth, "infiniband.aeth.syndrome")) {
            same("infiniband.aeth.syndrome", packet_.aeth().syndrome.raw);
            same("infiniband.aeth.msn", packet_.aeth().msn);
        }
        if (present(Header::AtomicAckEth, "infiniband.atomicacketh.origremdt"))
            same("infiniband.atomicacketh.origremdt", packet_.atomic_ack().original);
    }

    const Row& row_;
    const Packet& packet_;
    const RoceDatagram& datagram_;
};

// The packet as we would send it: nothing of the captured bytes but the payload is used.
Bytes rebuild(const Packet& packet, const RoceDatagram& datagram) {
    Bytes bytes(packet_size(packet.bth.opcode, packet.payload.size()));
    const std::size_t headers = emit_headers(bytes, packet.bth, extensions_of(packet));
    std::copy(packet.payload.begin(), packet.payload.end(),
              bytes.begin() + static_cast<std::ptrdiff_t>(headers));
    seal(datagram.address, datagram.ipv4_id, bytes);
    return bytes;
}

void check_frame(const CapturedFrame& frame, const Row& row) {
    const auto datagram = find_datagram(frame);
    ASSERT_TRUE(datagram.has_value());
    Packet packet;
    ASSERT_EQ(parse_packet(datagram->udp_payload, packet), ParseError::None);
    SCOPED_TRACE(describe(packet));
    Comparison(row, packet, *datagram).check_all();

    const DatagramAddress& address = datagram->address;
    EXPECT_TRUE(verify(address, datagram->ipv4_id, datagram->udp_payload));
    EXPECT_EQ(solve_id(address, datagram->udp_payload), datagram->ipv4_id);
    const ByteView captured = datagram->udp_payload;
    EXPECT_EQ(rebuild(packet, *datagram), Bytes(captured.begin(), captured.end()));
}

TEST(GoldenCaptures, EveryFrameIsReadAsTsharkReadsItAndRebuiltByteForByte) {
    std::size_t files = 0, frames = 0, without_icrc = 0;
    for (const auto& [name, rows] : read_table()) {
        SCOPED_TRACE(name);
        const Bytes file = read_file(kData / name);
        PcapngReader reader(file);
        for (const Row& row : rows) {
            SCOPED_TRACE("frame " + row.at("frame.number"));
            const auto frame = reader.next();
            ASSERT_TRUE(frame.has_value());
            check_frame(*frame, row);
            without_icrc += row.at("infiniband.invariant.crc").empty();
            ++frames;
        }
        EXPECT_FALSE(reader.next().has_value());
        EXPECT_FALSE(reader.damaged());
        ++files;
    }
    EXPECT_EQ(files, kFiles);
    EXPECT_EQ(frames, kFrames);
    EXPECT_EQ(without_icrc, kFramesWithoutIcrc);
}

// rc-send: SENDs of these sizes, byte i being i % 251. Says that payload and pad are told apart.
TEST(GoldenCaptures, PayloadsAreWhatTheProgramSent) {
    for (const char* name : {"rc-send-v4.pcapng", "rc-send-v6.pcapng"}) {
        const Bytes file = read_file(kData / name);
        PcapngReader reader(file);
        std::vector<std::size_t> sizes;
        std::size_t so_far = 0;
        while (const auto frame = reader.next()) {
            Packet packet;
            ASSERT_EQ(parse_packet(find_datagram(*frame)->udp_payload, packet), ParseError::None);
            if (packet.info->service != Service::Rc || packet.info->verb != Verb::Send) continue;
            if (packet.info->starts_message()) so_far = 0;
            for (const std::byte b : packet.payload)
                ASSERT_EQ(b, static_cast<std::byte>(so_far++ % 251));
            if (packet.info->ends_message()) sizes.push_back(so_far);
        }
        EXPECT_EQ(sizes, (std::vector<std::size_t>{0, 1, 2, 3, 64, 1024, 1025, 3001, 16}));
    }
}

}  // namespace
}  // namespace feroce::wire
