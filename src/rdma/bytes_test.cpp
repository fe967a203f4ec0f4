#include "feroce/bytes.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <vector>

namespace feroce::rdma {
namespace {

struct Pair {
    std::uint32_t first, second;
    friend bool operator==(const Pair&, const Pair&) = default;
};
struct Padded {
    std::uint8_t first;
    std::uint32_t second;
};
using Span = std::span<std::byte>;

static_assert(PlainValue<Pair> && PlainValue<const int> && PlainValue<double>);
static_assert(PlainValue<std::array<int, 3>> && PlainValue<int[3]>);
static_assert(!PlainValue<Padded> && !PlainValue<int*> && !PlainValue<std::vector<int>>);
// Their own bytes are addresses.
static_assert(!PlainValue<Span> && !PlainValue<std::string_view>);
static_assert(!PlainValue<std::initializer_list<int>> && !PlainValue<std::array<Span, 2>>);
static_assert(!HasBytes<std::span<const Span>> && !HasBytes<std::vector<Span>>);
static_assert(!HasWritableBytes<const std::string> && !HasWritableBytes<const Pair>);
// A value that is filled and then gone, and what needs nothing of this.
static_assert(NeedWritableBytes<char[4], std::string&> && !NeedWritableBytes<char[4], std::string>);
static_assert(NeedWritableBytes<char[4], Span> && !NeedWritableBytes<Span, Span>);
static_assert(!NeedBytes<Span, std::vector<std::byte>> && NeedBytes<Span, int>);

TEST(BytesOf, TextsEndWhereTheyEnd) {
    const std::string text = "hello";
    const char buffer[8] = "ab";
    const char full[2] = {'a', 'b'};
    EXPECT_EQ(bytes_of("key").size(), 3u);
    EXPECT_EQ(bytes_of(text).size(), 5u);
    EXPECT_EQ(bytes_of(std::string_view(text).substr(1)).size(), 4u);
    EXPECT_EQ(bytes_of(buffer).size(), 2u);
    EXPECT_EQ(bytes_of(full).size(), 2u);
    EXPECT_EQ(text_of(bytes_of(text)), text);
}

TEST(BytesOf, BytesAreWhatTheyAre) {
    std::vector<std::byte> many(9);
    std::byte few[3] = {};
    EXPECT_EQ(bytes_of(many).size(), 9u);
    EXPECT_EQ(bytes_of(few).data(), few);
    EXPECT_EQ(writable_bytes_of(few).data(), few);
    EXPECT_EQ(writable_bytes_of(many).size(), 9u);
}

TEST(BytesOf, ValuesGoThereAndBack) {
    const Pair pair{1, 2};
    EXPECT_EQ(value_of<Pair>(bytes_of(pair)), pair);
    EXPECT_FALSE(value_of<std::uint32_t>(bytes_of(pair))) << "it has another size";
    Pair into{};
    const auto bytes = writable_bytes_of(into);
    std::copy_n(bytes_of(pair).begin(), bytes.size(), bytes.begin());
    EXPECT_EQ(into, pair);
    std::string text(4, ' ');
    writable_bytes_of(text)[0] = std::byte{'x'};
    EXPECT_EQ(text, "x   ");
}

}  // namespace
}  // namespace feroce::rdma
