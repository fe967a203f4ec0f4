#include "port/faults.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace feroce::port {
namespace {

std::array<std::byte, 32> packet(std::uint32_t qpn) {
    std::array<std::byte, 32> bytes{};
    bytes[0] = std::byte{0x04};  // RC SEND only.
    store_be24(std::span(bytes).subspan<5, 3>(), qpn);
    return bytes;
}

std::vector<bool> drops(std::uint64_t seed, std::uint32_t qpn) {
    FaultInjector injector({.drop = 0.3, .seed = seed});
    std::vector<bool> out;
    for (int i = 0; i < 1000; ++i) out.push_back(injector.next(packet(qpn)).drop);
    return out;
}

TEST(Faults, ParsesTheContractsForm) {
    const auto rates = parse_faults("drop=0.01,dup=0.02,reorder=0.03,corrupt=0.04,seed=7");
    ASSERT_TRUE(rates.has_value());
    EXPECT_EQ(rates->drop, 0.01);
    EXPECT_EQ(rates->duplicate, 0.02);
    EXPECT_EQ(rates->reorder, 0.03);
    EXPECT_EQ(rates->corrupt, 0.04);
    EXPECT_EQ(rates->seed, 7u);
}

TEST(Faults, RefusesWhatMakesNoSense) {
    for (const char* text : {"drop", "drop=", "drop=2", "drop=-1", "drop=x", "lose=0.1", "seed=-1"})
        EXPECT_FALSE(parse_faults(text).has_value()) << text;
}

TEST(Faults, FateIsAFunctionOfTheSeed) {
    EXPECT_EQ(drops(7, 0x11'0001), drops(7, 0x22'0002));  // Queue pair numbers are random.
    EXPECT_NE(drops(7, 0x11'0001), drops(8, 0x11'0001));
}

TEST(Faults, FlowsHaveFatesOfTheirOwn) {
    FaultInjector mixed({.drop = 0.3, .seed = 7});
    std::vector<bool> first;
    for (int i = 0; i < 1000; ++i) {
        first.push_back(mixed.next(packet(1)).drop);
        mixed.next(packet(2));
    }
    EXPECT_EQ(first, drops(7, 1));
}

TEST(Faults, RatesAreKept) {
    FaultInjector injector({.drop = 0.1, .duplicate = 0.2, .reorder = 0.3, .corrupt = 0.4});
    int drop = 0, duplicate = 0, hold = 0, corrupt = 0;
    for (int i = 0; i < 20000; ++i) {
        const FaultInjector::Fate fate = injector.next(packet(1));
        drop += fate.drop;
        duplicate += fate.duplicate;
        hold += fate.hold;
        corrupt += fate.flip_seed != 0;
    }
    EXPECT_NEAR(drop, 2000, 300);
    EXPECT_NEAR(duplicate, 4000, 400);
    EXPECT_NEAR(hold, 6000, 400);
    EXPECT_NEAR(corrupt, 8000, 500);
}

TEST(Faults, FlippingChangesBetweenOneAndSixtyFourBits) {
    for (std::uint64_t seed = 1; seed < 200; seed += 2) {
        std::array<std::byte, 64> bytes{};
        FaultInjector::flip_bits(bytes, seed);
        int changed = 0;
        for (const std::byte b : bytes) changed += __builtin_popcount(std::to_integer<unsigned>(b));
        EXPECT_LE(changed, 64);
    }
}

}  // namespace
}  // namespace feroce::port
