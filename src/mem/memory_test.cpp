// Protection domains, regions, keys and lookups; bounds against a model that cannot overflow.
#include "mem/memory.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "mem/test_pages.hpp"

namespace feroce::mem {
namespace {

constexpr AccessSet kFull =
    (Access::LocalWrite | Access::RemoteWrite) | (Access::RemoteRead | Access::RemoteAtomic);
constexpr Qpn kQpn{17};

class MemoryTest : public testing::Test {
protected:
    MemoryTest() : random(7), memory({.pds = 3, .regions = 300, .windows = 8}, random) {
        pd = *memory.alloc_pd();
    }
    RegionSpec spec(AccessSet access = kFull) {
        return {pd, arena, sizeof arena, reinterpret_cast<std::uintptr_t>(arena), access, false};
    }
    int error_of(const RegionSpec& s) {
        const auto result = memory.register_region(s);
        return result ? 0 : result.error().code;
    }

    Prng random;
    Memory memory;
    PdId pd;
    alignas(64) std::byte arena[256] = {};
};

TEST_F(MemoryTest, DomainsAreBoundedAndBusyWhileUsed) {
    EXPECT_EQ(memory.dealloc_pd(PdId{0}).error().code, EINVAL);
    EXPECT_EQ(memory.dealloc_pd(PdId{3}).error().code, EINVAL);
    const PdId second = *memory.alloc_pd();
    EXPECT_TRUE(memory.alloc_pd());
    EXPECT_EQ(memory.alloc_pd().error().code, ENOMEM);

    EXPECT_TRUE(memory.pin_pd(second));
    EXPECT_EQ(memory.dealloc_pd(second).error().code, EBUSY);
    memory.unpin_pd(second);
    EXPECT_TRUE(memory.dealloc_pd(second));
    EXPECT_EQ(memory.dealloc_pd(second).error().code, EINVAL);
    EXPECT_EQ(memory.pin_pd(second).error().code, EINVAL);

    const LKey key = memory.register_region(spec())->lkey;
    EXPECT_EQ(memory.dealloc_pd(pd).error().code, EBUSY);
    EXPECT_TRUE(memory.deregister_region(key));
    const RKey window = *memory.allocate_window(pd, WindowType::Type2);
    EXPECT_EQ(memory.dealloc_pd(pd).error().code, EBUSY);
    EXPECT_TRUE(memory.free_window(window));
    EXPECT_TRUE(memory.dealloc_pd(pd));
}

// Cards and rxe register them; there is nothing in them to touch.
TEST_F(MemoryTest, TakesRegionsOfLengthZero) {
    RegionSpec empty = spec(Access::LocalWrite | Access::RemoteRead);
    empty.length = 0;
    for (void* address : {static_cast<void*>(arena), static_cast<void*>(nullptr)}) {
        empty.address = address;
        empty.iova = reinterpret_cast<std::uintptr_t>(address);
        const auto keys = memory.register_region(empty);
        ASSERT_TRUE(keys);
        EXPECT_EQ(memory.local(pd, keys->lkey, empty.iova, 0, {}).fault, Fault::None);
        EXPECT_EQ(memory.local(pd, keys->lkey, empty.iova, 1, {}).fault, Fault::OutOfBounds);
        EXPECT_EQ(memory.remote(pd, kQpn, keys->rkey, empty.iova, 1, Access::RemoteRead).fault,
                  Fault::OutOfBounds);
        EXPECT_TRUE(memory.deregister_region(keys->lkey));
    }
}

TEST_F(MemoryTest, RefusesBadRegions) {
    EXPECT_EQ(error_of(spec()), 0);
    EXPECT_EQ(error_of(spec(Access::RemoteWrite)), EINVAL);
    EXPECT_EQ(error_of(spec(Access::RemoteAtomic)), EINVAL);
    EXPECT_EQ(error_of(spec(Access::RemoteRead)), 0);
    for (int bit = 0; bit < 32; ++bit) {
        const bool known = bit < 10 || (bit >= 20 && bit < 30);
        const AccessSet access = AccessSet(1u << bit) | Access::LocalWrite;
        EXPECT_EQ(error_of(spec(access)), known ? 0 : EINVAL) << bit;
    }
    RegionSpec bad = spec();
    bad.pd = PdId{2};
    EXPECT_EQ(error_of(bad), EINVAL);
    bad = spec();
    bad.iova = ~std::uint64_t{0} - sizeof arena + 2;
    EXPECT_EQ(error_of(bad), EINVAL);
    --bad.iova;
    EXPECT_EQ(error_of(bad), 0);
    bad = spec();
    bad.length = ~std::uint64_t{0};
    EXPECT_EQ(error_of(bad), EINVAL);
}

TEST_F(MemoryTest, RefusesMemoryThatIsNotThere) {
    test::Pages pages(8);
    const auto region = [&](AccessSet access) {
        return RegionSpec{pd, pages.at(0), pages.bytes(), 0, access, false};
    };
    EXPECT_EQ(error_of(region(kFull)), 0);
    pages.protect(3, 1, PROT_READ);
    EXPECT_EQ(error_of(region(kFull)), EFAULT);
    EXPECT_EQ(error_of(region(Access::RemoteRead)), 0);
    EXPECT_EQ(error_of(region(kFull | Access::OnDemand)), 0);
    pages.unmap(3, 1);
    EXPECT_EQ(error_of(region(Access::RemoteRead)), EFAULT);
    EXPECT_EQ(error_of(region(Access::RemoteRead | Access::OnDemand)), 0);
}

TEST_F(MemoryTest, RegionsAreBounded) {
    for (int i = 0; i < 300; ++i) ASSERT_TRUE(memory.register_region(spec()));
    EXPECT_EQ(error_of(spec()), ENOMEM);
    EXPECT_EQ(memory.register_null_region(pd).error().code, ENOMEM);
    EXPECT_TRUE(memory.allocate_window(pd, WindowType::Type1));  // They have their own limit.
}

TEST_F(MemoryTest, ChecksDomainAndPermission) {
    const PdId other = *memory.alloc_pd();
    const auto at = reinterpret_cast<std::uintptr_t>(arena);
    constexpr Access kRemote[] = {Access::RemoteWrite, Access::RemoteRead, Access::RemoteAtomic};
    for (std::uint32_t bits = 0; bits < 16; ++bits) {
        const AccessSet granted = AccessSet(bits) | Access::LocalWrite;
        const RegionKeys keys = *memory.register_region(spec(granted));
        EXPECT_EQ(memory.local(pd, keys.lkey, at, 8, Access::LocalWrite).fault, Fault::None);
        EXPECT_EQ(memory.local(other, keys.lkey, at, 8, AccessSet{}).fault, Fault::WrongPd);
        for (const Access need : kRemote) {
            const Fault expected = granted.has(need) ? Fault::None : Fault::NoPermission;
            EXPECT_EQ(memory.remote(pd, kQpn, keys.rkey, at, 8, need).fault, expected) << bits;
            EXPECT_EQ(memory.remote(other, kQpn, keys.rkey, at, 8, need).fault, Fault::WrongPd);
        }
    }
    const LKey reader = memory.register_region(spec(AccessSet{}))->lkey;
    EXPECT_EQ(memory.local(pd, reader, at, 8, AccessSet{}).fault, Fault::None);
    EXPECT_EQ(memory.local(pd, reader, at, 8, Access::LocalWrite).fault, Fault::NoPermission);
}

TEST_F(MemoryTest, BoundsAgreeWithWideArithmetic) {
    __extension__ using Wide = unsigned __int128;
    EXPECT_TRUE(rc::check([&] {
        RegionSpec s = spec();
        const auto edge = *rc::gen::element<std::uint64_t>(0, 1, 4096, 1ull << 32, 1ull << 63,
                                                           ~std::uint64_t{0} - sizeof arena + 1);
        s.iova = edge;
        const RegionKeys keys = *memory.register_region(s);
        const auto near = rc::gen::map(rc::gen::inRange<std::int64_t>(-300, 300),
                                       [=](std::int64_t d) { return edge + std::uint64_t(d); });
        const auto address = *rc::gen::oneOf(near, rc::gen::arbitrary<std::uint64_t>());
        const auto length = *rc::gen::oneOf(rc::gen::inRange<std::uint64_t>(1, 300),
                                            rc::gen::nonZero<std::uint64_t>());
        const bool inside = address >= edge && Wide{address} + length <= Wide{edge} + sizeof arena;
        const Fault expected = inside ? Fault::None : Fault::OutOfBounds;
        const Lookup local = memory.local(pd, keys.lkey, address, length, AccessSet{});
        const Lookup remote =
            memory.remote(pd, kQpn, keys.rkey, address, length, Access::RemoteRead);
        RC_ASSERT(memory.deregister_region(keys.lkey).has_value());
        for (const Lookup& found : {local, remote}) {
            RC_ASSERT(found.fault == expected);
            if (!inside) continue;
            RC_ASSERT(found.slice.base == arena + (address - edge));
            RC_ASSERT(found.slice.length == length);
        }
    }));
}

TEST_F(MemoryTest, ZeroLengthNeedsNoKey) {
    EXPECT_EQ(memory.remote(pd, kQpn, RKey{0xdeadbeef}, 5, 0, Access::RemoteWrite).fault,
              Fault::None);
    EXPECT_EQ(memory.local(pd, LKey{0xdeadbeef}, 5, 0, Access::LocalWrite).fault, Fault::None);
}

TEST_F(MemoryTest, AtomicsNeedAlignedWords) {
    RegionSpec s = spec();
    s.iova = 0x1000;
    const RKey key = memory.register_region(s)->rkey;
    s.iova = 0x1001;
    const RKey skewed = memory.register_region(s)->rkey;
    for (std::uint64_t i = 0; i < 16; ++i) {
        const auto fault = [&](RKey k, std::uint64_t address) {
            return memory.remote(pd, kQpn, k, address, 8, Access::RemoteAtomic).fault;
        };
        EXPECT_EQ(fault(key, 0x1000 + i), i % 8 == 0 ? Fault::None : Fault::Misaligned);
        EXPECT_EQ(fault(skewed, 0x1001 + i), Fault::Misaligned);
    }
    EXPECT_EQ(memory.remote(pd, kQpn, key, 0x1000, 4, Access::RemoteAtomic).fault,
              Fault::Misaligned);
}

TEST_F(MemoryTest, StaleAndGuessedKeysFindNothing) {
    std::map<std::uint32_t, std::uint32_t> last_of_slot;  // Upper 24 bits of its last key.
    std::set<std::uint32_t> tags;
    RegionKeys before = *memory.register_region(spec());
    for (int i = 0; i < 20'000; ++i) {
        ASSERT_TRUE(memory.deregister_region(before.lkey));
        const auto at = reinterpret_cast<std::uintptr_t>(arena);
        EXPECT_EQ(memory.local(pd, before.lkey, at, 8, AccessSet{}).fault, Fault::NoSuchKey);
        EXPECT_EQ(memory.deregister_region(before.lkey).error().code, EINVAL);
        const RegionKeys now = *memory.register_region(spec());
        ASSERT_NE(now.lkey, before.lkey);
        std::uint32_t& last = last_of_slot[now.lkey.raw >> 16];
        ASSERT_NE(now.lkey.raw >> 8, last);
        last = now.lkey.raw >> 8;
        EXPECT_EQ(now.lkey.raw, now.rkey.raw);
        tags.insert(now.lkey.raw & 0xffff);
        before = now;
    }
    EXPECT_GT(tags.size(), 15'000u);  // 20,000 draws of 65,536: 17,200 expected.
    for (std::uint32_t flip = 1; flip < 0x10000; ++flip) {
        const RKey guess{before.rkey.raw ^ flip};
        ASSERT_EQ(memory.remote(pd, kQpn, guess, 0, 8, Access::RemoteRead).fault, Fault::NoSuchKey);
    }
    for (const std::uint32_t key : {0u, 1u, 0xffffu, 0x10000u, 0xffff'ffffu})
        EXPECT_EQ(memory.remote(pd, kQpn, RKey{key}, 0, 8, Access::RemoteRead).fault,
                  Fault::NoSuchKey);
}

TEST_F(MemoryTest, ZeroBasedImplicitAndNull) {
    RegionSpec s = spec(kFull | Access::ZeroBased);
    const RegionKeys zero = *memory.register_region(s);
    const Lookup found = memory.remote(pd, kQpn, zero.rkey, 16, 240, Access::RemoteRead);
    EXPECT_EQ(found.fault, Fault::None);
    EXPECT_EQ(found.slice.base, arena + 16);
    EXPECT_EQ(memory.remote(pd, kQpn, zero.rkey, 16, 241, Access::RemoteRead).fault,
              Fault::OutOfBounds);

    const RegionSpec whole{.pd = pd, .access = kFull | Access::OnDemand, .implicit = true};
    const RegionKeys all = *memory.register_region(whole);
    const auto at = reinterpret_cast<std::uintptr_t>(arena);
    EXPECT_EQ(memory.local(pd, all.lkey, at, 256, Access::LocalWrite).slice.base, arena);
    EXPECT_EQ(memory.local(pd, all.lkey, 0, 8, AccessSet{}).fault, Fault::Unmapped);

    const RegionKeys null = *memory.register_null_region(pd);
    const Lookup nothing = memory.local(pd, null.lkey, 77, 1 << 30, Access::LocalWrite);
    EXPECT_EQ(nothing.fault, Fault::None);
    EXPECT_TRUE(nothing.slice.null_region());
    EXPECT_EQ(memory.remote(pd, kQpn, null.rkey, 0, 8, AccessSet{}).fault, Fault::NoPermission);
    EXPECT_TRUE(memory.deregister_region(null.lkey));
}

TEST_F(MemoryTest, ReregistrationChangesWhatWasAskedFor) {
    const PdId other = *memory.alloc_pd();
    const RegionKeys keys = *memory.register_region(spec());
    const auto at = reinterpret_cast<std::uintptr_t>(arena);
    RegionSpec next{other, arena + 64, 64, 0x5000, Access::RemoteRead, false};

    ASSERT_TRUE(memory.reregister_region(keys.lkey, {.access = true}, next));
    EXPECT_EQ(memory.local(pd, keys.lkey, at, 8, AccessSet{}).fault, Fault::None);
    EXPECT_EQ(memory.local(pd, keys.lkey, at, 8, Access::LocalWrite).fault, Fault::NoPermission);
    ASSERT_TRUE(memory.reregister_region(keys.lkey, {.translation = true}, next));
    EXPECT_EQ(memory.local(pd, keys.lkey, 0x5000, 64, AccessSet{}).slice.base, arena + 64);
    EXPECT_EQ(memory.local(pd, keys.lkey, at, 8, AccessSet{}).fault, Fault::OutOfBounds);
    ASSERT_TRUE(memory.reregister_region(keys.lkey, {.pd = true}, next));
    EXPECT_EQ(memory.local(pd, keys.lkey, 0x5000, 8, AccessSet{}).fault, Fault::WrongPd);
    EXPECT_EQ(memory.local(other, keys.lkey, 0x5000, 8, AccessSet{}).fault, Fault::None);
    EXPECT_EQ(memory.dealloc_pd(other).error().code, EBUSY);
    EXPECT_TRUE(memory.dealloc_pd(pd));

    next.access = Access::RemoteWrite;  // Without LocalWrite: refused, and nothing has changed.
    EXPECT_EQ(memory.reregister_region(keys.lkey, {.access = true}, next).error().code, EINVAL);
    EXPECT_EQ(memory.local(other, keys.lkey, 0x5000, 8, AccessSet{}).fault, Fault::None);
    next.pd = pd;
    EXPECT_EQ(memory.reregister_region(keys.lkey, {.pd = true}, next).error().code, EINVAL);
    EXPECT_EQ(memory.reregister_region(LKey{1}, {.pd = true}, next).error().code, EINVAL);
    EXPECT_TRUE(memory.deregister_region(keys.lkey));
}

// The table grows without its lock: none of those that wait for it is refused, or given a slot
// twice.
TEST(Fault, EachHasASentenceOfItsOwn) {
    std::set<std::string> sentences;
    for (int fault = 0; fault <= static_cast<int>(Fault::Unmapped); ++fault)
        EXPECT_TRUE(sentences.insert(to_string(static_cast<Fault>(fault))).second) << fault;
}

TEST(Memory, GrowsForSeveralThreadsAtOnce) {
    constexpr int kThreads = 4, kEach = 3000;
    Prng random(1);
    Memory memory(Limits{}, random);
    const PdId pd = *memory.alloc_pd();
    static std::byte bytes[8];
    std::array<std::vector<std::uint32_t>, kThreads> keys;
    std::vector<std::thread> threads;
    for (std::vector<std::uint32_t>& mine : keys)
        threads.emplace_back([&memory, &mine, pd] {
            for (int i = 0; i < kEach; ++i) {
                const auto made = memory.register_region({pd, bytes, 8, 0, AccessSet{}, false});
                if (made) mine.push_back(made->lkey.raw);
            }
        });
    for (std::thread& thread : threads) thread.join();
    std::set<std::uint32_t> all;
    for (const std::vector<std::uint32_t>& mine : keys) all.insert(mine.begin(), mine.end());
    EXPECT_EQ(all.size(), std::size_t{kThreads} * kEach);
}

// Lookups in parallel to registrations in the same slots: what is found is never a mixture of the
// two regions that take turns.
TEST_F(MemoryTest, LookupsNeverSeeHalfARegion) {
    const RegionSpec one{pd, arena + 96, 96, 1000, AccessSet{}, false};
    const RegionSpec two{pd, arena + 64, 64, 1032, AccessSet{}, false};
    std::atomic<std::uint32_t> shared{0};
    std::atomic<std::uint64_t> found_one{0};
    std::atomic<std::uint64_t> found_two{0};
    std::atomic<bool> stop{false};
    std::thread reader([&] {
        while (!stop) {
            const LKey key{shared.load()};
            const Lookup first = memory.local(pd, key, 1000, 96, AccessSet{});
            if (first.fault == Fault::None) {
                EXPECT_EQ(first.slice.base, arena + 96);
                ++found_one;
            }
            const Lookup second = memory.local(pd, key, 1032, 64, AccessSet{});
            if (second.fault != Fault::None) continue;
            // Both hold this range: bytes 32 to 95 of the one, all of the other.
            EXPECT_TRUE(second.slice.base == arena + 128 || second.slice.base == arena + 64);
            found_two += second.slice.base == arena + 64;
        }
    });
    while (found_one < 2000 || found_two < 2000) {
        const LKey key = memory.register_region(one)->lkey;
        shared = key.raw;
        for (int i = 0; i < 20; ++i)
            EXPECT_TRUE(memory.reregister_region(key, {.translation = true}, i % 2 ? one : two));
        EXPECT_TRUE(memory.deregister_region(key));
    }
    stop = true;
    reader.join();
}

}  // namespace
}  // namespace feroce::mem
