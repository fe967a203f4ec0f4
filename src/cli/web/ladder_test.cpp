#include "cli/web/ladder.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>

#include "cli/flows.hpp"
#include "wire/pcapng.hpp"

namespace feroce::cli::ladder_test {
namespace {

const Gid kA = Gid::from_v4(0x0a00'0001), kB = Gid::from_v4(0x0a00'0002);

LadderPacket request(const Gid& from, const Gid& to, std::uint32_t qpn, std::uint32_t psn) {
    LadderPacket out;
    out.source = from;
    out.destination = to;
    out.qpn = qpn;
    out.psn = psn;
    return out;
}

LadderPacket answer(const Gid& from, const Gid& to, std::uint32_t qpn, std::uint32_t psn) {
    LadderPacket out = request(from, to, qpn, psn);
    out.answers = true;
    return out;
}

Json shown(const std::vector<LadderPacket>& packets) {
    return ladders_of(packets)["ladders"];
}

TEST(Ladder, JoinsRequestsAndTheirAnswers) {
    const Json ladders = shown({request(kA, kB, 20, 100), request(kA, kB, 21, 900'000),
                                answer(kB, kA, 10, 100), answer(kB, kA, 11, 900'000)});
    ASSERT_EQ(ladders.size(), 2U);
    EXPECT_EQ(ladders[0]["left"]["qpn"], 10);
    EXPECT_EQ(ladders[0]["right"]["qpn"], 20);
    EXPECT_EQ(ladders[0]["left"]["address"], "10.0.0.1");
    EXPECT_EQ(ladders[0]["packets"][0]["to_right"], true);
    EXPECT_EQ(ladders[0]["packets"][1]["to_right"], false);
    EXPECT_EQ(ladders[1]["left"]["qpn"], 11);
    EXPECT_EQ(ladders[1]["right"]["qpn"], 21);
}

TEST(Ladder, IsOneWhereBothEndsAsk) {
    const Json ladders = shown({request(kA, kB, 20, 100), request(kB, kA, 10, 5'000'000),
                                answer(kB, kA, 10, 100), answer(kA, kB, 20, 5'000'000)});
    ASSERT_EQ(ladders.size(), 1U);
    EXPECT_EQ(ladders[0]["packets"].size(), 4U);
    EXPECT_EQ(ladders[0]["packets"][1]["to_right"], false);
}

TEST(Ladder, BelievesDatagrams) {
    LadderPacket there = request(kA, kB, 1, 5), back = request(kB, kA, 1, 900);
    there.from_qpn = back.from_qpn = 1;
    const Json ladders = shown({there, back, request(kA, kB, 20, 5)});
    ASSERT_EQ(ladders.size(), 2U);
    EXPECT_EQ(ladders[0]["packets"].size(), 2U);
    EXPECT_EQ(ladders[0]["packets"][1]["to_right"], false);
}

TEST(Ladder, WorksBetweenQueuePairsOfOneAddress) {
    const Json ladders = shown({request(kA, kA, 20, 100), answer(kA, kA, 10, 100)});
    ASSERT_EQ(ladders.size(), 1U);
    EXPECT_EQ(ladders[0]["packets"].size(), 2U);
    EXPECT_NE(ladders[0]["packets"][0]["to_right"], ladders[0]["packets"][1]["to_right"]);
}

TEST(Ladder, ShowsWhatNobodyAnswers) {
    const Json ladders = shown({request(kA, kB, 20, 1), request(kA, kB, 20, 2)});
    ASSERT_EQ(ladders.size(), 1U);
    EXPECT_EQ(ladders[0]["left"]["qpn"], 0);
    EXPECT_EQ(ladders[0]["packets"].size(), 2U);
}

TEST(Ladder, IsCutWhereItIsLong) {
    std::vector<LadderPacket> packets(kLadderPacketsMax + 7, request(kA, kB, 20, 1));
    const Json ladders = shown(packets);
    EXPECT_EQ(ladders[0]["packets"].size(), kLadderPacketsMax);
    EXPECT_EQ(ladders[0]["more"], 7);
}

TEST(Ladder, TheBusiestComeFirstHoweverTheyAreCut) {
    std::vector<LadderPacket> packets;
    for (std::uint32_t qpn = 1; qpn <= kLaddersMax + 3; ++qpn)
        packets.insert(packets.end(), kLadderPacketsMax + qpn, request(kA, kB, qpn, 1));
    const Json all = ladders_of(packets);
    EXPECT_EQ(all["ladders"].size(), kLaddersMax);
    EXPECT_EQ(all["more"], 3);
    EXPECT_EQ(all["ladders"][0]["right"]["qpn"], kLaddersMax + 3);
    EXPECT_EQ(all["ladders"].back()["right"]["qpn"], 4);
}

TEST(Ladder, CountsPacketsOfMoreFlowsThanAreFollowed) {
    std::vector<LadderPacket> packets;
    for (std::uint32_t qpn = 1; qpn <= FlowPairs::kFlowsMax + 3; ++qpn)
        packets.push_back(request(kA, kB, qpn, 1));
    EXPECT_EQ(ladders_of(packets)["unpaired"], 3);
    EXPECT_EQ(shown(packets).size(), kLaddersMax);
}

// A capture with so many acknowledgements, and its size.
std::uintmax_t write_capture(const std::string& path, unsigned packets,
                             bool both_directions = false) {
    std::FILE* file = std::fopen(path.c_str(), "wb");
    if (file == nullptr) return 0;
    wire::PcapngWriter writer(wire::PcapngWriter::file_sink(file), wire::LinkType::RawIp);
    std::vector<std::byte> packet(20);  // BTH, AETH, ICRC.
    packet[0] = std::byte{0x11};
    wire::RoceDatagram datagram;
    datagram.address.source = kA;
    datagram.address.destination = kB;
    datagram.udp_payload = packet;
    for (unsigned i = 0; i < packets; ++i) {
        if (both_directions)
            datagram.direction = i % 2 == 0 ? wire::Direction::Outbound : wire::Direction::Inbound;
        writer.write_datagram(Duration(i), datagram);
    }
    std::fclose(file);
    return std::filesystem::file_size(path);
}

TEST(Ladder, OfALargeFileIsItsBeginning) {
    const std::string path = testing::TempDir() + "ladder_test.pcapng";
    const std::uintmax_t size = write_capture(path, 10);
    ASSERT_GT(size, 0U);
    const auto packets = [](const Json& capture) {
        return capture["ladders"].empty() ? 0 : capture["ladders"][0]["packets"].size();
    };
    const Json all = ladders_in(path, size, 10);
    EXPECT_EQ(packets(all), 10U);
    EXPECT_EQ(all["cut"], "");
    const Json few = ladders_in(path, size, 9);
    EXPECT_EQ(packets(few), 9U);
    EXPECT_EQ(few["cut"], "only the first 9 packets of the capture are read");
    const Json small = ladders_in(path, size - 1, 10);
    EXPECT_EQ(packets(small), 9U);
    EXPECT_EQ(small["cut"],
              fmt::format("only the first {} bytes of the capture are read", size - 1));
    std::filesystem::remove(path);
}

TEST(Ladder, HasAPacketOnceThatWasSentAndReceivedHere) {
    const std::string path = testing::TempDir() + "ladder_twice_test.pcapng";
    ASSERT_GT(write_capture(path, 10, true), 0U);
    EXPECT_EQ(ladders_in(path)["ladders"][0]["packets"].size(), 5U);
    std::filesystem::remove(path);
}

TEST(Ladder, OfAFileWithoutEndIsRefused) {
    EXPECT_THROW(ladders_in("/dev/zero", 4096), UsageError);
}

TEST(Ladder, OfNoFileIsRefused) {
    EXPECT_THROW(ladders_in("/nowhere/at/all.pcapng"), UsageError);
    EXPECT_THROW(ladders_in("/etc/passwd"), UsageError);
    EXPECT_THROW(ladders_in("/dev/null"), UsageError);
    EXPECT_THROW(ladders_in("/etc"), UsageError);
}

}  // namespace
}  // namespace feroce::cli::ladder_test
