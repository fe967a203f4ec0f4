#include "cli/capture/twins.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace feroce::cli::twins_test {
namespace {

using wire::Direction;

class Sender {
public:
    wire::RoceDatagram packet(std::uint8_t content, Direction direction, std::uint16_t id = 0) {
        bytes_ = std::vector<std::byte>(20, std::byte{content});
        wire::RoceDatagram out;
        out.address.source = Gid::from_v4(0x7f00'0001);
        out.address.destination = Gid::from_v4(0x7f00'0001);
        out.udp_payload = bytes_;
        out.ipv4_id = id;
        out.direction = direction;
        return out;
    }

private:
    std::vector<std::byte> bytes_;
};

TEST(Twins, WhatIsSentAndReceivedHereIsOnePacket) {
    Twins twins;
    Sender sender;
    EXPECT_FALSE(twins.is_second_sight(sender.packet(1, Direction::Outbound)));
    EXPECT_TRUE(twins.is_second_sight(sender.packet(1, Direction::Inbound)));
    // Sent again, and received again.
    EXPECT_FALSE(twins.is_second_sight(sender.packet(1, Direction::Outbound)));
    EXPECT_FALSE(twins.is_second_sight(sender.packet(1, Direction::Outbound)));
    EXPECT_TRUE(twins.is_second_sight(sender.packet(1, Direction::Inbound)));
    EXPECT_TRUE(twins.is_second_sight(sender.packet(1, Direction::Inbound)));
    EXPECT_FALSE(twins.is_second_sight(sender.packet(1, Direction::Inbound)));
}

TEST(Twins, WithoutDirectionsTheIdTells) {
    Twins twins;
    Sender sender;
    for (std::uint8_t i = 1; i < 10; ++i) {
        EXPECT_FALSE(twins.is_second_sight(sender.packet(i, Direction::Unknown, i)));
        EXPECT_TRUE(twins.is_second_sight(sender.packet(i, Direction::Unknown, i))) << int{i};
    }
    // The same bytes under another id were sent again.
    EXPECT_FALSE(twins.is_second_sight(sender.packet(9, Direction::Unknown, 77)));
}

TEST(Twins, IdsThatAreAllAlikeTellNothing) {
    Twins twins;
    Sender sender;
    for (std::uint8_t i = 1; i < 10; ++i) {
        EXPECT_FALSE(twins.is_second_sight(sender.packet(i, Direction::Unknown)));
        EXPECT_FALSE(twins.is_second_sight(sender.packet(i, Direction::Unknown)));
    }
}

TEST(Twins, ForgetsWhatIsLongAgo) {
    Twins twins;
    Sender sender;
    EXPECT_FALSE(twins.is_second_sight(sender.packet(1, Direction::Outbound)));
    for (int i = 0; i < 20'000; ++i)
        EXPECT_FALSE(twins.is_second_sight(sender.packet(2, Direction::Outbound)));
    EXPECT_FALSE(twins.is_second_sight(sender.packet(1, Direction::Inbound)));
}

}  // namespace
}  // namespace feroce::cli::twins_test
