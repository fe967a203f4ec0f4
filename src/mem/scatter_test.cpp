// Lists against a flat model: any cut of memory into entries, any offset and length.
#include "mem/scatter.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "mem/test_pages.hpp"

namespace feroce::mem {
namespace {

class ScatterTest : public testing::Test {
protected:
    ScatterTest() : random(1), memory({.pds = 4, .regions = 16, .windows = 4}, random) {
        pd = *memory.alloc_pd();
        const RegionSpec spec{pd, arena, sizeof arena, address(0), Access::LocalWrite, false};
        key = memory.register_region(spec)->lkey;
    }
    std::uint64_t address(std::size_t i) const {
        return reinterpret_cast<std::uintptr_t>(arena) + i;
    }

    Prng random;
    Memory memory;
    PdId pd;
    LKey key;
    std::byte arena[4096] = {};
};

TEST_F(ScatterTest, MovesWhatTheModelMoves) {
    EXPECT_TRUE(rc::check([&] {
        // Entries lie one after the other with gaps; `flat` lists the arena index of each byte.
        const auto lengths =
            *rc::gen::container<std::vector<std::uint32_t>>(rc::gen::inRange<std::uint32_t>(0, 90));
        RC_PRE(lengths.size() <= 20);
        std::vector<Sge> list;
        std::vector<std::size_t> flat;
        std::size_t at = *rc::gen::inRange<std::size_t>(0, 9);
        for (const std::uint32_t length : lengths) {
            list.push_back({address(at), length, length == 0 ? LKey{0xdead} : key});
            for (std::size_t i = 0; i < length; ++i) flat.push_back(at + i);
            at += length + *rc::gen::inRange<std::size_t>(0, 9);
        }
        const auto offset = *rc::gen::inRange<std::size_t>(0, flat.size() + 1);
        const auto size = *rc::gen::inRange<std::size_t>(0, flat.size() - offset + 1);
        const auto fresh = *rc::gen::container<std::vector<unsigned char>>(
            size, rc::gen::arbitrary<unsigned char>());
        const auto* const bytes = reinterpret_cast<const std::byte*>(fresh.data());

        std::vector<std::byte> expected(arena, arena + sizeof arena);
        for (std::size_t i = 0; i < size; ++i) expected[flat[offset + i]] = bytes[i];
        RC_ASSERT(scatter(memory, pd, list, offset, {bytes, size}) == Fault::None);
        RC_ASSERT(std::memcmp(arena, expected.data(), sizeof arena) == 0);

        std::vector<std::byte> back(size);
        RC_ASSERT(gather(memory, pd, list, offset, back) == Fault::None);
        RC_ASSERT(std::equal(back.begin(), back.end(), bytes));
        std::vector<std::byte> beyond(flat.size() - offset + 1);
        const ListFault fault = gather(memory, pd, list, offset, beyond);
        RC_ASSERT(fault.fault == Fault::OutOfBounds && fault.index == list.size());
    }));
}

TEST_F(ScatterTest, NamesTheEntryAtFault) {
    const RegionSpec read_only{pd, arena, sizeof arena, address(0), AccessSet{}, false};
    const LKey reader = memory.register_region(read_only)->lkey;
    const PdId other_pd = *memory.alloc_pd();
    std::byte bytes[24] = {};
    Sge list[] = {{address(0), 8, key}, {address(8), 8, reader}, {address(16), 8, key}};

    ListFault fault = scatter(memory, pd, list, 0, bytes);
    EXPECT_EQ(fault.fault, Fault::NoPermission);
    EXPECT_EQ(fault.index, 1u);
    EXPECT_EQ(gather(memory, pd, list, 0, bytes), Fault::None);
    EXPECT_EQ(gather(memory, other_pd, list, 0, bytes), Fault::WrongPd);

    // An entry that is not touched is not looked at.
    list[2].lkey = LKey{0x1234'5678};
    EXPECT_EQ(gather(memory, pd, list, 0, {bytes, 16}), Fault::None);
    fault = gather(memory, pd, list, 0, bytes);
    EXPECT_EQ(fault.fault, Fault::NoSuchKey);
    EXPECT_EQ(fault.index, 2u);
}

TEST_F(ScatterTest, AddressesThatWrapAreOutOfBounds) {
    Sge wrap{~std::uint64_t{0} - 7, 64, key};
    const RegionKeys all =
        *memory.register_region({.pd = pd, .access = Access::OnDemand, .implicit = true});
    wrap.lkey = all.lkey;
    std::byte bytes[8];
    EXPECT_EQ(gather(memory, pd, {&wrap, 1}, 16, bytes), Fault::OutOfBounds);
}

TEST_F(ScatterTest, NullRegionInAList) {
    const LKey null = memory.register_null_region(pd)->lkey;
    std::memset(arena, 0x77, 16);
    const Sge list[] = {{address(0), 4, key}, {12345, 4, null}, {address(4), 4, key}};
    std::byte bytes[12];
    ASSERT_EQ(gather(memory, pd, list, 0, bytes), Fault::None);
    for (std::size_t i = 0; i < 12; ++i)
        EXPECT_EQ(bytes[i], i / 4 == 1 ? std::byte{0} : std::byte{0x77});
    EXPECT_EQ(scatter(memory, pd, list, 0, bytes), Fault::None);
}

TEST_F(ScatterTest, LostMemoryIsAFaultWithItsIndex) {
    test::Pages pages(1);
    const auto at = reinterpret_cast<std::uintptr_t>(pages.at(0));
    const RegionSpec spec{pd, pages.at(0), pages.bytes(), at, Access::LocalWrite, false};
    const Sge list[] = {{address(0), 8, key}, {at, 8, memory.register_region(spec)->lkey}};
    pages.protect(0, 1, PROT_NONE);
    std::byte bytes[16] = {};
    for (const ListFault fault :
         {gather(memory, pd, list, 0, bytes), scatter(memory, pd, list, 0, bytes)}) {
        EXPECT_EQ(fault.fault, Fault::Unmapped);
        EXPECT_EQ(fault.index, 1u);
    }
}

}  // namespace
}  // namespace feroce::mem
