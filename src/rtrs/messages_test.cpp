// Every message against its bytes, every check against a message that breaks it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "rtrs/handshake.hpp"
#include "rtrs/immediate.hpp"
#include "rtrs/request_header.hpp"

namespace feroce::rtrs {
namespace {

constexpr Geometry kDefault{512, 126976, 4096};

std::vector<std::byte> bytes(std::initializer_list<int> values) {
    std::vector<std::byte> out;
    for (const int value : values) out.push_back(static_cast<std::byte>(value));
    return out;
}

template <class Message>
std::vector<std::byte> emitted(const Message& message) {
    std::vector<std::byte> out(Message::kSize);
    message.emit(std::span<std::byte, Message::kSize>(out));
    return out;
}

Uuid uuid_of(int first) {
    Uuid uuid;
    for (int i = 0; i < 16; ++i) uuid.bytes[i] = static_cast<std::byte>(first + i);
    return uuid;
}

ConnectRequest some_request() {
    ConnectRequest request;
    request.connection = 1;
    request.connection_count = 3;
    request.reconnects = 0x0102;
    request.path = uuid_of(0x10);
    request.session = uuid_of(0x40);
    request.may_create = true;
    return request;
}

TEST(Immediate, HasTheWorkedValues) {
    EXPECT_EQ((RequestPlace{5, 4096 + 32}.immediate(kDefault).raw()), 0x00281020u);
    EXPECT_EQ((Response{5, 0, false}.immediate().raw()), 0x10000005u);
    EXPECT_EQ((Response{5, 0, true}.immediate().raw()), 0x20000005u);
    EXPECT_EQ((Response{5, EIO, false}.immediate().raw()), 0x10280005u);
    EXPECT_EQ(kHeartbeat.raw(), 0x80000000u);
    EXPECT_EQ(kHeartbeatAck.raw(), 0x90000000u);
}

TEST(Immediate, SplitsByTheQueueDepth) {
    for (const auto& [depth, bits] : {std::pair{512, 19u}, {128, 21u}, {1024, 18u}, {65535, 12u}})
        EXPECT_EQ((Geometry{static_cast<std::uint16_t>(depth), 1, 1}.offset_bits()), bits);
    for (const std::uint16_t chunk : {0, 1, 511})
        for (const std::uint32_t offset : {0u, 4u, 131071u}) {
            const RequestPlace place{chunk, offset};
            const auto back = RequestPlace::parse(kDefault, place.immediate(kDefault).payload);
            ASSERT_TRUE(back);
            EXPECT_EQ(*back, place);
        }
}

TEST(Immediate, RefusesWhatTheSessionDoesNotHave) {
    const Geometry odd{500, 126976, 4096};
    EXPECT_TRUE(RequestPlace::parse(odd, 499u << 19));
    EXPECT_FALSE(RequestPlace::parse(odd, 500u << 19));
    EXPECT_FALSE(RequestPlace::parse(odd, 131072));
    EXPECT_FALSE(Immediate::parse(0x30000000));
    EXPECT_FALSE(Immediate::parse(0xa0000000));
    EXPECT_TRUE(Response::parse(odd, {ImmediateType::Response, 499}));
    EXPECT_FALSE(Response::parse(odd, {ImmediateType::Response, 500}));
    EXPECT_FALSE(Response::parse(odd, kHeartbeat));
}

TEST(Immediate, AnErrnoThatDoesNotFitStaysAnError) {
    EXPECT_EQ((Response{1, 512, false}.immediate().raw()),
              (Response{1, EIO, false}.immediate().raw()));
    EXPECT_EQ(Response::parse(kDefault, Response{1, 511, false}.immediate())->error, 511);
    EXPECT_EQ(Response::parse(kDefault, Response{1, -EIO, false}.immediate())->error, EIO);
}

TEST(Geometry, MustFitIntoTheImmediate) {
    EXPECT_TRUE(kDefault.check());
    EXPECT_TRUE((Geometry{2048, 126976, 4096}.check()));
    EXPECT_FALSE((Geometry{2049, 126976, 4096}.check()));
    EXPECT_FALSE((Geometry{0, 1, 1}.check()));
    EXPECT_FALSE((Geometry{512, 0, 4096}.check()));
    EXPECT_FALSE((Geometry{1, 0xffffffff, 0xffffffff}.check()));
}

TEST(ConnectRequest, HasTheKernelsLayout) {
    const auto out = emitted(some_request());
    auto expected = bytes({0, 0, 0xbd, 0x1b, 0, 2, 1, 0, 3, 0, 2, 1});
    for (int i = 0; i < 16; ++i) expected.push_back(static_cast<std::byte>(0x10 + i));
    for (int i = 0; i < 16; ++i) expected.push_back(static_cast<std::byte>(0x40 + i));
    expected.push_back(std::byte{1});
    expected.resize(56);
    EXPECT_EQ(out, expected);
    EXPECT_EQ(*ConnectRequest::parse(out), some_request());
}

TEST(ConnectRequest, AnnouncesTheExtensionInReservedBytes) {
    ConnectRequest request = some_request();
    request.extension = kExtensionLevel;
    const auto out = emitted(request);
    const auto plain = emitted(some_request());
    EXPECT_TRUE(std::equal(out.begin(), out.begin() + 45, plain.begin()));
    EXPECT_EQ(*ConnectRequest::parse(out), request);
}

TEST(ConnectRequest, MayBePaddedButNotCut) {
    auto out = emitted(some_request());
    out.resize(92);
    EXPECT_TRUE(ConnectRequest::parse(out));
    EXPECT_EQ(ConnectRequest::parse(std::span(out).first(55)).error().code, ECONNRESET);
}

TEST(ConnectRequest, ChecksMagicVersionAndNumbers) {
    const auto good = emitted(some_request());
    const auto breaks = [&](std::size_t at, int value) {
        auto bad = good;
        bad[at] = static_cast<std::byte>(value);
        return !ConnectRequest::parse(bad).has_value();
    };
    EXPECT_TRUE(breaks(2, 0));
    EXPECT_TRUE(breaks(5, 3));
    EXPECT_FALSE(breaks(4, 7));      // The minor version is not checked.
    EXPECT_TRUE(breaks(6, 3));       // Connection 3 of 3.
    EXPECT_TRUE(breaks(9, 0x10));    // 4099 connections.
    EXPECT_TRUE(breaks(8, 0));       // Connection 1 of none.
    EXPECT_FALSE(breaks(44, 0xff));  // Unknown bits beside may_create.
}

TEST(ConnectResponse, HasTheKernelsLayout) {
    ConnectResponse accept;
    accept.geometry = kDefault;
    accept.new_keys = true;
    auto expected = bytes({0xbd, 0x1b, 0, 2, 0, 0, 0, 2, 0, 0xf0, 1, 0, 0, 0x10, 0, 0, 2, 0, 0, 0});
    expected.resize(56);
    EXPECT_EQ(emitted(accept), expected);
    EXPECT_EQ(*ConnectResponse::parse(expected), accept);

    ConnectResponse reject;
    reject.error = ECONNRESET;
    expected = bytes({0xbd, 0x1b, 0, 2, 0x98, 0xff});
    expected.resize(56);
    EXPECT_EQ(emitted(reject), expected);
    EXPECT_EQ(*ConnectResponse::parse(expected), reject);
    expected[6] = std::byte{9};  // Found by fuzzing: a depth in a rejection.
    EXPECT_EQ(*ConnectResponse::parse(expected), reject);
}

TEST(ConnectResponse, AnnouncesTheExtensionAndItsEpoch) {
    ConnectResponse accept;
    accept.geometry = kDefault;
    accept.extension = kExtensionLevel;
    accept.epoch = 0x1122334455667788;
    EXPECT_EQ(*ConnectResponse::parse(emitted(accept)), accept);
}

TEST(ConnectResponse, RefusesAnImpossibleGeometry) {
    ConnectResponse accept;
    accept.geometry = {4096, 126976, 4096};
    EXPECT_FALSE(ConnectResponse::parse(emitted(accept)));
    accept.geometry = kDefault;
    auto out = emitted(accept);
    EXPECT_FALSE(ConnectResponse::parse(std::span(out).first(55)));
    out[0] = std::byte{0};
    EXPECT_FALSE(ConnectResponse::parse(out));
}

TEST(Info, RequestCarriesTheName) {
    InfoRequest request{"client-1"};
    auto out = emitted(request);
    ASSERT_EQ(out.size(), 272u);
    EXPECT_EQ(InfoRequest::parse(out)->name, "client-1");
    out[2] = std::byte{'/'};
    EXPECT_FALSE(InfoRequest::parse(out));
    std::fill(out.begin() + 2, out.end(), std::byte{'x'});
    EXPECT_FALSE(InfoRequest::parse(out));
    out[256] = std::byte{0};
    EXPECT_EQ(InfoRequest::parse(out)->name, std::string(254, 'x'));
    EXPECT_FALSE(InfoRequest::parse(std::span(out).first(271)));
    out[0] = std::byte{1};
    EXPECT_FALSE(InfoRequest::parse(out));
}

std::size_t chunks_of(const Geometry& geometry, std::vector<ChunkRun> runs) {
    const auto chunks = InfoResponse{std::move(runs)}.chunks(geometry);
    return chunks ? chunks->size() : 0;
}

TEST(Info, ResponseIsParsedAsEmitted) {
    const InfoResponse response{{{0x1000, 7, 131072}, {0x90000, 8, 131072}}};
    std::vector<std::byte> out(response.size());
    response.emit(out);
    EXPECT_EQ(out[0], std::byte{1});
    EXPECT_EQ(out[2], std::byte{2});
    EXPECT_EQ(InfoResponse::parse(out)->runs, response.runs);
    EXPECT_FALSE(InfoResponse::parse(std::span(out).first(out.size() - 1)));
}

TEST(Info, DescriptorsMustCoverTheChunksExactly) {
    const Geometry four{4, 4096, 4096};
    const auto runs = InfoResponse{{{0x10000, 7, 16384}, {0x90000, 8, 16384}}}.chunks(four);
    ASSERT_TRUE(runs);
    EXPECT_EQ((*runs)[1].address, 0x10000u + 8192);
    EXPECT_EQ((*runs)[2].address, 0x90000u);
    EXPECT_EQ((*runs)[3].key, 8u);
    EXPECT_EQ(chunks_of(four, {{0, 1, 32768}}), 4u);
    EXPECT_EQ(chunks_of(four, {}), 0u);
    EXPECT_EQ(chunks_of(four, {{0, 1, 24576}}), 0u);
    EXPECT_EQ(chunks_of(four, {{0, 1, 40960}}), 0u);
    EXPECT_EQ(chunks_of(four, {{0, 1, 32769}}), 0u);
    EXPECT_EQ(chunks_of(four, {{0, 1, 0}, {0, 1, 32768}}), 0u);
    EXPECT_EQ(chunks_of(four, {{0, 1, 8192}, {0, 1, 8192}, {0, 1, 16384}}), 0u);  // 4 % 3.
    EXPECT_EQ(chunks_of(four, {{UINT64_MAX - 100, 1, 32768}}), 0u);
}

TEST(Fence, GoesThereAndBack) {
    for (const bool drain : {false, true}) {
        const Fence fence{uuid_of(3), 0x1234, drain};
        std::vector<std::byte> out(Fence::kSize);
        fence.emit(std::span<std::byte, Fence::kSize>(out), MessageType::FenceRequest);
        EXPECT_EQ(*Fence::parse(out, MessageType::FenceRequest), fence);
        EXPECT_FALSE(Fence::parse(out, MessageType::FenceResponse));
        EXPECT_FALSE(Fence::parse(std::span(out).first(23), MessageType::FenceRequest));
    }
}

TEST(Fence, IncarnationsWrapAround) {
    EXPECT_TRUE(newer_incarnation(2, 1));
    EXPECT_FALSE(newer_incarnation(1, 1));
    EXPECT_FALSE(newer_incarnation(1, 2));
    EXPECT_TRUE(newer_incarnation(0, 0xffff));
}

TEST(KeyResponse, HasTheKernelsLayout) {
    const auto out = bytes({4, 0, 5, 0, 0x78, 0x56, 0x34, 0x12});
    EXPECT_EQ(emitted(KeyResponse{5, 0x12345678}), out);
    EXPECT_EQ(*KeyResponse::parse(out), (KeyResponse{5, 0x12345678}));
    EXPECT_FALSE(KeyResponse::parse(std::span(out).first(7)));
    EXPECT_FALSE(KeyResponse::parse(bytes({3, 0, 5, 0, 0, 0, 0, 0})));
}

RequestHeader read_of(std::uint32_t length) {
    RequestHeader header;
    header.direction = Direction::Read;
    header.message_size = 32;
    header.need_invalidate = true;
    header.segment_count = 1;
    header.segments[0] = {0x1122334455667788, 0x99aabbcc, length};
    return header;
}

std::vector<std::byte> emitted_header(const RequestHeader& header) {
    std::vector<std::byte> out(header.size());
    header.emit(out);
    return out;
}

TEST(RequestHeader, HasTheKernelsLayout) {
    RequestHeader write;
    write.message_size = 32;
    EXPECT_EQ(emitted_header(write), bytes({2, 0, 32, 0}));
    const auto read = bytes({3,    0,    32,   0,    1,    0,    1,    0,    0x88, 0x77, 0x66, 0x55,
                             0x44, 0x33, 0x22, 0x11, 0xcc, 0xbb, 0xaa, 0x99, 0,    0x10, 0,    0});
    EXPECT_EQ(emitted_header(read_of(4096)), read);
    EXPECT_EQ(*RequestHeader::parse(read, 4096 + 32, false), read_of(4096));
}

TEST(RequestHeader, RefusesWhatTheKernelOnceTook) {
    const auto read = emitted_header(read_of(4096));
    EXPECT_FALSE(RequestHeader::parse(read, 31, false));         // usr_len beyond the header.
    EXPECT_FALSE(RequestHeader::parse(read, 4096 + 31, false));  // More than its data area.
    EXPECT_FALSE(RequestHeader::parse(std::span(read).first(23), 4128, false));
    EXPECT_FALSE(RequestHeader::parse(std::span(read).first(7), 4128, false));
    EXPECT_FALSE(RequestHeader::parse(std::span(read).first(3), 4128, false));
    EXPECT_FALSE(RequestHeader::parse(bytes({4, 0, 0, 0}), 100, false));
    RequestHeader two = read_of(1024);
    two.segment_count = 2;
    two.segments[1] = {};
    EXPECT_FALSE(RequestHeader::parse(emitted_header(two), 4128, false));
    two.sequence = 9;
    EXPECT_TRUE(RequestHeader::parse(emitted_header(two), 4128, true));
    auto many = emitted_header(two);
    many[6] = std::byte{17};
    many.resize(1000);
    EXPECT_FALSE(RequestHeader::parse(many, 4128, true));
}

// No more is read of a chunk than its header has, and each byte once.
TEST(RequestHeader, IsCopiedWithoutWhatLiesBehindIt) {
    for (const std::uint16_t segments : {0, 1, 2, 16}) {
        RequestHeader read = read_of(64);
        read.need_invalidate = false;
        read.sequence = 9;
        read.segment_count = segments;
        for (std::uint16_t i = 0; i < segments; ++i) read.segments[i] = {i, i + 1u, 64};
        std::vector<std::byte> chunk = emitted_header(read);
        const std::size_t usual = 32;
        chunk.resize(1000, std::byte{0xa5});
        std::array<std::byte, RequestHeader::kMaxSize> room{};
        const ByteView copy = RequestHeader::copy(chunk, room);
        EXPECT_EQ(copy.size(), std::max(usual, read.size())) << segments;
        const auto parsed = RequestHeader::parse(copy, 16 * 64 + 32, true);
        ASSERT_TRUE(parsed) << segments;
        EXPECT_EQ(*parsed, read);
        RequestHeader kept = read_of(1);
        parsed->copy_to(kept);
        EXPECT_EQ(kept, read);
        // At the end of its chunk, and cut short there.
        chunk.resize(read.size());
        EXPECT_TRUE(RequestHeader::parse(RequestHeader::copy(chunk, room), 16 * 64 + 32, true));
        chunk.pop_back();
        EXPECT_FALSE(RequestHeader::parse(RequestHeader::copy(chunk, room), 16 * 64 + 32, true));
    }
    // One that lies about how many it has.
    std::vector<std::byte> many = emitted_header(read_of(64));
    many.resize(1000);
    store_le16(std::span(many).subspan<6, 2>(), 0xffff);
    std::array<std::byte, RequestHeader::kMaxSize> room{};
    EXPECT_EQ(RequestHeader::copy(many, room).size(), RequestHeader::kMaxSize);
    EXPECT_FALSE(RequestHeader::parse(room, 4128, true));
}

TEST(RequestHeader, SegmentsThatOverflowTheSumAreRefused) {
    RequestHeader two = read_of(0xffffffff);
    two.segment_count = 2;
    two.segments[1] = {0, 0, 2};
    two.sequence = 1;
    EXPECT_FALSE(RequestHeader::parse(emitted_header(two), 4128, true));
}

TEST(RequestHeader, CarriesASequenceBetweenOurPeers) {
    RequestHeader write;
    write.message_size = 3;
    write.sequence = 0x0102030405060708;
    const auto out = emitted_header(write);
    EXPECT_EQ(out.size(), 12u);
    EXPECT_EQ(*RequestHeader::parse(out, 3, true), write);
    EXPECT_FALSE(RequestHeader::parse(std::span(out).first(11), 3, true));
    EXPECT_FALSE(RequestHeader::parse(bytes({2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}), 3, true));
}

TEST(Overdue, NamesOneRequest) {
    std::array<std::byte, Overdue::kSize> bytes;
    const Overdue overdue{7, 0x1122334455667788};
    overdue.emit(bytes);
    EXPECT_EQ(*Overdue::parse(bytes), overdue);
    EXPECT_FALSE(Overdue::parse(ByteView(bytes).first(Overdue::kSize - 1)));
    EXPECT_FALSE(Fence::parse(bytes, MessageType::FenceResponse));
    EXPECT_EQ(note_text(std::as_bytes(std::span("a\x1b!", 3))), "a?!");
}

TEST(Refusal, SaysWhyInWordsThatCanBeShown) {
    std::array<std::byte, 300> bytes;
    const std::size_t size = Refusal{EPERM, "no"}.emit(bytes);
    EXPECT_EQ(size, 6u);
    const auto parsed = Refusal::parse(ByteView(bytes).first(size));
    ASSERT_TRUE(parsed);
    EXPECT_EQ(parsed->error, EPERM);
    EXPECT_EQ(parsed->text, "no");
    EXPECT_EQ((Refusal{EPERM, std::string(1000, 'x')}.emit(ByteSpan(bytes).first(20))), 20u);
    EXPECT_EQ((Refusal{EPERM, std::string(1000, 'x')}.emit(bytes)), 244u);
    ASSERT_EQ((Refusal{EPERM, "a\x1b[2Jb\n"}.emit(bytes)), 11u);
    EXPECT_EQ(Refusal::parse(ByteView(bytes).first(11))->text, "a?[2Jb?");
    ASSERT_EQ((Refusal{0, ""}.emit(bytes)), 4u);
    EXPECT_FALSE(Refusal::parse(ByteView(bytes).first(4)));
    EXPECT_FALSE(Refusal::parse(ByteView(bytes).first(3)));
    Goodbye::emit(std::span(bytes).first<Goodbye::kSize>());
    EXPECT_TRUE(Goodbye::is(ByteView(bytes).first(8)));
    EXPECT_FALSE(Goodbye::is(ByteView(bytes).first(7)));
}

}  // namespace
}  // namespace feroce::rtrs
