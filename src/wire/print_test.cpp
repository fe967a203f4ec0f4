// The lines people read: one example of each kind of header, compared whole.
#include "wire/print.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace feroce::wire {
namespace {

std::string line_of(Bth bth, const Extensions& extensions, std::size_t payload = 0) {
    bth.destination = {0x11};
    bth.psn = Psn(1000);
    bth.pad_count = static_cast<std::uint8_t>(pad_of(payload));
    std::vector<std::byte> bytes(packet_size(bth.opcode, payload));
    emit_headers(bytes, bth, extensions);
    Packet packet;
    EXPECT_EQ(parse_packet(bytes, packet), ParseError::None);
    return describe(packet);
}

TEST(Describe, Requests) {
    EXPECT_EQ(
        line_of({.opcode = Opcode::RcSendOnly, .solicited = true, .ack_request = true}, {}, 5),
        "RC_SEND_ONLY qpn 0x000011 psn 1000 solicited ack-request payload 5");
    EXPECT_EQ(line_of({.opcode = Opcode::RcWriteOnlyImmediate},
                      {.reth = {.address = 0xabc, .rkey = {0x12}, .length = 7}, .immediate = 9}, 7),
              "RC_WRITE_ONLY_IMM qpn 0x000011 psn 1000 va 0xabc rkey 0x00000012 length 7 "
              "immediate 0x00000009 payload 7");
    EXPECT_EQ(line_of({.opcode = Opcode::RcCompareSwap},
                      {.atomic = {.address = 8, .rkey = {1}, .swap_or_add = 2, .compare = 3}}),
              "RC_CMP_SWAP qpn 0x000011 psn 1000 va 0x8 rkey 0x00000001 compare 0x3 swap 0x2");
    EXPECT_EQ(line_of({.opcode = Opcode::RcFetchAdd},
                      {.atomic = {.address = 8, .rkey = {1}, .swap_or_add = 2}}),
              "RC_FETCH_ADD qpn 0x000011 psn 1000 va 0x8 rkey 0x00000001 add 0x2");
    EXPECT_EQ(line_of({.opcode = Opcode::UdSendOnly, .pkey = {0x8001}},
                      {.deth = {.qkey = {0x80010000}, .source = {1}}}),
              "UD_SEND_ONLY qpn 0x000011 psn 1000 pkey 0x8001 from qpn 0x000001 qkey 0x80010000 "
              "payload 0");
    EXPECT_EQ(line_of({.opcode = Opcode::XrcSendOnlyInvalidate},
                      {.xrceth = {.srq = {5}}, .invalidate = {6}}),
              "XRC_SEND_ONLY_INV qpn 0x000011 psn 1000 srq 0x000005 invalidate 0x00000006 "
              "payload 0");
    EXPECT_EQ(line_of({.opcode = Opcode::RcFlush}, {.feth = {.placement = 2, .selectivity = 1}}),
              "RC_FLUSH qpn 0x000011 psn 1000 placement 2 selectivity 1 va 0x0 rkey 0x00000000 "
              "length 0");
    EXPECT_EQ(
        line_of({.opcode = Opcode::Cnp, .migrated = true, .fecn = true, .becn = true}, {}, 16),
        "CNP qpn 0x000011 psn 1000 migrated fecn becn payload 16");
}

TEST(Describe, Answers) {
    EXPECT_EQ(line_of({.opcode = Opcode::RcAck},
                      {.aeth = {.syndrome = Syndrome::ack(kNoCredits), .msn = 3}}),
              "RC_ACK qpn 0x000011 psn 1000 ACK msn 3");
    EXPECT_EQ(line_of({.opcode = Opcode::RcAtomicAck},
                      {.aeth = {.syndrome = Syndrome::ack(4)}, .atomic_ack = {.original = 255}}),
              "RC_ATOMIC_ACK qpn 0x000011 psn 1000 ACK credits 4 msn 0 original 0xff");
}

TEST(Describe, Syndromes) {
    EXPECT_EQ(to_string(Syndrome::rnr(12)), "RNR NAK, wait 0.64 ms");
    EXPECT_EQ(to_string(Syndrome::rnr(0)), "RNR NAK, wait 655.36 ms");
    EXPECT_EQ(to_string(Syndrome::nak(NakCode::SequenceError)), "NAK sequence error");
    EXPECT_EQ(to_string(Syndrome::nak(NakCode::InvalidRequest)), "NAK invalid request");
    EXPECT_EQ(to_string(Syndrome::nak(NakCode::RemoteAccess)), "NAK remote access error");
    EXPECT_EQ(to_string(Syndrome::nak(NakCode::RemoteOperational)), "NAK remote operational error");
    EXPECT_EQ(to_string(Syndrome::nak(NakCode::InvalidRdRequest)), "NAK invalid RD request");
    EXPECT_EQ(to_string(Syndrome{0x7f}), "NAK of unknown code");
    EXPECT_EQ(to_string(Syndrome{0x45}), "reserved syndrome 0x45");
}

}  // namespace
}  // namespace feroce::wire
