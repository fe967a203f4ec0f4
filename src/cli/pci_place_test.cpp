#include "cli/pci_place.hpp"

#include <gtest/gtest.h>

namespace feroce::cli {
namespace {

std::string place(const char* setting, std::size_t number, const char* card = "") {
    const Result<PciPlaces> places = PciPlaces::parse(setting);
    if (!places) return "refused";
    const auto address = places->of(number, card);
    return address ? address->text() : "none";
}

constexpr char kCard[] = "/sys/devices/pci0000:00/0000:00:01.0/0000:3b:00.1";
constexpr char kVirtio[] = "/sys/devices/platform/70000000.pci/pci0000:00/0000:00:03.0/virtio2";

TEST(PciPlace, IsSaidOnlyOnRequest) {
    EXPECT_EQ(place("", 0, kCard), "none");
    EXPECT_EQ(place("off", 0, kCard), "none");
    EXPECT_FALSE(PciPlaces().of(0, kCard));
}

TEST(PciPlace, IsThatOfTheCardOrInvented) {
    EXPECT_EQ(place("on", 0, kCard), "0000:3b:00.1");
    EXPECT_EQ(place("on", 0, kVirtio), "0000:00:03.0");
    EXPECT_EQ(place("on", 0), "fe0c:01:00.0");
    EXPECT_EQ(place("on", 2, "/sys/devices/virtual/net/br0"), "fe0c:03:00.0");
}

TEST(PciPlace, IsThatOfTheSetting) {
    EXPECT_EQ(place("0000:c1:00.0", 0, kCard), "0000:c1:00.0");
    EXPECT_EQ(place("0000:c1:00.0", 1), "0000:c2:00.0");
    EXPECT_EQ(place("C1:1f.7", 0), "0000:c1:1f.7");
    EXPECT_EQ(place("0000:ff:00.0", 1), "0001:00:00.0");
    EXPECT_EQ(place("ffff:ff:00.0", 1), "0000:00:00.0");
}

TEST(PciPlace, WhatIsNoAddressIsRefused) {
    for (const char* wrong : {"On",
                              "yes",
                              "1",
                              "0000:c1:00",
                              "0000:c1:00.",
                              "0000:c1:00.8",
                              "0000:c1:20.0",
                              "000:c1:00.0",
                              "0000:c1:00.00",
                              "0000:c1:00.0 ",
                              " 0000:c1:00.0",
                              "0000:-1:00.0",
                              "0000:+1:00.0",
                              "0x00:c1:00.0",
                              "0000:cg:00.0",
                              "0000::00.0",
                              "00:00:c1:00.0",
                              ":::.",
                              ":",
                              ".",
                              "c1:00.0.0",
                              "10000:c1:00.0"})
        EXPECT_EQ(place(wrong, 0), "refused") << wrong;
}

}  // namespace
}  // namespace feroce::cli
