// Which packets leave instead of a run.
#include "port/disturber.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace feroce::port {
namespace disturber_test {
namespace {

constexpr std::size_t kSize = 40;

// A run whose packets carry a number of theirs.
class NumberedRun {
public:
    explicit NumberedRun(std::uint32_t packets) : bytes_(packets * kSize) {
        run_.bytes = bytes_;
        run_.segment_size = kSize;
        run_.packet_count = packets;
        for (std::uint32_t i = 0; i < packets; ++i)
            bytes_[i * kSize + kSize - 1] = static_cast<std::byte>(i);
    }
    const transport::TransmitRun& run() const { return run_; }

private:
    std::vector<std::byte> bytes_;
    transport::TransmitRun run_;
};

std::vector<int> numbers(const std::vector<Disturber::Packet>& packets) {
    std::vector<int> out;
    for (const Disturber::Packet& packet : packets) {
        EXPECT_EQ(packet.run.packet_count, 1u);
        EXPECT_EQ(packet.run.segment_size, kSize);
        EXPECT_EQ(packet.run.bytes.data(), packet.bytes.data());
        EXPECT_EQ(packet.run.bytes.size(), kSize);
        out.push_back(std::to_integer<int>(packet.bytes.back()));
    }
    return out;
}

TEST(Disturber, LeavesAloneWhatHasNoFault) {
    FaultInjector faults({});
    Disturber disturber(faults);
    EXPECT_EQ(numbers(disturber.disturb(NumberedRun(3).run())), (std::vector{0, 1, 2}));
}

TEST(Disturber, SendsNothingOfWhatIsDropped) {
    FaultInjector faults({.drop = 1});
    Disturber disturber(faults);
    EXPECT_TRUE(disturber.disturb(NumberedRun(3).run()).empty());
}

TEST(Disturber, SendsADuplicateBehindItsPacketWithTheSameDamage) {
    FaultInjector faults({.duplicate = 1, .corrupt = 1});
    Disturber disturber(faults);
    const std::vector<Disturber::Packet> packets = disturber.disturb(NumberedRun(2).run());
    EXPECT_EQ(numbers(packets), (std::vector{0, 0, 1, 1}));
    EXPECT_NE(packets[0].flip_seed, 0u);
    EXPECT_EQ(packets[0].flip_seed, packets[1].flip_seed);
    EXPECT_NE(packets[0].bytes.data(), packets[1].bytes.data());  // Each is damaged by itself.
}

// The 65th cannot be held back, and takes the others along.
TEST(Disturber, HoldsBackSoManyAndNoMore) {
    FaultInjector faults({.reorder = 1});
    Disturber disturber(faults);
    EXPECT_TRUE(disturber.disturb(NumberedRun(64).run()).empty());
    const std::vector<int> leaving = numbers(disturber.disturb(NumberedRun(1).run()));
    ASSERT_EQ(leaving.size(), 65u);
    for (int i = 0; i < 64; ++i) EXPECT_EQ(leaving[static_cast<std::size_t>(i) + 1], i);
}

// The bytes of a run are the sender's only during the call.
TEST(Disturber, KeepsTheBytesOfWhatItHoldsBack) {
    FaultInjector faults({.reorder = 0.5});
    Disturber disturber(faults);
    std::array<int, 50> seen{};
    for (int round = 0; round < 100; ++round)
        for (const int number : numbers(disturber.disturb(NumberedRun(50).run())))
            ++seen[static_cast<std::size_t>(number)];
    for (const int times : seen) EXPECT_GE(times, 99);  // But for those of the last round.
}

}  // namespace
}  // namespace disturber_test
}  // namespace feroce::port
