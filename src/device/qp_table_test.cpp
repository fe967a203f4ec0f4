#include "device/qp_table.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <set>
#include <vector>

#include "device/test_qp.hpp"

namespace feroce::device {
namespace {

constexpr std::uint32_t kAll = 32'765;  // All low parts but 0, 1 and 0x7fff.
constexpr std::uint32_t kLow = 0x7fff;

TEST(QpTable, GivesEveryNumberOfTheSlotOnceAndThenNone) {
    Prng random(7);
    QpTable table(0x1ff, 1'000'000, random);
    std::set<std::uint32_t> given;
    for (std::uint32_t i = 0; i < kAll; ++i) {
        const Qpn qpn = table.allocate().value();
        EXPECT_EQ(slot_of(qpn), 0x1ffu);
        given.insert(qpn.raw & kLow);
    }
    EXPECT_EQ(given.size(), kAll);
    EXPECT_FALSE(given.contains(0));
    EXPECT_FALSE(given.contains(1));
    EXPECT_FALSE(given.contains(kLow));
    ASSERT_FALSE(table.allocate().has_value());
    EXPECT_EQ(table.allocate().error().code, ENOMEM);
}

TEST(QpTable, FollowsTheRandomSourceOverTheWholeRange) {
    Prng one(1), other(2);
    QpTable a(3, 100, one), b(3, 100, other);
    std::uint32_t equal = 0, low_half = 0;
    for (int i = 0; i < 100; ++i) {
        const std::uint32_t x = a.allocate().value().raw;
        equal += x == b.allocate().value().raw ? 1 : 0;
        low_half += (x & 0x4000) == 0 ? 1 : 0;
    }
    EXPECT_LT(equal, 3u);
    EXPECT_GT(low_half, 30u);
    EXPECT_LT(low_half, 70u);
}

TEST(QpTable, AFreedNumberRests) {
    Prng random(11);
    QpMaker maker;
    QpTable table(9, 16, random);
    std::vector<std::uint64_t> freed_at(kLow + 1, 0);
    std::uint64_t shortest_rest = UINT64_MAX;
    for (std::uint64_t i = 1; i <= 100'000; ++i) {
        const Qpn qpn = table.allocate().value();
        std::uint64_t& freed = freed_at[qpn.raw & kLow];
        if (freed != 0) shortest_rest = std::min(shortest_rest, i - freed);
        freed = i;
        table.insert(maker.make(qpn));
        table.erase(qpn);
    }
    EXPECT_GE(shortest_rest, kAll / 2);
    EXPECT_LT(shortest_rest, kAll) << "in a fixed order it would be predictable";
}

TEST(QpTable, FindsByTheWholeNumber) {
    Prng random(3);
    QpMaker maker;
    QpTable table(2, 16, random);
    const Qpn qpn = table.allocate().value();
    EXPECT_EQ(table.find(qpn), nullptr) << "not inserted yet";
    table.insert(maker.make(qpn));
    ASSERT_NE(table.find(qpn), nullptr);
    EXPECT_EQ(table.find(qpn)->qpn(), qpn);
    EXPECT_EQ(table.find(Qpn{qpn.raw ^ 0x8000}), nullptr) << "another shard's";
    EXPECT_EQ(table.find(Qpn{qpn.raw ^ 1}), nullptr);
    EXPECT_EQ(table.find(kMulticastQpn), nullptr);
    EXPECT_EQ(table.size(), 1u);
    table.erase(qpn);
    EXPECT_EQ(table.find(qpn), nullptr);
    EXPECT_EQ(table.size(), 0u);
}

TEST(QpTable, LimitCountsLivingQueuePairsAndNotGeneralServices) {
    Prng random(4);
    QpMaker maker;
    QpTable table(1, 2, random);
    table.insert(maker.make(kGeneralServicesQpn));
    const Qpn a = table.allocate().value();
    table.insert(maker.make(a));
    const Qpn b = table.allocate().value();
    table.insert(maker.make(b));
    EXPECT_FALSE(table.allocate().has_value());
    table.erase(a);
    EXPECT_TRUE(table.allocate().has_value());
    EXPECT_NE(table.find(kGeneralServicesQpn), nullptr);
    table.erase(kGeneralServicesQpn);
    EXPECT_EQ(table.find(kGeneralServicesQpn), nullptr);
    EXPECT_FALSE(table.allocate().has_value()) << "QPN 1 gave no number back";
}

TEST(QpTable, KnowsWhichNumbersWereGiven) {
    Prng random(8);
    QpMaker maker;
    QpTable table(2, 16, random);
    const Qpn qpn = table.allocate().value();
    EXPECT_TRUE(table.was_given(qpn));
    table.insert(maker.make(qpn));
    table.erase(qpn);
    EXPECT_TRUE(table.was_given(qpn));
    EXPECT_FALSE(table.was_given(Qpn{qpn.raw ^ 0x8000})) << "another shard's";
    std::uint32_t count = 0;
    for (std::uint32_t low = 2; low < kLow; ++low)
        count += table.was_given(qpn_of(2, static_cast<std::uint16_t>(low))) ? 1 : 0;
    EXPECT_EQ(count, 1u);
}

TEST(QpTable, FillsFromItsStart) {
    Prng random(6);
    QpMaker maker;
    QpTable table(1, 100, random);
    std::vector<Qpn> made;
    for (int i = 0; i < 100; ++i) {
        made.push_back(table.allocate().value());
        table.insert(maker.make(made.back()));
    }
    std::vector<Qpn> walked;
    table.for_each([&](transport::QueuePair& qp) { walked.push_back(qp.qpn()); });
    EXPECT_EQ(walked, made) << "places are given in order";
}

TEST(NumberScramble, HasAPlaceForEveryNumber) {
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
        Prng random(seed);
        const NumberScramble scramble(random);
        std::set<std::uint16_t> numbers;
        for (std::uint32_t place = 0; place <= kLow; ++place) {
            const std::uint16_t number = scramble.number(static_cast<std::uint16_t>(place));
            numbers.insert(number);
            ASSERT_EQ(scramble.place(number), place);
        }
        EXPECT_EQ(numbers.size(), kLow + 1);
    }
}

TEST(QpTable, WalkMayEraseOnTheWay) {
    Prng random(5);
    QpMaker maker;
    QpTable table(1, 64, random);
    table.insert(maker.make(kGeneralServicesQpn));
    for (int i = 0; i < 40; ++i) table.insert(maker.make(table.allocate().value()));
    std::vector<std::uint32_t> order;
    table.for_each([&](transport::QueuePair& qp) {
        order.push_back(qp.qpn().raw);
        if (order.size() % 2 == 0) table.erase(qp.qpn());
    });
    ASSERT_EQ(order.size(), 41u);
    EXPECT_EQ(std::set<std::uint32_t>(order.begin(), order.end()).size(), 41u);
    EXPECT_EQ(table.size(), 21u);
}

}  // namespace
}  // namespace feroce::device
