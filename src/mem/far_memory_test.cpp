// Far regions in the table: lookups say Far, the memory is found by key, windows inherit it.
#include "mem/far_memory.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "mem/memory.hpp"
#include "mem/scatter.hpp"

namespace feroce::mem {
namespace {
namespace far_memory_test {

constexpr std::uint64_t kAddress = 0x7f00'0000'0000;  // Mapped nowhere.
constexpr std::uint64_t kLength = 4096;
constexpr AccessSet kFull = (Access::LocalWrite | Access::RemoteWrite) |
                            (Access::RemoteRead | Access::RemoteAtomic) | Access::MwBind;
constexpr Qpn kQpn{17};

class NoMemory final : public FarMemory {
public:
    std::unique_ptr<Staging> stage(std::uint32_t size) override { return heap_staging(size); }
    void start(const Copy& copy) override { copy.listener->copy_done(copy.token, false); }
    void close() override {}
};

class FarMemoryTest : public testing::Test {
protected:
    FarMemoryTest() : random(7), memory({.pds = 3, .regions = 300, .windows = 8}, random) {
        pd = *memory.alloc_pd();
        key = memory.register_region(spec(far))->lkey;
    }
    RegionSpec spec(std::shared_ptr<FarMemory> of, AccessSet access = kFull) const {
        RegionSpec out{pd, reinterpret_cast<void*>(kAddress), kLength, kAddress, access};
        out.far = std::move(of);
        return out;
    }

    Prng random;
    Memory memory;
    PdId pd;
    std::shared_ptr<NoMemory> far = std::make_shared<NoMemory>();
    LKey key;
};

TEST_F(FarMemoryTest, IsRegisteredWithoutAMappingAndAnswersFar) {
    EXPECT_EQ(memory.register_region(spec(nullptr)).error().code, EFAULT);
    const Lookup local = memory.local(pd, key, kAddress + 8, 16, Access::LocalWrite);
    EXPECT_EQ(local.fault, Fault::Far);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(local.slice.base), kAddress + 8);
    EXPECT_EQ(local.slice.length, 16u);
    const RKey rkey{key.raw};
    EXPECT_EQ(memory.remote(pd, kQpn, rkey, kAddress, 8, Access::RemoteRead).fault, Fault::Far);
    EXPECT_EQ(memory.remote(pd, kQpn, rkey, kAddress, 8, Access::RemoteAtomic).fault, Fault::Far);
    EXPECT_EQ(memory.far_memory(key.raw), far);
}

TEST_F(FarMemoryTest, KeepsBoundsAndRights) {
    EXPECT_EQ(memory.local(pd, key, kAddress, kLength + 1, {}).fault, Fault::OutOfBounds);
    EXPECT_EQ(memory.local(PdId{99}, key, kAddress, 1, {}).fault, Fault::WrongPd);
    const LKey readable = memory.register_region(spec(far, Access::RemoteRead))->lkey;
    EXPECT_EQ(memory.local(pd, readable, kAddress, 1, Access::LocalWrite).fault,
              Fault::NoPermission);
    EXPECT_EQ(memory.register_region(spec(far, AccessSet(Access::Far))).error().code, EINVAL);
    EXPECT_EQ(memory.register_region(spec(nullptr, AccessSet(Access::Far))).error().code, EINVAL);
    EXPECT_EQ(memory.region_with(key.raw).access, kFull);
}

TEST_F(FarMemoryTest, IsRefusedByCodeThatOnlyKnowsHostMemory) {
    std::byte bytes[16] = {};
    const Sge list[] = {{kAddress, 16, key}};
    EXPECT_EQ(gather(memory, pd, list, 0, bytes).fault, Fault::Far);
    EXPECT_EQ(scatter(memory, pd, list, 0, bytes).fault, Fault::Far);
}

TEST_F(FarMemoryTest, IsFoundThroughAWindow) {
    const RKey window = *memory.allocate_window(pd, WindowType::Type2);
    const WindowBind bind{
        window, key, kAddress + 64, 128, Access::RemoteWrite, RKey{window.raw + 1}, kQpn, pd};
    ASSERT_EQ(memory.bind_window(bind), BindOutcome::Bound);
    const RKey bound = Memory::bound_key(window, bind.new_rkey);
    const Lookup found = memory.remote(pd, kQpn, bound, kAddress + 64, 8, Access::RemoteWrite);
    EXPECT_EQ(found.fault, Fault::Far);
    EXPECT_EQ(memory.far_memory(bound.raw), far);
    EXPECT_EQ(memory.invalidate_local(pd, kQpn, bound), Fault::None);
    EXPECT_EQ(memory.far_memory(bound.raw), nullptr);
}

TEST_F(FarMemoryTest, IsLetGoOfByDeregistration) {
    EXPECT_EQ(far.use_count(), 2);
    EXPECT_TRUE(memory.deregister_region(key));
    EXPECT_EQ(far.use_count(), 1);
    EXPECT_EQ(memory.far_memory(key.raw), nullptr);
}

TEST_F(FarMemoryTest, ReregistrationExchangesIt) {
    alignas(64) static std::byte host[kLength];
    RegionSpec to_host{pd, host, kLength, kAddress, kFull};
    ASSERT_TRUE(memory.reregister_region(key, {.access = true}, to_host));
    EXPECT_EQ(memory.local(pd, key, kAddress, 1, {}).fault, Fault::Far);
    ASSERT_TRUE(memory.reregister_region(key, {.translation = true}, to_host));
    EXPECT_EQ(memory.local(pd, key, kAddress, 1, {}).fault, Fault::None);
    EXPECT_EQ(far.use_count(), 1);
    ASSERT_TRUE(memory.reregister_region(key, {.translation = true}, spec(far)));
    EXPECT_EQ(memory.local(pd, key, kAddress, 1, {}).fault, Fault::Far);
    EXPECT_EQ(far.use_count(), 2);
}

// One look gives both, so that they are of one registration.
TEST_F(FarMemoryTest, IsFoundTogetherWithItsRange) {
    const FarLookup local = memory.local_or_far(pd, key, kAddress + 8, 16, Access::LocalWrite);
    EXPECT_EQ(local.found.fault, Fault::Far);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(local.found.slice.base), kAddress + 8);
    EXPECT_EQ(local.memory, far);
    const RKey rkey{key.raw};
    const auto remote = [&](std::uint64_t length) {
        return memory.remote_or_far(pd, kQpn, rkey, kAddress, length, Access::RemoteRead);
    };
    EXPECT_EQ(remote(8).memory, far);
    EXPECT_EQ(remote(kLength + 1).found.fault, Fault::OutOfBounds);
    EXPECT_EQ(remote(kLength + 1).memory, nullptr);
    alignas(64) static std::byte host[kLength];
    const RegionSpec to_host{pd, host, kLength, kAddress, kFull};
    ASSERT_TRUE(memory.reregister_region(key, {.translation = true}, to_host));
    EXPECT_EQ(remote(8).found.fault, Fault::None);
    EXPECT_EQ(remote(8).memory, nullptr);
}

// A window's memory is told to the one who frees it, who waits for what came through it.
TEST_F(FarMemoryTest, IsToldWhenAWindowIsFreed) {
    const RKey unbound = *memory.allocate_window(pd, WindowType::Type2);
    EXPECT_EQ(*memory.free_window(unbound), nullptr);
    const RKey window = *memory.allocate_window(pd, WindowType::Type2);
    const WindowBind bind{window, key, kAddress, 128, Access::RemoteWrite, RKey{window.raw + 1},
                          kQpn,   pd};
    ASSERT_EQ(memory.bind_window(bind), BindOutcome::Bound);
    EXPECT_EQ(*memory.free_window(window), far);
}

TEST(HeapStaging, IsAsLargeAsAsked) {
    EXPECT_EQ(heap_staging(1000)->bytes().size(), 1000u);
}

// Small and large, at any place of a line, and nothing beside them.
TEST(FillStaging, TakesEveryByteAndNoOther) {
    constexpr std::size_t kMost = 128 * 1024, kMargin = 128;
    std::vector<std::byte> from(kMost + kMargin), to(kMost + 2 * kMargin);
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + i / 251);
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{1}, std::size_t{4096}, std::size_t{16383}, std::size_t{16384},
          std::size_t{16500}, std::size_t{65537}, kMost}) {
        for (std::size_t shift = 0; shift < 64; shift += shift < 4 ? 1 : 15) {
            std::fill(to.begin(), to.end(), std::byte{0xee});
            const ByteView bytes = ByteView(from).subspan(63 - shift, size);
            fill_staging(ByteSpan(to).subspan(kMargin + shift, size), bytes);
            const auto begin = to.begin() + static_cast<std::ptrdiff_t>(kMargin + shift);
            const auto end = begin + static_cast<std::ptrdiff_t>(size);
            ASSERT_TRUE(std::equal(bytes.begin(), bytes.end(), begin)) << size << " at " << shift;
            const auto is_blank = [](std::byte b) { return b == std::byte{0xee}; };
            ASSERT_TRUE(std::all_of(to.begin(), begin, is_blank)) << size << " at " << shift;
            ASSERT_TRUE(std::all_of(end, to.end(), is_blank)) << size << " at " << shift;
        }
    }
}

}  // namespace far_memory_test
}  // namespace
}  // namespace feroce::mem
