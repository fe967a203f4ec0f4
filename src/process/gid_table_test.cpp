#include "process/gid_table.hpp"

#include <gtest/gtest.h>

namespace feroce::process {
namespace {

const Gid kA = Gid::from_v4(0x0a000001), kB = Gid::from_v4(0x0a000002),
          kC = Gid::from_v4(0x0a000003);

TEST(GidTable, AnAddressKeepsItsIndexAndANewOneFillsTheFirstHole) {
    GidTable table(8);
    EXPECT_TRUE(table.update({kA, kB}));
    EXPECT_FALSE(table.update({kB, kA})) << "their order does not matter";
    EXPECT_EQ(table.at(0), kA);
    EXPECT_TRUE(table.update({kB}));
    EXPECT_TRUE(table.at(0).is_zero());
    EXPECT_EQ(table.at(1), kB);
    EXPECT_TRUE(table.update({kB, kC}));
    EXPECT_EQ(table.at(0), kC);
    EXPECT_EQ(table.all(), (std::vector<Gid>{kC, kB}));
    EXPECT_TRUE(table.at(7).is_zero());
    EXPECT_TRUE(table.at(1000).is_zero());
}

TEST(GidTable, WhatDoesNotFitIsLeftOut) {
    GidTable table(2);
    EXPECT_TRUE(table.update({kA, kB, kC}));
    EXPECT_EQ(table.all(), (std::vector<Gid>{kA, kB}));
    EXPECT_FALSE(table.update({kA, kB, kC}));
    EXPECT_TRUE(table.update({kB, kC}));
    EXPECT_EQ(table.all(), (std::vector<Gid>{kC, kB}));
}

}  // namespace
}  // namespace feroce::process
