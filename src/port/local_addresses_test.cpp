#include "port/local_addresses.hpp"

#include <gtest/gtest.h>

namespace feroce::port {
namespace {

Gid v6(std::uint8_t first, std::uint8_t second, std::uint8_t last) {
    Gid out{};
    out.raw[0] = first;
    out.raw[1] = second;
    out.raw[15] = last;
    return out;
}

host::Interface interface(std::uint32_t index, std::vector<Gid> gids) {
    host::Interface out;
    out.index = index;
    out.gids = std::move(gids);
    return out;
}

const Gid kA = Gid::from_v4(0x0a000001), kB = Gid::from_v4(0x0a000002);

TEST(LocalAddresses, KnowsTheOnesItWasGiven) {
    LocalAddresses addresses;
    const std::uint32_t before = addresses.version();
    EXPECT_FALSE(addresses.connect(kA, kA));
    addresses.set({interface(2, {kA})});
    EXPECT_NE(addresses.version(), before);
    EXPECT_TRUE(addresses.connect(kA, kA));
    EXPECT_FALSE(addresses.connect(kA, kB));
    addresses.set({interface(3, {kB})});
    EXPECT_FALSE(addresses.connect(kA, kA));
    EXPECT_FALSE(addresses.connect(kA, kB));  // Nothing can be sent from an address that is gone.
    addresses.set({});                        // As if there were no memory for the list.
    EXPECT_TRUE(addresses.connect(kB, kB));
}

TEST(LocalAddresses, KnowsTheInterfaceOfEach) {
    LocalAddresses addresses;
    EXPECT_EQ(addresses.interface_of(kA), 0u);
    EXPECT_FALSE(addresses.holds(kA));
    addresses.set({interface(2, {kA}), interface(5, {kB})});
    EXPECT_EQ(addresses.interface_of(kA), 2u);
    EXPECT_EQ(addresses.interface_of(kB), 5u);
    EXPECT_TRUE(addresses.holds(kB));
}

TEST(LocalAddresses, AllOfLoopbackIsHere) {
    const LocalAddresses addresses;
    const Gid loopback = Gid::from_v4(0x7f000001);
    EXPECT_TRUE(addresses.connect(loopback, Gid::from_v4(0x7f000105)));
    EXPECT_FALSE(addresses.connect(loopback, Gid::from_v4(0x80000001)));
    EXPECT_FALSE(addresses.connect(kA, loopback));
}

TEST(LocalAddresses, ALinkLocalAddressBelongsToItsLink) {
    const Gid one = v6(0xfe, 0x80, 1), two = v6(0xfe, 0x80, 2), same = v6(0xfe, 0x80, 3);
    LocalAddresses addresses;
    addresses.set({interface(2, {one, same}), interface(3, {two})});
    EXPECT_TRUE(addresses.connect(one, one));
    EXPECT_TRUE(addresses.connect(one, same));
    EXPECT_FALSE(addresses.connect(one, two));
    EXPECT_FALSE(addresses.connect(kA, two));
}

}  // namespace
}  // namespace feroce::port
