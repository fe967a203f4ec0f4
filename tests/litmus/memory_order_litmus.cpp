// Litmus tests of the memory-order contract in mem/touch.hpp, between a thread that acts as the NIC
// (touch functions) and one that acts as the application (C++ atomics on the same memory).
//
//  StoreBuffering  NIC: deliver x, fence, snapshot y.  Application: y = 1, fence, read x.
//                  Both reading 0 is the violation. Without our fence it does happen, on amd64 and
//                  on arm64; that run is only reported, because no machine owes us a violation.
//  LastPieceLast   Who sees the last piece of a delivery sees all of it.
//  NoTearing       An aligned word is old or new, never a mixture.
//  AtomicThenRead  As StoreBuffering, with an atomic in place of the delivery, and one in place of
//                  the snapshot.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "mem/touch.hpp"

namespace feroce::mem {
namespace {

Slice slice_of(std::uint64_t& word) {
    return {reinterpret_cast<std::byte*>(&word), 8};
}

std::uint64_t snapshot(std::uint64_t& word) {
    std::uint64_t value = 0;
    EXPECT_TRUE(read_memory(slice_of(word), std::as_writable_bytes(std::span(&value, 1))));
    return value;
}

void deliver(std::uint64_t& word, std::uint64_t value) {
    EXPECT_TRUE(write_memory(slice_of(word), std::as_bytes(std::span(&value, 1))));
}

// C++ has no fence that gcc's TSan knows; ours is the same instruction.
void application_fence() {
    order_before_read();
}

struct alignas(128) Cell {  // One round; x and y on lines of their own, so that both stores miss.
    alignas(64) std::uint64_t x;
    alignas(64) std::uint64_t y;
};

struct Count {
    std::uint64_t rounds = 0;
    std::uint64_t violations = 0;
};

// Each thread says which round it has come to and waits for the other, so that both enter a round
// at about the same time; that is what makes violations likely.
class Meeting {
public:
    void meet(int me, std::uint64_t round) {
        at_[me].round.store(round);
        for (unsigned spins = 1; at_[1 - me].round.load() < round; ++spins)
            if (spins % 4096 == 0) std::this_thread::yield();
    }
    // By thread 0 in place of meet(): there is neither this round nor a later one.
    void end(std::uint64_t round) {
        end_.store(round);
        at_[0].round.store(round);
    }
    bool has_ended(std::uint64_t round) const { return round >= end_.load(); }

private:
    struct alignas(128) Place {
        std::atomic<std::uint64_t> round{0};
    };
    Place at_[2];
    std::atomic<std::uint64_t> end_{~std::uint64_t{0}};
};

constexpr std::size_t kCells = 4096;
constexpr std::uint64_t kBatches = 100;
constexpr std::size_t kCellsMin = 64;
// Fewer batches, or a part of one, where cores are scarce or slow.
constexpr std::chrono::seconds kPatience{3};

using Clock = std::chrono::steady_clock;

// One batch, or as much of it as there is time for.
template <class Act>
Count race_once(Act act, Clock::time_point until) {
    const auto cells = std::make_unique<Cell[]>(kCells);
    std::vector<std::uint64_t> application_saw(kCells);
    std::vector<std::uint64_t> nic_saw(kCells);
    Meeting meeting;
    std::thread application([&] {
        for (std::size_t i = 0; i < kCells; ++i) {
            meeting.meet(1, i + 1);
            if (meeting.has_ended(i + 1)) return;
            std::atomic_ref(cells[i].y).store(1, std::memory_order_relaxed);
            application_fence();
            application_saw[i] = std::atomic_ref(cells[i].x).load(std::memory_order_relaxed);
        }
    });
    std::size_t done = 0;
    for (; done < kCells; ++done) {
        if (done != 0 && done % kCellsMin == 0 && Clock::now() > until) {
            meeting.end(done + 1);
            break;
        }
        meeting.meet(0, done + 1);
        nic_saw[done] = act(cells[done]);
    }
    application.join();
    Count count{done, 0};
    for (std::size_t i = 0; i < done; ++i)
        count.violations += nic_saw[i] == 0 && application_saw[i] == 0;
    return count;
}

// act(cell) is the NIC's part; it returns what it saw of y.
template <class Act>
Count race(Act act) {
    Count all;
    const auto until = Clock::now() + kPatience;
    for (std::uint64_t batch = 0; batch < kBatches; ++batch) {
        if (batch > 0 && Clock::now() > until) break;
        const Count one = race_once(act, until);
        all.rounds += one.rounds;
        all.violations += one.violations;
    }
    return all;
}

void report(const char* what, const Count& count) {
    std::printf("%s: %llu violations of %llu\n", what,
                static_cast<unsigned long long>(count.violations),
                static_cast<unsigned long long>(count.rounds));
}

TEST(Litmus, StoreBuffering) {
    const Count without = race([](Cell& cell) {
        deliver(cell.x, 1);
        return snapshot(cell.y);
    });
    report("deliver, snapshot; no fence", without);
    const Count with = race([](Cell& cell) {
        deliver(cell.x, 1);
        order_before_read();
        return snapshot(cell.y);
    });
    report("deliver, order_before_read, snapshot", with);
    EXPECT_EQ(with.violations, 0u);
}

TEST(Litmus, AtomicsBringTheirOwnFence) {
    const Count delivery_atomic = race([](Cell& cell) {
        deliver(cell.x, 1);
        return *fetch_add(slice_of(cell.y), 0);
    });
    report("deliver, fetch_add", delivery_atomic);
    EXPECT_EQ(delivery_atomic.violations, 0u);

    const Count atomic_atomic = race([](Cell& cell) {
        EXPECT_EQ(compare_swap(slice_of(cell.x), 0, 1), 0u);
        return *compare_swap(slice_of(cell.y), 2, 3);
    });
    report("compare_swap, compare_swap", atomic_atomic);
    EXPECT_EQ(atomic_atomic.violations, 0u);

    const Count atomic_read = race([](Cell& cell) {
        EXPECT_EQ(fetch_add(slice_of(cell.x), 1), 0u);
        order_before_read();
        return snapshot(cell.y);
    });
    report("fetch_add, order_before_read, snapshot", atomic_read);
    EXPECT_EQ(atomic_read.violations, 0u);

    const Count write_read = race([](Cell& cell) {
        EXPECT_TRUE(atomic_write(slice_of(cell.x), 1));
        order_before_read();
        return snapshot(cell.y);
    });
    report("atomic_write, order_before_read, snapshot", write_read);
    EXPECT_EQ(write_read.violations, 0u);
}

// Deliveries of `size` bytes at `offset`, each full of one round number (mod 256), into a buffer
// whose last byte the application polls as RDMA programs do. It answers each, so none overtakes its
// look.
void poll_last_byte(std::size_t offset, std::size_t size, unsigned rounds) {
    alignas(64) static std::byte buffer[8192];
    std::memset(buffer, 0, sizeof buffer);
    std::byte* const at = buffer + offset;
    std::atomic<unsigned> answered{0};
    std::thread application([&] {
        for (unsigned round = 1; round <= rounds; ++round) {
            const auto expected = static_cast<std::byte>(round);
            auto last = std::atomic_ref(at[size - 1]);
            while (last.load(std::memory_order_acquire) != expected) std::this_thread::yield();
            for (std::size_t i = 0; i < size; ++i) {
                const std::byte seen = std::atomic_ref(at[i]).load(std::memory_order_relaxed);
                EXPECT_EQ(seen, expected) << "byte " << i << " of " << size << " at " << offset;
            }
            answered.store(round);
        }
    });
    std::vector<std::byte> message(size);
    for (unsigned round = 1; round <= rounds; ++round) {
        std::memset(message.data(), static_cast<int>(round & 0xff), size);
        EXPECT_TRUE(write_memory({at, size}, message));
        while (answered.load() < round) std::this_thread::yield();
    }
    application.join();
}

TEST(Litmus, LastPieceLast) {
    const auto until = Clock::now() + 3 * kPatience;
    for (const std::size_t size : {2, 7, 8, 9, 16, 63, 64, 65, 128, 1000, 1024, 4096})
        for (const std::size_t offset : {0, 1, 4, 8, 13})
            poll_last_byte(offset, size, Clock::now() < until ? 300 : 10);
}

// The NIC delivers words whose bytes are all equal, in long runs with odd heads and tails; a word
// seen by the application with unequal bytes was torn. Then the other way round with snapshots.
constexpr std::size_t kWords = 512;

bool is_whole(std::uint64_t word) {
    return word == (word & 0xff) * 0x0101'0101'0101'0101;
}

TEST(Litmus, DeliveriesDoNotTear) {
    alignas(64) static std::uint64_t words[kWords];
    std::memset(words, 0, sizeof words);
    std::atomic<bool> stop{false};
    std::thread nic([&] {
        std::vector<std::byte> message(sizeof words);
        for (unsigned round = 0; !stop; ++round) {
            std::memset(message.data(), static_cast<int>(round & 0xff), message.size());
            const std::size_t skip = round % 3 * 8;
            const std::size_t size = sizeof words - skip - round % 5 * 8;
            const Slice slice{reinterpret_cast<std::byte*>(words) + skip, size};
            EXPECT_TRUE(write_memory(slice, {message.data(), size}));
        }
    });
    std::uint64_t torn = 0;
    for (int scan = 0; scan < 20'000; ++scan)
        for (std::uint64_t& word : words)
            torn += !is_whole(std::atomic_ref(word).load(std::memory_order_relaxed));
    stop = true;
    nic.join();
    EXPECT_EQ(torn, 0u);
}

TEST(Litmus, SnapshotsDoNotTear) {
    alignas(64) static std::uint64_t words[kWords];
    std::memset(words, 0, sizeof words);
    std::atomic<bool> stop{false};
    std::thread application([&] {
        for (std::uint64_t round = 0; !stop; ++round)
            for (std::uint64_t& word : words)
                std::atomic_ref(word).store((round & 0xff) * 0x0101'0101'0101'0101,
                                            std::memory_order_relaxed);
    });
    std::uint64_t torn = 0;
    std::vector<std::uint64_t> seen(kWords + 1);
    auto* const into = reinterpret_cast<std::byte*>(seen.data());
    for (unsigned round = 0; round < 20'000; ++round) {
        // Words lie anywhere in our private bytes; only the registered side is aligned.
        std::byte* const at = into + round % 8;
        const Slice slice{reinterpret_cast<std::byte*>(words), sizeof words};
        EXPECT_TRUE(read_memory(slice, {at, sizeof words}));
        for (std::size_t i = 0; i < kWords; ++i) {
            std::uint64_t word;
            std::memcpy(&word, at + i * 8, 8);
            torn += !is_whole(word);
        }
    }
    stop = true;
    application.join();
    EXPECT_EQ(torn, 0u);
}

}  // namespace
}  // namespace feroce::mem
