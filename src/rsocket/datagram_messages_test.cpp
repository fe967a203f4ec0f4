// The headers of datagrams, byte by byte.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include "rsocket/datagram_messages.hpp"
#include "rsocket/test_wire.hpp"

namespace feroce::rsockets {
namespace datagram_messages_test {

Name name_of(const char* text, std::uint16_t port) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    sockaddr_in6 in6{};
    in6.sin6_family = AF_INET6;
    in6.sin6_port = htons(port);
    if (::inet_pton(AF_INET, text, &in.sin_addr) == 1)
        return *Name::of(reinterpret_cast<const sockaddr*>(&in), sizeof in);
    EXPECT_EQ(::inet_pton(AF_INET6, text, &in6.sin6_addr), 1);
    return *Name::of(reinterpret_cast<const sockaddr*>(&in6), sizeof in6);
}

std::vector<std::byte> bytes_of(const HeaderBytes& header) {
    return {header.view().begin(), header.view().end()};
}

TEST(RsocketDatagramMessages, UdpHeaderOfEachFamily) {
    const UdpHeader v4{UdpHeader::Kind::Data, 0x123456, name_of("192.0.2.7", 4000)};
    EXPECT_EQ(bytes_of(v4.emit()), from_hex("555555550400100000123456c0000207"));
    const UdpHeader v6{UdpHeader::Kind::Control, 0x11, name_of("2001:db8::1", 4000)};
    EXPECT_EQ(bytes_of(v6.emit()),
              from_hex("5555555506071c000000001120010db8000000000000000000000001"));
}

TEST(RsocketDatagramMessages, UdHeaderOfEachFamily) {
    const UdHeader v4{name_of("192.0.2.7", 0x1c06)};
    EXPECT_EQ(bytes_of(v4.emit()), from_hex("04081c06c0000207"));
    const UdHeader v6{name_of("2001:db8::1", 0x1c06)};
    EXPECT_EQ(bytes_of(v6.emit()), from_hex("06181c060000000020010db8000000000000000000000001"));
}

TEST(RsocketDatagramMessages, WhatIsWrittenIsRead) {
    for (const char* address : {"192.0.2.7", "2001:db8::1"}) {
        std::size_t size = 0;
        const UdpHeader udp{UdpHeader::Kind::Control, 0xfedcba, name_of(address, 0)};
        const auto read = UdpHeader::parse(udp.emit().view(), size);
        ASSERT_TRUE(read);
        EXPECT_EQ(read->kind, udp.kind);
        EXPECT_EQ(read->queue_pair, udp.queue_pair);
        EXPECT_EQ(read->sender, udp.sender);
        EXPECT_EQ(size, udp.emit().size);
        const UdHeader ud{name_of(address, 65535)};
        ASSERT_TRUE(UdHeader::parse(ud.emit().view(), size));
        EXPECT_EQ(UdHeader::parse(ud.emit().view(), size)->sender, ud.sender);
    }
}

TEST(RsocketDatagramMessages, EveryCutAndEveryWrongByteIsRefused) {
    std::size_t size = 0;
    for (const char* address : {"192.0.2.7", "2001:db8::1"}) {
        const HeaderBytes udp = UdpHeader{UdpHeader::Kind::Data, 1, name_of(address, 0)}.emit();
        const HeaderBytes ud = UdHeader{name_of(address, 9)}.emit();
        for (std::size_t cut = 0; cut < udp.size; ++cut)
            EXPECT_FALSE(UdpHeader::parse(udp.view().first(cut), size)) << cut;
        for (std::size_t cut = 0; cut < ud.size; ++cut)
            EXPECT_FALSE(UdHeader::parse(ud.view().first(cut), size)) << cut;
        for (const std::size_t at : {0U, 4U, 5U, 6U}) {  // Tag, version, kind, length.
            HeaderBytes wrong = udp;
            wrong.bytes[at] = std::byte{0x33};
            EXPECT_FALSE(UdpHeader::parse(wrong.view(), size)) << at;
        }
        for (const std::size_t at : {0U, 1U}) {
            HeaderBytes wrong = ud;
            wrong.bytes[at] = std::byte{0x33};
            EXPECT_FALSE(UdHeader::parse(wrong.view(), size)) << at;
        }
    }
}

TEST(RsocketDatagramMessages, AnIPv4NameIsTheSameInBothFamilies) {
    const Name name = name_of("192.0.2.7", 80);
    EXPECT_EQ(name, name_of("::ffff:192.0.2.7", 80));
    EXPECT_TRUE(name.is_v4());
    const sockaddr_storage mapped = name.as(AF_INET6);
    EXPECT_EQ(*Name::of(reinterpret_cast<const sockaddr*>(&mapped), sizeof(sockaddr_in6)), name);
    EXPECT_TRUE(name_of("0.0.0.0", 80).is_any());
    EXPECT_TRUE(name_of("::", 80).is_any());
    EXPECT_FALSE(name.is_any());
}

Name name_on(const char* text, std::uint32_t interface) {
    sockaddr_in6 in6{};
    in6.sin6_family = AF_INET6;
    in6.sin6_scope_id = interface;
    EXPECT_EQ(::inet_pton(AF_INET6, text, &in6.sin6_addr), 1);
    return *Name::of(reinterpret_cast<const sockaddr*>(&in6), sizeof in6);
}

TEST(RsocketDatagramMessages, ALinkLocalNameIsAnotherOneOnEachInterface) {
    for (const char* text : {"fe80::1", "febf::1", "ff02::1", "ff11::1"}) {
        EXPECT_NE(name_on(text, 1), name_on(text, 2)) << text;
        EXPECT_LT(name_on(text, 1), name_on(text, 2)) << text;
    }
    for (const char* text : {"2001:db8::1", "fec0::1", "ff05::1", "::1", "::ffff:192.0.2.7"})
        EXPECT_EQ(name_on(text, 1), name_on(text, 2)) << text;
}

TEST(RsocketDatagramMessages, NoAddressIsNoName) {
    const sockaddr_storage none{};
    EXPECT_EQ(Name::of(nullptr, 0).error().code, EINVAL);
    EXPECT_EQ(Name::of(reinterpret_cast<const sockaddr*>(&none), sizeof none).error().code,
              EAFNOSUPPORT);
    sockaddr_in6 in6{};
    in6.sin6_family = AF_INET6;
    EXPECT_EQ(Name::of(reinterpret_cast<const sockaddr*>(&in6), sizeof in6 - 4).error().code,
              EINVAL);
}

}  // namespace datagram_messages_test
}  // namespace feroce::rsockets
