#include "cli/remarks.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace feroce::cli::remarks_test {
namespace {

// One packet of a flow, from its BTH on.
class Sample {
public:
    Sample(wire::Opcode opcode, std::uint32_t psn, std::uint8_t syndrome = 0) {
        bytes_.resize(wire::packet_size(opcode, 0));
        wire::Bth bth{};
        bth.opcode = opcode;
        bth.psn = Psn(psn);
        bth.destination = Qpn{7};
        bth.emit(std::span(bytes_).first<wire::Bth::kSize>());
        if (opcode == wire::Opcode::RcAck) bytes_[wire::Bth::kSize] = std::byte{syndrome};
        EXPECT_EQ(wire::parse_packet(bytes_, packet_), wire::ParseError::None);
    }
    std::string remark(Remarks& remarks,
                       wire::Direction direction = wire::Direction::Unknown) const {
        return remarks.on({.udp_payload = bytes_, .direction = direction}, packet_);
    }

private:
    std::vector<std::byte> bytes_;
    wire::Packet packet_;
};

TEST(Remarks, ARepeatedPacketAndAGapAreToldApart) {
    Remarks remarks;
    const auto write = wire::Opcode::RcWriteOnly;
    EXPECT_EQ(Sample(write, 0xff'ffff).remark(remarks), "");
    EXPECT_EQ(Sample(write, 0).remark(remarks), "");
    EXPECT_EQ(Sample(write, 0xff'ffff).remark(remarks), "sent again");
    EXPECT_EQ(Sample(write, 3).remark(remarks), "2 packets from PSN 1 on not in this capture");
    EXPECT_EQ(Sample(write, 4).remark(remarks), "");
    // How many PSNs a READ takes depends on a path MTU that the capture does not show.
    EXPECT_EQ(Sample(wire::Opcode::RcReadRequest, 5).remark(remarks), "");
    EXPECT_EQ(Sample(write, 9).remark(remarks), "");
}

// A process that talks to itself captures what it sends and what it receives.
TEST(Remarks, APacketThatIsThereTwiceWasNotSentAgain) {
    Remarks remarks;
    const auto write = wire::Opcode::RcWriteOnly;
    const auto out = wire::Direction::Outbound, in = wire::Direction::Inbound;
    EXPECT_EQ(Sample(write, 1).remark(remarks, out), "");
    EXPECT_EQ(Sample(write, 1).remark(remarks, in), "the same packet, as it is received");
    EXPECT_EQ(Sample(write, 2).remark(remarks, out), "");
    EXPECT_EQ(Sample(write, 2).remark(remarks, out), "sent again");
}

TEST(Remarks, AnswersThatRefuse) {
    Remarks remarks;
    const auto ack = wire::Opcode::RcAck;
    EXPECT_EQ(Sample(ack, 5, 0x00).remark(remarks), "");
    EXPECT_EQ(Sample(ack, 5, 0x60).remark(remarks),
              "PSN 5 is missing: everything from there is sent again");
    EXPECT_EQ(Sample(ack, 5, 0x62).remark(remarks),
              "refused at PSN 5: NAK remote access error, the connection ends");
    EXPECT_EQ(Sample(ack, 5, 0x2c).remark(remarks),
              "no receive is posted for PSN 5: the sender must wait");
}

}  // namespace
}  // namespace feroce::cli::remarks_test
