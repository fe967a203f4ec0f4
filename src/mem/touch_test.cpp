// Copies at every alignment against a plain model, atomics against the application's own, and
// probes.
#include "mem/touch.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "mem/guard.hpp"
#include "mem/test_pages.hpp"
#include "mem/watch.hpp"
// Under another name: the linker keeps one copy of a function, but the fix-ups of both.
#define word word_of_the_test
#include "mem/word.hpp"
#undef word

namespace feroce::mem {
namespace {

constexpr std::byte kFence{0xee};

std::byte pattern(std::size_t i) {
    return static_cast<std::byte>(i * 7 + 1);
}

struct Buffers {  // Both start aligned to 64 and are filled with kFence.
    alignas(64) std::byte registered[512];
    alignas(64) std::byte own[512];

    Buffers() {
        std::memset(registered, 0xee, sizeof registered);
        std::memset(own, 0xee, sizeof own);
    }
};

// All of `bytes` is kFence but [from, from + size), which holds the pattern.
void expect_only(const std::byte (&bytes)[512], std::size_t from, std::size_t size) {
    for (std::size_t i = 0; i < sizeof bytes; ++i) {
        const bool inside = i >= from && i < from + size;
        ASSERT_EQ(bytes[i], inside ? pattern(i - from) : kFence) << i << ' ' << from << ' ' << size;
    }
}

void copy_both_ways(std::size_t at, std::size_t own_at, std::size_t size) {
    Buffers b;
    for (std::size_t i = 0; i < size; ++i) b.own[own_at + i] = pattern(i);
    ASSERT_TRUE(write_memory({b.registered + at, size}, {b.own + own_at, size}));
    expect_only(b.registered, at, size);

    std::memset(b.own, 0xee, sizeof b.own);
    ASSERT_TRUE(read_memory({b.registered + at, size}, {b.own + own_at, size}));
    expect_only(b.own, own_at, size);
}

TEST(Touch, CopiesEveryAlignmentAndLengthAndNothingElse) {
    for (std::size_t at = 0; at < 16; ++at)
        for (std::size_t own_at = 0; own_at < 8; ++own_at)
            for (std::size_t size = 0; size <= 170; ++size)
                copy_both_ways(64 + at, 64 + own_at, size);
}

#if defined(__x86_64__)
// What processors use that may tear sixteen bytes; few machines have one.
TEST(Touch, ABlockGoesByWordsWhereSixteenBytesAreNotOne) {
    constexpr std::size_t kAt = 64, kOwnAt = 67;
    Buffers b;
    for (std::size_t i = 0; i < word_of_the_test::kBlock; ++i) b.own[kOwnAt + i] = pattern(i);
    ASSERT_TRUE(word_of_the_test::write_by_8(b.registered + kAt, b.own + kOwnAt));
    expect_only(b.registered, kAt, word_of_the_test::kBlock);
    std::memset(b.own, 0xee, sizeof b.own);
    ASSERT_TRUE(word_of_the_test::read_by_8(b.registered + kAt, b.own + kOwnAt));
    expect_only(b.own, kOwnAt, word_of_the_test::kBlock);

    ASSERT_EQ(guard_recheck(), GuardMode::Direct);
    test::Pages pages(2);
    pages.unmap(1, 1);
    for (std::size_t good = 0; good < word_of_the_test::kBlock; good += 8) {
        EXPECT_FALSE(word_of_the_test::read_by_8(pages.at(1) - good, b.own)) << good;
        EXPECT_FALSE(word_of_the_test::write_by_8(pages.at(1) - good, b.own)) << good;
    }
    EXPECT_TRUE(word_of_the_test::read_by_8(pages.at(1) - word_of_the_test::kBlock, b.own));
}
#endif

TEST(Touch, ZeroLengthTouchesNothing) {
    auto* const nowhere = reinterpret_cast<std::byte*>(8);
    EXPECT_TRUE(read_memory({nowhere, 0}, {}));
    EXPECT_TRUE(write_memory({nowhere, 0}, {}));
}

TEST(Touch, NullRegionReadsZerosAndForgetsWrites) {
    std::byte bytes[24];
    std::memset(bytes, 0xee, sizeof bytes);
    EXPECT_TRUE(write_memory({nullptr, 24}, bytes));
    EXPECT_TRUE(read_memory({nullptr, 24}, bytes));
    for (const std::byte b : bytes) EXPECT_EQ(b, std::byte{0});
    EXPECT_EQ(fetch_add({nullptr, 8}, 5), 0u);
    EXPECT_EQ(compare_swap({nullptr, 8}, 0, 5), 0u);
    EXPECT_TRUE(atomic_write({nullptr, 8}, 5));
}

TEST(Touch, CompareSwapSwapsOnlyWhatIsEqual) {
    alignas(8) std::uint64_t word = 10;
    const Slice slice{reinterpret_cast<std::byte*>(&word), 8};
    EXPECT_EQ(compare_swap(slice, 11, 99), 10u);
    EXPECT_EQ(word, 10u);
    EXPECT_EQ(compare_swap(slice, 10, 99), 10u);
    EXPECT_EQ(word, 99u);
    EXPECT_TRUE(atomic_write(slice, 7));
    EXPECT_EQ(fetch_add(slice, ~std::uint64_t{0}), 7u);
    EXPECT_EQ(word, 6u);
}

TEST(Touch, AtomicsOfManyThreadsAndOfTheApplicationSumExactly) {
    constexpr std::uint64_t kRounds = 50'000;
    alignas(8) std::uint64_t word = 0;
    const Slice slice{reinterpret_cast<std::byte*>(&word), 8};
    const auto add = [&] {
        for (std::uint64_t i = 0; i < kRounds; ++i) EXPECT_TRUE(fetch_add(slice, 3));
    };
    const auto swap = [&] {
        for (std::uint64_t i = 0; i < kRounds; ++i) {
            std::uint64_t seen = *fetch_add(slice, 0);
            while (true) {
                const std::uint64_t before = *compare_swap(slice, seen, seen + 5);
                if (before == seen) break;
                seen = before;
            }
        }
    };
    const auto application = [&] {
        for (std::uint64_t i = 0; i < kRounds; ++i) std::atomic_ref(word).fetch_add(7);
    };
    {
        std::vector<std::jthread> threads;
        threads.emplace_back(add);
        threads.emplace_back(add);
        threads.emplace_back(swap);
        threads.emplace_back(application);
    }
    EXPECT_EQ(word, kRounds * (3 + 3 + 5 + 7));
}

TEST(Touch, AlignedWord) {
    alignas(8) std::byte bytes[16];
    EXPECT_TRUE(is_aligned_word({bytes, 8}));
    EXPECT_FALSE(is_aligned_word({bytes + 4, 8}));
    EXPECT_FALSE(is_aligned_word({bytes, 4}));
}

// What a watch is told of, by the length of each piece.
std::vector<std::size_t> placed, heard;

TEST(Touch, AWatchChoosesTheOrderAndHearsWhatWasWritten) {
    static const Watch watch{
        .place =
            [](std::byte* at, const std::byte* from, std::size_t size, Watch::Store store) {
                placed.push_back(size);
                return store(at + 1, from + 1, size - 1) && store(at, from, 1);
            },
        .written = [](const void*, std::size_t size) { heard.push_back(size); }};
    static const Watch nothing{};
    test::Pages pages(2);
    const std::vector<std::byte> from(100, std::byte{7});
    set_watch(watch);
    EXPECT_TRUE(write_memory({pages.at(0), 100}, from));
    EXPECT_EQ(fetch_add({pages.at(0) + 200, 8}, 3), 0u);
    pages.unmap(1, 1);
    EXPECT_FALSE(write_memory({pages.at(0) + pages.page() - 10, 100}, from));
    set_watch(nothing);
    EXPECT_TRUE(write_memory({pages.at(0) + 300, 100}, from));
    EXPECT_EQ(placed, (std::vector<std::size_t>{100, 100}));
    EXPECT_EQ(heard, (std::vector<std::size_t>{100, 8}));
    EXPECT_EQ(std::memcmp(pages.at(0), from.data(), from.size()), 0);
    EXPECT_EQ(pages.at(0)[200], std::byte{3});
}

TEST(Touch, AWatchHearsWhatTheKernelWrote) {
    static const Watch watch{
        .place = nullptr, .written = [](const void*, std::size_t size) { heard.push_back(size); }};
    static const Watch nothing{};
    test::Pages pages(2);
    pages.unmap(1, 1);
    const std::vector<std::byte> from(100, std::byte{7});
    heard.clear();
    struct sigaction theirs {};
    struct sigaction ours {};
    theirs.sa_handler = SIG_DFL;
    ASSERT_EQ(guard_recheck(), GuardMode::Direct);
    set_watch(watch);
    ASSERT_EQ(sigaction(SIGSEGV, &theirs, &ours), 0);
    EXPECT_EQ(guard_recheck(), GuardMode::Kernel);
    EXPECT_TRUE(write_memory({pages.at(0), 100}, from));
    EXPECT_FALSE(write_memory({pages.at(1), 100}, from));
    set_watch(nothing);
    ASSERT_EQ(sigaction(SIGSEGV, &ours, nullptr), 0);
    EXPECT_EQ(guard_recheck(), GuardMode::Direct);
    EXPECT_EQ(heard, std::vector<std::size_t>{100});
    EXPECT_EQ(std::memcmp(pages.at(0), from.data(), from.size()), 0);
}

TEST(Probe, SeesHolesAndProtection) {
    test::Pages pages(64);
    EXPECT_TRUE(probe_memory(pages.at(0), pages.bytes(), true));
    EXPECT_TRUE(probe_memory(pages.at(0) + 1, 1, true));

    pages.protect(63, 1, PROT_READ);
    EXPECT_FALSE(probe_memory(pages.at(0), pages.bytes(), true));
    EXPECT_TRUE(probe_memory(pages.at(0), pages.bytes(), false));
    EXPECT_TRUE(probe_memory(pages.at(0), pages.bytes() - pages.page(), true));
    EXPECT_FALSE(probe_memory(pages.at(0), pages.bytes() - pages.page() + 1, true));

    pages.protect(0, 1, PROT_NONE);
    EXPECT_FALSE(probe_memory(pages.at(0), 8, false));
    pages.protect(0, 1, PROT_READ);
    // A hole anywhere is found, although only 16 pages are looked at for protection.
    for (std::size_t hole = 1; hole < 63; ++hole) {
        test::Pages holed(64);
        holed.unmap(hole, 1);
        EXPECT_FALSE(probe_memory(holed.at(0), holed.bytes(), false)) << hole;
    }
}

TEST(Probe, ChangesNothing) {
    test::Pages pages(3);
    std::memset(pages.at(0), 0x5a, pages.bytes());
    EXPECT_TRUE(probe_memory(pages.at(0) + 5, pages.bytes() - 10, true));
    for (std::size_t i = 0; i < pages.bytes(); ++i) ASSERT_EQ(pages.at(0)[i], std::byte{0x5a}) << i;
}

}  // namespace
}  // namespace feroce::mem
