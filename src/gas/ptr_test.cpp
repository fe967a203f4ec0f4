#include "feroce/gas/ptr.hpp"

#include <gtest/gtest.h>

#include <array>
#include <unordered_set>

#include "feroce/gas/word.hpp"

namespace feroce::gas {
namespace {

struct Item {
    std::uint32_t key = 0;
    nic<std::uint64_t> version;
    ptr<Item> next;
    char name[5] = {};
};

constexpr ptr<Item> kItem(NodeId{0xfffe}, 0x7fff'1234'5678);

TEST(Ptr, HoldsNodeAndAddressInOneWord) {
    static_assert(kItem.node() == NodeId{0xfffe});
    static_assert(kItem.address() == 0x7fff'1234'5678);
    static_assert(kItem.bits() == 0xfffe'7fff'1234'5678);
    static_assert(ptr<Item>::from_bits(kItem.bits()) == kItem);
    static_assert(!ptr<Item>() && !ptr<Item>(nullptr) && kItem);
}

TEST(Ptr, AddressesAboveTheLimitDoNotReachTheNode) {
    EXPECT_EQ(ptr<char>(NodeId{3}, ~std::uint64_t{0}).node(), NodeId{3});
    EXPECT_EQ((ptr<char>(NodeId{3}, 0xffff'ffff'ffff) + 1).node(), NodeId{3});
    EXPECT_EQ((ptr<char>(NodeId{3}, 0) - 1).node(), NodeId{3});
}

TEST(Ptr, ProjectsFields) {
    EXPECT_EQ(kItem.field<&Item::key>().address(), kItem.address() + offsetof(Item, key));
    EXPECT_EQ(kItem.field<&Item::next>().address(), kItem.address() + offsetof(Item, next));
    EXPECT_EQ(kItem.field<&Item::name>().address(), kItem.address() + offsetof(Item, name));
    static_assert(std::is_same_v<decltype(kItem.field<&Item::next>()), ptr<ptr<Item>>>);
    static_assert(std::is_same_v<decltype(kItem.field<&Item::version>()), ptr<nic<std::uint64_t>>>);
}

TEST(Ptr, CountsInElements) {
    const ptr<Item> third = kItem + 3;
    EXPECT_EQ(third.address(), kItem.address() + 3 * sizeof(Item));
    EXPECT_EQ(third - kItem, 3);
    EXPECT_EQ(kItem - third, -3);
    EXPECT_EQ(third - 3, kItem);
    EXPECT_EQ(kItem[3], third);
    EXPECT_LT(kItem, third);
    ptr<Item> walker = kItem;
    ++walker;
    --walker;
    EXPECT_EQ(walker, kItem);
    EXPECT_EQ(kItem.as<std::uint64_t>().address(), kItem.address());
}

TEST(Ptr, SpansAreClamped) {
    const span<Item> items(kItem, 10);
    EXPECT_EQ(items[9], kItem + 9);
    EXPECT_EQ(items.subspan(4, 100).size(), 6u);
    EXPECT_EQ(items.subspan(4, 2).data(), kItem + 4);
    EXPECT_TRUE(items.subspan(11, 1).empty());
    EXPECT_EQ(items.size_bytes(), 10 * sizeof(Item));
}

struct Row {
    std::uint64_t before = 0;
    std::uint32_t plain_array[3] = {};
    std::array<std::uint64_t, 4> other{};
};

TEST(Ptr, ElementsOfAMemberAreASpan) {
    const ptr<Row> row(NodeId{2}, 4096);
    const auto numbers = row.elements<&Row::plain_array>();
    EXPECT_EQ(numbers.size(), 3u);
    EXPECT_EQ(numbers[2], ptr<std::uint32_t>(NodeId{2}, 4096 + 8 + 2 * 4));
    const auto other = row.elements<&Row::other>();
    EXPECT_EQ(other.size(), 4u);
    EXPECT_EQ(other[1].address(), row.field<&Row::other>().address() + 8);
}

TEST(Ptr, Hashes) {
    const std::unordered_set<ptr<Item>> set{kItem, kItem + 1, kItem};
    EXPECT_EQ(set.size(), 2u);
}

TEST(Word, CpuWordsHaveAtomics) {
    cpu<std::uint64_t> word(5);
    EXPECT_EQ(word.fetch_add(2), 5u);
    EXPECT_EQ(word.exchange(9), 7u);
    EXPECT_EQ(word.compare_exchange(8, 1), 9u);
    EXPECT_EQ(word.load(), 9u);
    EXPECT_EQ(word.compare_exchange(9, 1), 9u);
    EXPECT_EQ(word.load(), 1u);
    word.store(4);
    EXPECT_EQ(word.load(), 4u);
}

TEST(Word, HoldsPointersAndNegativeNumbers) {
    plain<ptr<Item>> link(kItem);
    EXPECT_EQ(link.load(), kItem);
    link.store(nullptr);
    EXPECT_FALSE(link.load());
    EXPECT_EQ(nic<std::int64_t>(-1).load(), -1);
}

int accesses = 0;

TEST(Word, EveryAccessIsAYieldPoint) {
    detail::before_shared_access = [] { ++accesses; };
    cpu<std::uint64_t> word;
    word.store(1);
    static_cast<void>(word.load());
    word.exchange(2);
    word.compare_exchange(2, 3);
    word.fetch_add(1);
    detail::before_shared_access = nullptr;
    EXPECT_EQ(accesses, 5);
    word.store(1);
    EXPECT_EQ(accesses, 5);
}

}  // namespace
}  // namespace feroce::gas
