#include "cli/perfetto/work_requests.hpp"

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <vector>

namespace feroce::cli::work_requests_test {
namespace {

wire::Packet packet(wire::Opcode opcode, std::uint32_t psn) {
    wire::Packet out;
    out.bth.opcode = opcode;
    out.bth.psn = Psn(psn);
    out.info = &wire::opcode_info(opcode);
    static const std::array<std::byte, wire::kExtensionMax> kZeros{};
    out.extension = ByteView(kZeros).first(out.info->extension_size);
    return out;
}

class WorkRequestsTest : public testing::Test {
protected:
    // What was written: phase, id and outcome of each event.
    std::vector<std::string> events() {
        file_.finish();
        std::ifstream in(path_);
        std::vector<std::string> out;
        for (const Json& event : Json::parse(in))
            out.push_back(event["ph"].get<std::string>() + event["id"].get<std::string>() +
                          (event.contains("args") && event["args"].contains("outcome")
                               ? " " + event["args"]["outcome"].get<std::string>()
                               : ""));
        return out;
    }
    ~WorkRequestsTest() override { std::filesystem::remove(path_); }

    std::string path_ = testing::TempDir() + "/work_requests_test.json";
    TraceFile file_{path_};
    std::uint64_t next_id_ = 1;
    WorkRequests requests_{file_, {1, 1}, next_id_};
};

using Words = std::vector<std::string>;
using wire::Opcode;

TEST_F(WorkRequestsTest, EndWithTheAcknowledgementOfTheirLastPacket) {
    requests_.request(0, packet(Opcode::RcWriteFirst, 10));
    requests_.request(1, packet(Opcode::RcWriteLast, 11));
    requests_.request(2, packet(Opcode::RcSendOnly, 12));
    requests_.answer(3, packet(Opcode::RcAck, 10));
    requests_.answer(4, packet(Opcode::RcAck, 12));
    EXPECT_EQ(events(), (Words{"b0x1", "b0x2", "e0x1 done", "e0x2 done"}));
}

TEST_F(WorkRequestsTest, TellWhatIsSentAgain) {
    requests_.request(0, packet(Opcode::RcWriteOnly, 0xff'ffff));
    requests_.request(1, packet(Opcode::RcWriteOnly, 0));
    requests_.request(2, packet(Opcode::RcWriteOnly, 0xff'ffff));
    requests_.answer(3, packet(Opcode::RcAck, 0));
    EXPECT_EQ(events(), (Words{"b0x1", "b0x2", "n0x1", "e0x1 done", "e0x2 done"}));
}

TEST_F(WorkRequestsTest, AReadEndsWithItsLastResponse) {
    requests_.request(0, packet(Opcode::RcReadRequest, 5));
    requests_.request(1, packet(Opcode::RcWriteOnly, 8));
    requests_.answer(2, packet(Opcode::RcReadResponseFirst, 5));
    requests_.answer(3, packet(Opcode::RcReadResponseLast, 7));
    requests_.answer(4, packet(Opcode::RcAck, 8));
    EXPECT_EQ(events(), (Words{"b0x1", "b0x2", "e0x1 done", "e0x2 done"}));
}

TEST_F(WorkRequestsTest, BeginInTheMiddleIfTheirFirstPacketIsMissing) {
    requests_.request(0, packet(Opcode::RcWriteLast, 3));
    requests_.request(1, packet(Opcode::RcWriteMiddle, 5));
    requests_.request(2, packet(Opcode::RcWriteLast, 6));
    requests_.answer(3, packet(Opcode::RcAck, 6));
    EXPECT_EQ(events(), (Words{"b0x1", "b0x2", "e0x1 done", "e0x2 done"}));
}

TEST_F(WorkRequestsTest, ThatAreNotAnsweredEndWithTheCapture) {
    requests_.answer(0, packet(Opcode::RcAck, 100));
    requests_.request(1, packet(Opcode::RcWriteFirst, 3));
    requests_.finish(3);
    EXPECT_EQ(events(), (Words{"b0x1", "e0x1 not answered in this capture"}));
}

TEST_F(WorkRequestsTest, ThatNobodyAcknowledgesEndWhenTheyAreSent) {
    requests_.request(0, packet(Opcode::UcWriteFirst, 3));
    requests_.request(1, packet(Opcode::UcWriteLast, 4));
    requests_.request(2, packet(Opcode::UcSendOnly, 5));
    EXPECT_EQ(events(), (Words{"b0x1", "e0x1 done", "b0x2", "e0x2 done"}));
}

TEST_F(WorkRequestsTest, AreBoundedWhereNothingIsAnswered) {
    for (std::uint32_t i = 0; i < WorkRequests::kOpenMax + 3; ++i)
        requests_.request(i, packet(Opcode::RcSendOnly, i));
    EXPECT_EQ(events().size(), WorkRequests::kOpenMax + 6);
}

}  // namespace
}  // namespace feroce::cli::work_requests_test
