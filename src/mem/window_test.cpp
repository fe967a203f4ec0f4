// Memory windows: every rule of binding and invalidation, for both types.
#include <gtest/gtest.h>

#include <cerrno>
#include <functional>
#include <vector>

#include "mem/memory.hpp"

namespace feroce::mem::window_test {
namespace {

constexpr Qpn kQpn{17};
constexpr Qpn kOtherQpn{18};
constexpr AccessSet kGround =
    (Access::LocalWrite | Access::MwBind) | (Access::RemoteRead | Access::RemoteWrite);

class WindowTest : public testing::TestWithParam<WindowType> {
protected:
    WindowTest() : random(3), memory({.pds = 4, .regions = 16, .windows = 4}, random) {
        pd = *memory.alloc_pd();
        other_pd = *memory.alloc_pd();
        region = add_region(pd, kGround);
        window = *memory.allocate_window(pd, GetParam());
    }
    bool type2() const { return GetParam() == WindowType::Type2; }
    std::uint64_t at(std::size_t i) const { return reinterpret_cast<std::uintptr_t>(arena) + i; }
    LKey add_region(PdId domain, AccessSet access) {
        return memory.register_region({domain, arena, sizeof arena, at(0), access, false})->lkey;
    }
    WindowBind good_bind() {
        return {window,
                region,
                at(16),
                32,
                Access::RemoteRead | Access::RemoteWrite,
                memory.fresh_window_key(window),
                kQpn,
                pd};
    }
    RKey bind_well() {
        const WindowBind bind = good_bind();
        EXPECT_EQ(memory.bind_window(bind), BindOutcome::Bound);
        window = bind.new_rkey;
        return window;
    }
    Fault use(RKey key, std::uint64_t address, std::uint64_t length = 8,
              AccessSet need = Access::RemoteRead, Qpn qpn = kQpn) {
        return memory.remote(pd, qpn, key, address, length, need).fault;
    }

    Prng random;
    Memory memory;
    PdId pd;
    PdId other_pd;
    LKey region;
    RKey window;
    alignas(8) std::byte arena[64] = {};
};

TEST_P(WindowTest, AnswersOnlyWhileBoundAndOnlyToItsKey) {
    const RKey unbound = window;
    EXPECT_EQ(use(unbound, at(16)), Fault::NoSuchKey);
    const RKey bound = bind_well();
    EXPECT_NE(bound, unbound);
    EXPECT_EQ(bound.raw >> 8, unbound.raw >> 8);
    EXPECT_EQ(use(unbound, at(16)), Fault::NoSuchKey);
    EXPECT_EQ(use(bound, at(16), 32), Fault::None);
    EXPECT_EQ(memory.remote(pd, kQpn, bound, at(20), 4, Access::RemoteWrite).slice.base,
              arena + 20);
    EXPECT_EQ(use(bound, at(15)), Fault::OutOfBounds);
    EXPECT_EQ(use(bound, at(16), 33), Fault::OutOfBounds);
    EXPECT_EQ(use(bound, at(16), 8, Access::RemoteAtomic), Fault::NoPermission);
    EXPECT_EQ(memory.remote(other_pd, kQpn, bound, at(16), 8, Access::RemoteRead).fault,
              Fault::WrongPd);
    // A window has no lkey.
    EXPECT_EQ(memory.local(pd, LKey{bound.raw}, at(16), 8, AccessSet{}).fault, Fault::NoSuchKey);
}

TEST_P(WindowTest, OnlyType2IsTiedToItsQueuePair) {
    const RKey key = bind_well();
    EXPECT_EQ(use(key, at(16), 8, Access::RemoteRead, kOtherQpn),
              type2() ? Fault::NotBoundToQp : Fault::None);
}

// As rxe and irdma have it: programs pass any key whose low byte is the one they want.
TEST_P(WindowTest, OnlyTheLowByteOfTheNewKeyCounts) {
    WindowBind bind = good_bind();
    const RKey wanted = bind.new_rkey;
    bind.new_rkey.raw = 0xabcd'ef00 | (wanted.raw & 0xff);
    EXPECT_EQ(memory.bind_window(bind), BindOutcome::Bound);
    EXPECT_EQ(use(wanted, at(16)), Fault::None);
    EXPECT_EQ(use(bind.new_rkey, at(16)), Fault::NoSuchKey);
}

TEST_P(WindowTest, RefusesBadBinds) {
    const LKey not_bindable = add_region(pd, Access::LocalWrite);
    const LKey read_only = add_region(pd, Access::MwBind | Access::RemoteRead);
    const LKey elsewhere = add_region(other_pd, kGround);
    const LKey zero_based = add_region(pd, kGround | Access::ZeroBased);
    const LKey null = memory.register_null_region(pd)->lkey;
    struct Case {
        BindOutcome expected;
        std::function<void(WindowBind&)> spoil;
    };
    const std::vector<Case> cases = {
        {BindOutcome::NoSuchWindow, [](auto& b) { b.window = RKey{0x4000'0000}; }},
        {BindOutcome::NoSuchWindow, [&](auto& b) { b.window = RKey{region.raw}; }},
        {BindOutcome::NoSuchRegion, [](auto& b) { b.region = LKey{0x4000'0000}; }},
        {BindOutcome::NoSuchRegion, [&](auto& b) { b.region = LKey{window.raw}; }},
        {BindOutcome::NoSuchRegion, [&](auto& b) { b.region = null; }},
        {BindOutcome::WrongPd, [&](auto& b) { b.pd = other_pd; }},
        {BindOutcome::WrongPd, [&](auto& b) { b.region = elsewhere; }},
        {BindOutcome::BadKey, [&](auto& b) { b.new_rkey = window; }},
        {BindOutcome::BadKey, [&](auto& b) { b.new_rkey.raw = window.raw & 0xff; }},
        {BindOutcome::NoPermission, [&](auto& b) { b.region = not_bindable; }},
        {BindOutcome::NoPermission, [&](auto& b) { b.region = read_only; }},
        {BindOutcome::OutOfBounds, [&](auto& b) { b.address = at(0) - 1; }},
        {BindOutcome::OutOfBounds, [&](auto& b) { b.address = at(33); }},
        {BindOutcome::OutOfBounds, [](auto& b) { b.length = ~std::uint64_t{0}; }},
        {BindOutcome::BadAccess, [](auto& b) { b.access = Access::LocalWrite; }},
        {BindOutcome::BadAccess, [](auto& b) { b.access = Access::MwBind; }},
        {BindOutcome::BadAccess, [&](auto& b) { b.region = zero_based, b.address = 16; }},
    };
    for (std::size_t i = 0; i < cases.size(); ++i) {
        WindowBind bind = good_bind();
        cases[i].spoil(bind);
        EXPECT_EQ(memory.bind_window(bind), cases[i].expected) << i;
        EXPECT_EQ(use(bind.new_rkey, at(16)), Fault::NoSuchKey) << i;
    }
    // A window that only reads may stand on a region that cannot be written.
    WindowBind reader = good_bind();
    reader.region = read_only;
    reader.access = Access::RemoteRead;
    EXPECT_EQ(memory.bind_window(reader), BindOutcome::Bound);
}

TEST_P(WindowTest, RebindingAndUnbinding) {
    const RKey first = bind_well();
    const WindowBind again = good_bind();
    if (type2()) {
        EXPECT_EQ(memory.bind_window(again), BindOutcome::NotFree);
        EXPECT_EQ(use(first, at(16)), Fault::None);
    } else {
        EXPECT_EQ(memory.bind_window(again), BindOutcome::Bound);
        window = again.new_rkey;
        EXPECT_EQ(use(first, at(16)), Fault::NoSuchKey);
        EXPECT_EQ(use(window, at(16)), Fault::None);
    }
    if (type2()) {
        EXPECT_EQ(memory.invalidate_local(pd, kQpn, window), Fault::None);
    }
    WindowBind empty = good_bind();
    empty.length = 0;
    EXPECT_EQ(memory.bind_window(empty), type2() ? BindOutcome::BadLength : BindOutcome::Unbound);
    EXPECT_EQ(use(window, at(16)), Fault::NoSuchKey);
    EXPECT_EQ(use(empty.new_rkey, at(16)), Fault::NoSuchKey);
    EXPECT_TRUE(memory.deregister_region(region));  // Nothing is bound to it any more.
}

TEST_P(WindowTest, ZeroBasedForType2Only) {
    WindowBind bind = good_bind();
    bind.access = Access::RemoteRead | Access::ZeroBased;
    if (!type2()) {
        EXPECT_EQ(memory.bind_window(bind), BindOutcome::BadAccess);
        return;
    }
    EXPECT_EQ(memory.bind_window(bind), BindOutcome::Bound);
    const Lookup found = memory.remote(pd, kQpn, bind.new_rkey, 0, 32, Access::RemoteRead);
    EXPECT_EQ(found.fault, Fault::None);
    EXPECT_EQ(found.slice.base, arena + 16);
    EXPECT_EQ(use(bind.new_rkey, 0, 33), Fault::OutOfBounds);
}

TEST_P(WindowTest, InvalidationIsForBoundType2OfTheSameQueuePair) {
    using Invalidate = Fault (Memory::*)(PdId, Qpn, RKey);
    for (const Invalidate invalidate : {&Memory::invalidate_local, &Memory::invalidate_remote}) {
        EXPECT_EQ((memory.*invalidate)(pd, kQpn, window), Fault::NoSuchKey);
        const RKey key = bind_well();
        EXPECT_EQ((memory.*invalidate)(pd, kQpn, RKey{key.raw ^ 1}), Fault::NoSuchKey);
        EXPECT_EQ((memory.*invalidate)(pd, kQpn, RKey{region.raw}), Fault::NoPermission);
        if (!type2()) {
            EXPECT_EQ((memory.*invalidate)(pd, kQpn, key), Fault::NoPermission);
            EXPECT_EQ(use(key, at(16)), Fault::None);
            return;
        }
        EXPECT_EQ((memory.*invalidate)(other_pd, kQpn, key), Fault::WrongPd);
        EXPECT_EQ((memory.*invalidate)(pd, kOtherQpn, key), Fault::NotBoundToQp);
        EXPECT_EQ(use(key, at(16)), Fault::None);
        EXPECT_EQ((memory.*invalidate)(pd, kQpn, key), Fault::None);
        EXPECT_EQ(use(key, at(16)), Fault::NoSuchKey);
        EXPECT_EQ((memory.*invalidate)(pd, kQpn, key), Fault::NoSuchKey);
        // The last key may not come back at once.
        WindowBind repeat = good_bind();
        repeat.new_rkey = key;
        EXPECT_EQ(memory.bind_window(repeat), BindOutcome::BadKey);
    }
}

TEST_P(WindowTest, RegionsStayWhileWindowsStandOnThem) {
    bind_well();
    EXPECT_EQ(memory.deregister_region(region).error().code, EBUSY);
    const RegionSpec spec{pd, arena, 64, 0, Access::LocalWrite, false};
    EXPECT_EQ(memory.reregister_region(region, {.access = true}, spec).error().code, EBUSY);
    EXPECT_TRUE(memory.free_window(window));
    EXPECT_EQ(use(window, at(16)), Fault::NoSuchKey);
    EXPECT_EQ(memory.free_window(window).error().code, EINVAL);
    EXPECT_TRUE(memory.deregister_region(region));
}

TEST_P(WindowTest, AnyKeyOfItsLifeFreesAWindow) {
    const RKey first = window;
    bind_well();
    EXPECT_TRUE(memory.free_window(first));
    EXPECT_EQ(memory.free_window(RKey{region.raw}).error().code, EINVAL);
    EXPECT_EQ(memory.deregister_region(LKey{first.raw}).error().code, EINVAL);
}

TEST_P(WindowTest, WindowsAreBoundedAndFreedOnesComeBack) {
    std::vector<RKey> more;
    for (int i = 0; i < 3; ++i) more.push_back(*memory.allocate_window(pd, GetParam()));
    EXPECT_EQ(memory.allocate_window(pd, GetParam()).error().code, ENOMEM);
    EXPECT_TRUE(memory.free_window(more[1]));
    EXPECT_TRUE(memory.allocate_window(pd, GetParam()));
    EXPECT_EQ(memory.allocate_window(PdId{4}, GetParam()).error().code, EINVAL);
}

TEST_P(WindowTest, AQueuePairTakesItsType2WindowsAlong) {
    const RKey key = bind_well();
    memory.unbind_windows_of(kOtherQpn);
    EXPECT_EQ(use(key, at(16)), Fault::None);
    memory.unbind_windows_of(kQpn);
    EXPECT_EQ(use(key, at(16)), type2() ? Fault::NoSuchKey : Fault::None);
    EXPECT_EQ(memory.deregister_region(region).has_value(), type2());
}

TEST_P(WindowTest, FreshKeysDifferInTheLowByteOnly) {
    for (int i = 0; i < 1000; ++i) {
        const RKey next = memory.fresh_window_key(window);
        EXPECT_NE(next, window);
        EXPECT_EQ(next.raw >> 8, window.raw >> 8);
        window = next;
    }
}

INSTANTIATE_TEST_SUITE_P(Types, WindowTest, testing::Values(WindowType::Type1, WindowType::Type2),
                         [](const auto& type) {
                             return type.param == WindowType::Type1 ? "Type1" : "Type2";
                         });

}  // namespace
}  // namespace feroce::mem::window_test
