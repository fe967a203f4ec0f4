#include "block/messages.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <vector>

namespace feroce::block {
namespace {

template <class Message>
std::vector<std::byte> bytes_of(const Message& message) {
    std::vector<std::byte> out(Message::kSize);
    message.emit(std::span<std::byte, Message::kSize>(out));
    return out;
}

std::vector<std::byte> bytes_of(const SessionInfo& info, MessageType type) {
    std::vector<std::byte> out(SessionInfo::kSize);
    info.emit(std::span<std::byte, SessionInfo::kSize>(out), type);
    return out;
}

TEST(BlockMessages, SessionInfo) {
    const auto bytes = bytes_of(SessionInfo{2}, MessageType::SessionInfo);
    EXPECT_EQ(bytes[0], std::byte{0});
    EXPECT_EQ(bytes[4], std::byte{2});
    EXPECT_EQ(SessionInfo::parse(bytes, MessageType::SessionInfo).value(), SessionInfo{2});
    EXPECT_FALSE(SessionInfo::parse(bytes, MessageType::SessionInfoResponse));
    EXPECT_FALSE(SessionInfo::parse(std::span(bytes).first(35), MessageType::SessionInfo));
    EXPECT_FALSE(SessionInfo::parse(bytes_of(SessionInfo{0}, MessageType::SessionInfo),
                                    MessageType::SessionInfo));
    EXPECT_FALSE(message_type(std::span(bytes).first(3)));
}

TEST(BlockMessages, Open) {
    const OpenRequest request{AccessMode::Migration, "some/disk"};
    auto bytes = bytes_of(request);
    EXPECT_EQ(bytes[0], std::byte{2});
    EXPECT_EQ(bytes[4], std::byte{2});
    EXPECT_EQ(bytes[6], std::byte{'s'});
    EXPECT_EQ(OpenRequest::parse(bytes).value(), request);
    bytes[4] = std::byte{3};
    EXPECT_EQ(OpenRequest::parse(bytes).error().code, EINVAL) << "an access mode that is none";
    bytes[4] = std::byte{0};
    std::fill(bytes.begin() + 6, bytes.begin() + 261, std::byte{'x'});
    EXPECT_EQ(OpenRequest::parse(bytes).error().code, EINVAL) << "a name without an end";
    bytes[260] = std::byte{0};
    EXPECT_EQ(OpenRequest::parse(bytes).value().name, std::string(254, 'x'));
    EXPECT_EQ(OpenRequest::parse(bytes_of(OpenRequest{AccessMode::ReadOnly, ""})).error().code,
              EINVAL);
    for (const char* name : {"..", "../x", "a/../b", "a.."})
        EXPECT_EQ(
            OpenRequest::parse(bytes_of(OpenRequest{AccessMode::ReadOnly, name})).error().code,
            EINVAL)
            << name;
}

TEST(BlockMessages, OpenResponse) {
    OpenResponse response;
    response.device = 0x01020304;
    response.sectors = 0x1122334455667;
    response.max_io_sectors = 248;
    response.max_zeroes_sectors = 5;
    response.max_discard_sectors = 6;
    response.discard_granularity = 4096;
    response.discard_alignment = 7;
    response.physical_block = 4096;
    response.logical_block = 512;
    response.max_segments = 128;
    response.fua = true;
    response.cache_identity = 0x8877665544332211;
    auto bytes = bytes_of(response);
    EXPECT_EQ(bytes[4], std::byte{4});
    EXPECT_EQ(bytes[38], std::byte{0});
    EXPECT_EQ(bytes[39], std::byte{2});
    EXPECT_EQ(bytes[45], std::byte{1});
    EXPECT_EQ(bytes[48], std::byte{0x11});
    EXPECT_EQ(OpenResponse::parse(bytes).value(), response);
    bytes[39] = std::byte{0};
    EXPECT_EQ(OpenResponse::parse(bytes).error().code, EPROTO) << "a block size of 0";
    bytes[38] = bytes[39] = std::byte{2};
    EXPECT_EQ(OpenResponse::parse(bytes).error().code, EPROTO) << "no power of two";
    response.sectors = UINT64_MAX;
    EXPECT_EQ(OpenResponse::parse(bytes_of(response)).error().code, EPROTO);
}

TEST(BlockMessages, Io) {
    IoRequest io;
    io.device = 7;
    io.sector = 0x0102030405;
    io.size = 4096;
    io.kind = IoKind::WriteZeroes;
    io.fua = io.no_unmap = true;
    io.priority = 0x1234;
    auto bytes = bytes_of(io);
    EXPECT_EQ(bytes[16], std::byte{5});
    EXPECT_EQ(bytes[17], std::byte{0x0a});
    EXPECT_EQ(IoRequest::parse(bytes).value(), io);
    bytes[19] = std::byte{0xff};
    EXPECT_EQ(IoRequest::parse(bytes).value(), io) << "flags that nobody knows yet";
    EXPECT_EQ(IoRequest::parse(std::span(bytes).first(24)).value().priority, 0) << "version 1";
    EXPECT_EQ(IoRequest::parse(std::span(bytes).first(23)).error().code, EINVAL);
    bytes[16] = std::byte{6};
    EXPECT_EQ(IoRequest::parse(bytes).error().code, EOPNOTSUPP);
}

TEST(BlockMessages, Close) {
    const auto bytes = bytes_of(CloseRequest{9});
    EXPECT_EQ(CloseRequest::parse(bytes).value(), CloseRequest{9});
    EXPECT_FALSE(CloseRequest::parse(std::span(bytes).first(7)));
    EXPECT_FALSE(OpenRequest::parse(bytes));
}

}  // namespace
}  // namespace feroce::block
