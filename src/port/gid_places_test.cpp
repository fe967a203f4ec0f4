#include "port/gid_places.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace feroce::port::gid_places {
namespace {

constexpr std::size_t kPlaces = 1024;

std::vector<Gid> neighbours(std::uint32_t first, std::uint32_t step) {
    std::vector<Gid> out;
    for (std::uint32_t i = 0; i < kPlaces; ++i) out.push_back(Gid::from_v4(first + i * step));
    return out;
}

// Those of one subnet of IPv6, with the same interface id in many subnets.
std::vector<Gid> subnets() {
    std::vector<Gid> out;
    for (std::uint32_t i = 0; i < kPlaces; ++i) {
        Gid gid{{0xfd, 0, 0, 0, 0, 0, static_cast<std::uint8_t>(i >> 8),
                 static_cast<std::uint8_t>(i), 2, 0, 0, 0xff, 0xfe, 0, 0, 1}};
        out.push_back(gid);
    }
    return out;
}

TEST(GidPlaces, FindsAllAndLooksAtFew) {
    for (const std::vector<Gid>& gids :
         {neighbours(0x0a00'0001, 1), neighbours(0x0a00'0001, 256), subnets()}) {
        GidPlaces places(kPlaces);
        for (std::size_t i = 0; i < gids.size(); ++i) places.add(gids[i], i);
        std::size_t looks = 0, most = 0;
        const auto at = [&](std::size_t place) {
            ++looks;
            return gids[place];
        };
        for (std::size_t i = 0; i < gids.size(); ++i) {
            looks = 0;
            EXPECT_EQ(places.find(gids[i], at), i);
            most = std::max(most, looks);
        }
        for (std::uint32_t i = 0; i < kPlaces; ++i) {
            looks = 0;
            EXPECT_EQ(places.find(Gid::from_v4(0xc0a8'0001 + i), at), GidPlaces::kNone);
            most = std::max(most, looks);
        }
        EXPECT_LE(most, 64u) << "of 1024";
    }
}

TEST(GidPlaces, ForgetsAll) {
    GidPlaces places(2);
    const Gid gid = Gid::from_v4(1);
    const auto at = [&](std::size_t) { return gid; };
    places.add(gid, 1);
    EXPECT_EQ(places.find(gid, at), 1u);
    places.clear();
    EXPECT_EQ(places.find(gid, at), GidPlaces::kNone);
}

}  // namespace
}  // namespace feroce::port::gid_places
