// Every message against layouts written out by hand from IBTA's tables: each field is set alone, to
// all ones, and must show in exactly its bits. What parse and emit share could hide a wrong table.
#include "wire/cm_messages.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "base/random.hpp"
#include "wire/bth.hpp"
#include "wire/cm_path_messages.hpp"
#include "wire/cma.hpp"
#include "wire/headers.hpp"

namespace feroce::wire {
namespace {

using MessageBytes = std::array<std::byte, kCmMessageSize>;

template <class Message>
MessageBytes emitted(const Message& message) {
    MessageBytes bytes;
    bytes.fill(std::byte{0xa5});  // emit must write every bit.
    message.emit(bytes);
    return bytes;
}

// Bits [first, first + width) set, counted from the most significant bit of byte 0.
MessageBytes ones(std::size_t first, std::size_t width) {
    MessageBytes bytes{};
    for (std::size_t bit = first; bit < first + width; ++bit)
        bytes[bit / 8] |= std::byte{0x80} >> (bit % 8);
    return bytes;
}

template <class Message>
struct Field {
    const char* name;
    std::size_t byte, bit, width;  // `bit` 0 is the most significant one of `byte`.
    std::function<void(Message&)> set;
};

template <class T>
constexpr T kAll = static_cast<T>(~T{0});

Gid all_ones_gid() {
    Gid gid;
    gid.raw.fill(0xff);
    return gid;
}

// With every field zero the message is zero, and each field alone shows where it belongs.
template <class Message>
void check_layout(const Message& zero, const std::vector<Field<Message>>& fields) {
    EXPECT_EQ(emitted(zero), MessageBytes{});
    std::set<std::size_t> covered;
    for (const Field<Message>& field : fields) {
        SCOPED_TRACE(field.name);
        Message message = zero;
        field.set(message);
        const std::size_t first = field.byte * 8 + field.bit;
        EXPECT_EQ(emitted(message), ones(first, field.width));
        EXPECT_EQ(Message::parse(ones(first, field.width)), message);
        for (std::size_t bit = first; bit < first + field.width; ++bit)
            EXPECT_TRUE(covered.insert(bit).second) << "two fields share bit " << bit;
    }
}

template <class Message>
Field<Message> bytes_field(const char* name, std::size_t byte, std::size_t size,
                           std::function<void(Message&)> set) {
    return {name, byte, 0, size * 8, std::move(set)};
}

template <class Message>
void add_private(std::vector<Field<Message>>& fields, std::size_t at) {
    fields.push_back(bytes_field<Message>("private_data", at, kCmMessageSize - at, [](Message& m) {
        m.private_data.fill(std::byte{0xff});
    }));
}

template <class Message>
void add_ids(std::vector<Field<Message>>& fields) {
    fields.push_back({"local_id", 0, 0, 32, [](Message& m) { m.local_id.raw = kAll<uint32_t>; }});
    fields.push_back({"remote_id", 4, 0, 32, [](Message& m) { m.remote_id.raw = kAll<uint32_t>; }});
}

void add_req_path(std::vector<Field<CmReq>>& fields, std::size_t at, CmPath CmReq::*path) {
    using F = Field<CmReq>;
    const std::vector<F> parts{
        {"local_lid", 0, 0, 16, [=](CmReq& m) { (m.*path).local_lid = 0xffff; }},
        {"remote_lid", 2, 0, 16, [=](CmReq& m) { (m.*path).remote_lid = 0xffff; }},
        {"local_gid", 4, 0, 128, [=](CmReq& m) { (m.*path).local_gid = all_ones_gid(); }},
        {"remote_gid", 20, 0, 128, [=](CmReq& m) { (m.*path).remote_gid = all_ones_gid(); }},
        {"flow_label", 36, 0, 20, [=](CmReq& m) { (m.*path).flow_label = 0xf'ffff; }},
        {"packet_rate", 39, 2, 6, [=](CmReq& m) { (m.*path).packet_rate = 0x3f; }},
        {"traffic_class", 40, 0, 8, [=](CmReq& m) { (m.*path).traffic_class = 0xff; }},
        {"hop_limit", 41, 0, 8, [=](CmReq& m) { (m.*path).hop_limit = 0xff; }},
        {"service_level", 42, 0, 4, [=](CmReq& m) { (m.*path).service_level = 0xf; }},
        {"subnet_local", 42, 4, 1, [=](CmReq& m) { (m.*path).subnet_local = true; }},
        {"ack_timeout", 43, 0, 5, [=](CmReq& m) { (m.*path).local_ack_timeout = 0x1f; }}};
    for (F part : parts) {
        part.byte += at;
        fields.push_back(part);
    }
}

TEST(CmMessages, ReqLayout) {
    std::vector<Field<CmReq>> fields{
        {"local_id", 0, 0, 32, [](CmReq& m) { m.local_id.raw = kAll<uint32_t>; }},
        {"service_id", 8, 0, 64, [](CmReq& m) { m.service_id.raw = kAll<uint64_t>; }},
        {"ca_guid", 16, 0, 64, [](CmReq& m) { m.local_ca_guid = kAll<uint64_t>; }},
        {"qkey", 28, 0, 32, [](CmReq& m) { m.local_qkey.raw = kAll<uint32_t>; }},
        {"qpn", 32, 0, 24, [](CmReq& m) { m.local_qpn.raw = 0xff'ffff; }},
        {"responder", 35, 0, 8, [](CmReq& m) { m.responder_resources = 0xff; }},
        {"local_eecn", 36, 0, 24, [](CmReq& m) { m.local_eecn = 0xff'ffff; }},
        {"initiator", 39, 0, 8, [](CmReq& m) { m.initiator_depth = 0xff; }},
        {"remote_eecn", 40, 0, 24, [](CmReq& m) { m.remote_eecn = 0xff'ffff; }},
        {"remote_timeout", 43, 0, 5, [](CmReq& m) { m.remote_response_timeout = 0x1f; }},
        {"transport", 43, 5, 2, [](CmReq& m) { m.transport = TransportType::Extended; }},
        {"flow_control", 43, 7, 1, [](CmReq& m) { m.end_to_end_flow_control = true; }},
        {"psn", 44, 0, 24, [](CmReq& m) { m.starting_psn = Psn(0xff'ffff); }},
        {"local_timeout", 47, 0, 5, [](CmReq& m) { m.local_response_timeout = 0x1f; }},
        {"retry", 47, 5, 3, [](CmReq& m) { m.retry_count = 7; }},
        {"pkey", 48, 0, 16, [](CmReq& m) { m.pkey.raw = 0xffff; }},
        {"mtu", 50, 0, 4, [](CmReq& m) { m.path_mtu = 0xf; }},
        {"rdc", 50, 4, 1, [](CmReq& m) { m.rdc_exists = true; }},
        {"rnr", 50, 5, 3, [](CmReq& m) { m.rnr_retry_count = 7; }},
        {"cm_retries", 51, 0, 4, [](CmReq& m) { m.max_cm_retries = 0xf; }},
        {"srq", 51, 4, 1, [](CmReq& m) { m.srq = true; }},
        {"extended", 51, 5, 3, [](CmReq& m) { m.extended_transport = 7; }}};
    add_req_path(fields, 52, &CmReq::primary);
    add_req_path(fields, 96, &CmReq::alternate);
    add_private(fields, 140);
    check_layout(CmReq{.pkey = {0}, .primary = CmPath::none()}, fields);
}

TEST(CmMessages, MraLayout) {
    std::vector<Field<CmMra>> fields{
        {"answered", 8, 0, 2, [](CmMra& m) { m.answered = static_cast<CmAnswered>(3); }},
        {"service_timeout", 9, 0, 5, [](CmMra& m) { m.service_timeout = 0x1f; }}};
    add_ids(fields);
    add_private(fields, 10);
    check_layout({}, fields);
}

TEST(CmMessages, RejLayout) {
    std::vector<Field<CmRej>> fields{
        {"answered", 8, 0, 2, [](CmRej& m) { m.answered = static_cast<CmAnswered>(3); }},
        {"info_size", 9, 0, 7, [](CmRej& m) { m.additional_info_size = 0x7f; }},
        {"reason", 10, 0, 16, [](CmRej& m) { m.reason = static_cast<RejectReason>(0xffff); }},
        {"info", 12, 0, 576, [](CmRej& m) { m.additional_info.fill(std::byte{0xff}); }}};
    add_ids(fields);
    add_private(fields, 84);
    check_layout({}, fields);
}

TEST(CmMessages, RepLayout) {
    std::vector<Field<CmRep>> fields{
        {"qkey", 8, 0, 32, [](CmRep& m) { m.local_qkey.raw = kAll<uint32_t>; }},
        {"qpn", 12, 0, 24, [](CmRep& m) { m.local_qpn.raw = 0xff'ffff; }},
        {"eecn", 16, 0, 24, [](CmRep& m) { m.local_eecn = 0xff'ffff; }},
        {"psn", 20, 0, 24, [](CmRep& m) { m.starting_psn = Psn(0xff'ffff); }},
        {"responder", 24, 0, 8, [](CmRep& m) { m.responder_resources = 0xff; }},
        {"initiator", 25, 0, 8, [](CmRep& m) { m.initiator_depth = 0xff; }},
        {"ack_delay", 26, 0, 5, [](CmRep& m) { m.target_ack_delay = 0x1f; }},
        {"failover", 26, 5, 2, [](CmRep& m) { m.failover_accepted = 3; }},
        {"flow_control", 26, 7, 1, [](CmRep& m) { m.end_to_end_flow_control = true; }},
        {"rnr", 27, 0, 3, [](CmRep& m) { m.rnr_retry_count = 7; }},
        {"srq", 27, 3, 1, [](CmRep& m) { m.srq = true; }},
        {"ca_guid", 28, 0, 64, [](CmRep& m) { m.local_ca_guid = kAll<uint64_t>; }}};
    add_ids(fields);
    add_private(fields, 36);
    check_layout({}, fields);
}

TEST(CmMessages, RtuDreqDrepAliveLayout) {
    std::vector<Field<CmRtu>> rtu;
    add_ids(rtu);
    add_private(rtu, 8);
    check_layout({}, rtu);
    std::vector<Field<CmDreq>> dreq{
        {"remote_qpn", 8, 0, 24, [](CmDreq& m) { m.remote_qpn.raw = 0xff'ffff; }}};
    add_ids(dreq);
    add_private(dreq, 12);
    check_layout({}, dreq);
    std::vector<Field<CmDrep>> drep;
    add_ids(drep);
    add_private(drep, 8);
    check_layout({}, drep);
    std::vector<Field<CmAlive>> alive{{"answer", 8, 0, 1, [](CmAlive& m) { m.answer = true; }}};
    add_ids(alive);
    add_private(alive, 9);
    check_layout({}, alive);
}

TEST(CmMessages, LapLayout) {
    std::vector<Field<CmLap>> fields{
        {"remote_qpn", 12, 0, 24, [](CmLap& m) { m.remote_qpn.raw = 0xff'ffff; }},
        {"timeout", 15, 0, 5, [](CmLap& m) { m.remote_response_timeout = 0x1f; }},
        {"local_lid", 20, 0, 16, [](CmLap& m) { m.alternate.local_lid = 0xffff; }},
        {"remote_lid", 22, 0, 16, [](CmLap& m) { m.alternate.remote_lid = 0xffff; }},
        {"local_gid", 24, 0, 128, [](CmLap& m) { m.alternate.local_gid = all_ones_gid(); }},
        {"remote_gid", 40, 0, 128, [](CmLap& m) { m.alternate.remote_gid = all_ones_gid(); }},
        {"flow_label", 56, 0, 20, [](CmLap& m) { m.alternate.flow_label = 0xf'ffff; }},
        {"traffic_class", 59, 0, 8, [](CmLap& m) { m.alternate.traffic_class = 0xff; }},
        {"hop_limit", 60, 0, 8, [](CmLap& m) { m.alternate.hop_limit = 0xff; }},
        {"packet_rate", 61, 2, 6, [](CmLap& m) { m.alternate.packet_rate = 0x3f; }},
        {"service_level", 62, 0, 4, [](CmLap& m) { m.alternate.service_level = 0xf; }},
        {"subnet_local", 62, 4, 1, [](CmLap& m) { m.alternate.subnet_local = true; }},
        {"ack_timeout", 63, 0, 5, [](CmLap& m) { m.alternate.local_ack_timeout = 0x1f; }}};
    add_ids(fields);
    add_private(fields, 64);
    check_layout({}, fields);
}

TEST(CmMessages, AprLayout) {
    std::vector<Field<CmApr>> fields{
        {"info_size", 8, 0, 8, [](CmApr& m) { m.additional_info_size = 0xff; }},
        {"status", 9, 0, 8, [](CmApr& m) { m.status = static_cast<AprStatus>(0xff); }},
        {"info", 12, 0, 576, [](CmApr& m) { m.additional_info.fill(std::byte{0xff}); }}};
    add_ids(fields);
    add_private(fields, 84);
    check_layout({}, fields);
}

TEST(CmMessages, SidrLayouts) {
    std::vector<Field<CmSidrReq>> req{
        {"request_id", 0, 0, 32, [](CmSidrReq& m) { m.request_id.raw = kAll<uint32_t>; }},
        {"pkey", 4, 0, 16, [](CmSidrReq& m) { m.pkey.raw = 0xffff; }},
        {"service_id", 8, 0, 64, [](CmSidrReq& m) { m.service_id.raw = kAll<uint64_t>; }}};
    add_private(req, 16);
    check_layout(CmSidrReq{.pkey = {0}}, req);
    std::vector<Field<CmSidrRep>> rep{
        {"request_id", 0, 0, 32, [](CmSidrRep& m) { m.request_id.raw = kAll<uint32_t>; }},
        {"status", 4, 0, 8, [](CmSidrRep& m) { m.status = static_cast<SidrStatus>(0xff); }},
        {"info_size", 5, 0, 8, [](CmSidrRep& m) { m.additional_info_size = 0xff; }},
        {"qpn", 8, 0, 24, [](CmSidrRep& m) { m.qpn.raw = 0xff'ffff; }},
        {"service_id", 12, 0, 64, [](CmSidrRep& m) { m.service_id.raw = kAll<uint64_t>; }},
        {"qkey", 20, 0, 32, [](CmSidrRep& m) { m.qkey.raw = kAll<uint32_t>; }},
        {"info", 24, 0, 576, [](CmSidrRep& m) { m.additional_info.fill(std::byte{0xff}); }}};
    add_private(rep, 96);
    check_layout({}, rep);
}

TEST(CmMessages, ValuesWiderThanTheirFieldDoNotSpill) {
    CmReq req{.pkey = {0}, .primary = CmPath::none()};
    req.path_mtu = 0xf3;
    EXPECT_EQ(CmReq::parse(emitted(req)).path_mtu, 3);
    EXPECT_FALSE(CmReq::parse(emitted(req)).rdc_exists);
}

template <class Message>
void check_any_bytes(Prng& prng) {
    MessageBytes bytes;
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(prng.below(256));
    const Message message = Message::parse(bytes);
    EXPECT_EQ(Message::parse(emitted(message)), message);
}

TEST(CmMessages, AnyBytesParseAndTheirValuesSurvive) {
    Prng prng(1);
    for (int i = 0; i < 1000; ++i) {
        check_any_bytes<CmReq>(prng);
        check_any_bytes<CmMra>(prng);
        check_any_bytes<CmRej>(prng);
        check_any_bytes<CmRep>(prng);
        check_any_bytes<CmRtu>(prng);
        check_any_bytes<CmDreq>(prng);
        check_any_bytes<CmDrep>(prng);
        check_any_bytes<CmAlive>(prng);
        check_any_bytes<CmLap>(prng);
        check_any_bytes<CmApr>(prng);
        check_any_bytes<CmSidrReq>(prng);
        check_any_bytes<CmSidrRep>(prng);
    }
}

TEST(Mad, OnlyConnectionManagerSendsOfTheRightSizeAndVersionAreTaken) {
    const MadBytes good = make_cm_mad(0x1122334455667788, CmRtu{.local_id = {1}});
    const auto parsed = parse_cm_mad(good);
    ASSERT_TRUE(parsed.has_value());
    EXPECT_EQ(parsed->attribute, CmAttribute::Rtu);
    EXPECT_EQ(parsed->transaction, 0x1122334455667788u);
    EXPECT_EQ(CmRtu::parse(parsed->message).local_id.raw, 1u);
    EXPECT_FALSE(parse_cm_mad(ByteView(good).first(255)));
    EXPECT_FALSE(parse_cm_mad({}));
    for (const std::size_t byte : {0, 1, 2, 3, 16}) {  // Versions, class, method, attribute.
        MadBytes bad = good;
        bad[byte] ^= std::byte{0x40};
        EXPECT_FALSE(parse_cm_mad(bad)) << byte;
    }
    MadBytes unknown = good;
    unknown[17] = std::byte{0x1b};
    EXPECT_FALSE(parse_cm_mad(unknown));
    unknown[17] = std::byte{0x0f};
    EXPECT_FALSE(parse_cm_mad(unknown));
}

TEST(Mad, HeaderLayout) {
    const MadHeader header{.status = 0x1234,
                           .class_specific = 0x5678,
                           .transaction = 0x1122334455667788,
                           .attribute = 0x10,
                           .modifier = 0x99aabbcc};
    std::array<std::byte, MadHeader::kSize> bytes;
    header.emit(bytes);
    const std::array<unsigned, MadHeader::kSize> expected{
        1,    7,    2,    3,    0x12, 0x34, 0x56, 0x78, 0x11, 0x22, 0x33, 0x44,
        0x55, 0x66, 0x77, 0x88, 0,    0x10, 0,    0,    0x99, 0xaa, 0xbb, 0xcc};
    for (std::size_t i = 0; i < expected.size(); ++i)
        EXPECT_EQ(byte_at(bytes, i), expected[i]) << i;
    EXPECT_EQ(MadHeader::parse(bytes), header);
}

TEST(Cma, ServiceIdsAreMadeOfPortSpaceAndPort) {
    EXPECT_EQ(make_service_id(PortSpace::Tcp, 0x1234).raw, 0x01061234u);
    EXPECT_EQ(make_service_id(PortSpace::Udp, 1).raw, 0x01110001u);
    EXPECT_EQ(make_service_id(PortSpace::IpOverIb, 0xffff).raw, 0x0002ffffu);
    EXPECT_EQ(port_space_of({0x01111234}), PortSpace::Udp);
    EXPECT_EQ(port_of({0x01111234}), 0x1234);
    EXPECT_EQ(port_space_of({0x1'0106'1234}), std::nullopt);
    EXPECT_EQ(port_space_of({0x1234}), std::nullopt);
}

TEST(Cma, HeaderCarriesBothFamilies) {
    const Gid v4 = Gid::from_v4(0xc0000201), other = Gid::from_v4(0xc0000202);
    const CmaHeader header = CmaHeader::make(v4, other, 77);
    EXPECT_EQ(header.ip_version, 4);
    EXPECT_EQ(header.source(), v4);
    EXPECT_EQ(header.destination(), other);
    EXPECT_EQ(header.source_field.raw[11], 0);  // Not a mapped address on the wire.
    std::array<std::byte, CmaHeader::kSize> bytes;
    header.emit(bytes);
    EXPECT_EQ(byte_at(bytes, 1), 0x40u);
    EXPECT_EQ(CmaHeader::parse(bytes), header);
    const CmaHeader v6 = CmaHeader::make(all_ones_gid(), Gid{}, 1);
    EXPECT_EQ(v6.ip_version, 6);
    EXPECT_EQ(v6.source(), all_ones_gid());
    EXPECT_FALSE((CmaHeader{.version = 1}.valid()));
    EXPECT_FALSE((CmaHeader{.ip_version = 5}.valid()));
}

TEST(Cma, LoopbackIsNamedByTheHeaderOfOurOwnMachineOnly) {
    const Gid own = Gid::from_v4(0x0a00'0001), peer = Gid::from_v4(0x0a00'0002);
    const Gid loopback = Gid::from_v4(0x7f00'0001);
    const auto named = [&](const Gid& source, const Gid& asked) {
        CmReq req;
        CmaHeader::make(own, asked, 7).emit(std::span(req.private_data).first<CmaHeader::kSize>());
        const MadBytes mad = make_cm_mad(1, req);
        CmSidrReq sidr;
        CmaHeader::make(own, asked, 7).emit(std::span(sidr.private_data).first<CmaHeader::kSize>());
        const MadBytes other = make_cm_mad(1, sidr);
        EXPECT_EQ(named_address(source, own, *parse_cm_mad(mad)),
                  named_address(source, own, *parse_cm_mad(other)));
        return named_address(source, own, *parse_cm_mad(mad));
    };
    EXPECT_EQ(named(own, loopback), loopback);
    EXPECT_EQ(named(own, peer), own) << "only loopback is another name of the same machine";
    EXPECT_EQ(named(peer, loopback), own) << "a peer cannot reach who listens on loopback";
}

TEST(CmMessages, EveryReasonAndAttributeHasAText) {
    for (std::uint16_t reason = 1; reason <= 33; ++reason)
        EXPECT_STRNE(to_string(static_cast<RejectReason>(reason)), "?") << reason;
    EXPECT_STREQ(to_string(static_cast<RejectReason>(0)), "?");
    EXPECT_STREQ(to_string(static_cast<RejectReason>(34)), "?");
    EXPECT_STREQ(to_string(RejectReason::ConsumerReject), "rejected by the consumer");
    EXPECT_STREQ(to_string(CmAttribute::SidrRep), "SIDR_REP");
}

std::vector<std::byte> packet_of(Qpn qpn, const MadBytes& mad) {
    std::vector<std::byte> packet(Bth::kSize + Deth::kSize);
    Bth bth;
    bth.destination = qpn;
    bth.emit(std::span(packet).first<Bth::kSize>());
    packet.insert(packet.end(), mad.begin(), mad.end());
    return packet;
}

TEST(SteeredSlot, IsThatOfTheReceiver) {
    const CommId mine{7u << kCommIdLowBits | 1}, theirs{9u << kCommIdLowBits | 2};
    const auto slot = [](const auto& message) {
        return steered_slot(packet_of(kGeneralServicesQpn, make_cm_mad(1, message)));
    };
    EXPECT_EQ(slot(CmReq{.local_id = mine}), 0);
    EXPECT_EQ(slot(CmRep{.local_id = mine, .remote_id = theirs}), 9);
    EXPECT_EQ(slot(CmRtu{.local_id = mine, .remote_id = theirs}), 9);
    EXPECT_EQ(slot(CmDreq{.local_id = mine, .remote_id = theirs}), 9);
    EXPECT_EQ(slot(CmAlive{.local_id = mine, .remote_id = theirs}), 9);
    EXPECT_EQ(slot(CmSidrReq{.request_id = mine}), 0);
    EXPECT_EQ(slot(CmSidrRep{.request_id = theirs}), 9);
}

TEST(SteeredSlot, IsInTheNumberOfAnyOtherQueuePair) {
    const MadBytes mad = make_cm_mad(1, CmDreq{.remote_id = {9u << kCommIdLowBits}});
    EXPECT_EQ(steered_slot(packet_of(qpn_of(5, 77), mad)), 5);
}

TEST(SteeredSlot, OfATornPacketIsNone) {
    const MadBytes mad = make_cm_mad(1, CmDreq{.remote_id = {9u << kCommIdLowBits}});
    const std::vector<std::byte> packet = packet_of(kGeneralServicesQpn, mad);
    constexpr std::size_t kRemoteIdEnd = 52;
    for (std::size_t size = 0; size < kRemoteIdEnd; ++size)
        EXPECT_EQ(steered_slot(ByteView(packet).first(size)), 0) << size;
    EXPECT_EQ(steered_slot(ByteView(packet).first(kRemoteIdEnd)), 9);
}

}  // namespace
}  // namespace feroce::wire
