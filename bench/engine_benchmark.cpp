// What the engine costs with no network under it: per packet sent and received, per operation, and
// with many queue pairs; beside it the CRC, which no implementation can do without.
// allocs/op must read 0.
#include <benchmark/benchmark.h>
#include <isa-l/crc.h>

#include <array>
#include <ctime>
#include <memory>
#include <utility>
#include <vector>

#include "base/cache.hpp"
#include "base/random.hpp"
#include "counting_new.hpp"
#include "engine_pair.hpp"

namespace feroce::bench {
namespace {

using transport::SendOp;

constexpr std::uint32_t kBatch = 12;  // Operations between two looks at the clock.

// Of this thread: a busy machine must not make the engine look slow. Reading it costs about as much
// as a packet, so the clock's own time is measured and taken off.
double cpu_seconds() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double clock_cost() {
    constexpr int kReads = 10'000;
    const double start = cpu_seconds();
    for (int i = 1; i < kReads; ++i) cpu_seconds();
    return (cpu_seconds() - start) / kReads;
}

void report(benchmark::State& state, std::uint64_t allocated) {
    const auto operations = static_cast<double>(state.iterations()) * kBatch;
    state.SetItemsProcessed(state.iterations() * kBatch);
    state.counters["ns/op"] =
        benchmark::Counter(operations, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
    state.counters["allocs/op"] = static_cast<double>(allocated) / operations;
}

enum class Phase { Send, Receive, All };

// One-packet WRITEs, all three phases run; `phase` says which one the clock sees.
void write(benchmark::State& state, Phase phase) {
    const auto bytes = static_cast<std::uint32_t>(state.range(0));
    EnginePair pair(static_cast<std::uint32_t>(state.range(1)),
                    static_cast<std::uint32_t>(state.range(2)));
    // Every place of every queue has been used once: no page is touched for the first time below.
    const auto warm = 10'000 + static_cast<std::uint32_t>(state.range(1)) * EnginePair::kQueueDepth;
    for (std::uint32_t i = 0; i < warm; ++i) {
        pair.post(SendOp::Write, bytes);
        pair.settle();
    }
    const double cost = clock_cost();
    const std::uint64_t before = allocations();
    for ([[maybe_unused]] auto _ : state) {
        const double start = cpu_seconds();
        for (std::uint32_t i = 0; i < kBatch; ++i) pair.post(SendOp::Write, bytes);
        pair.run_a();
        const double sent = cpu_seconds();
        pair.carry_to_b();
        pair.run_b();
        const double received = cpu_seconds();
        pair.carry_to_a();
        const std::uint32_t completed = pair.settle();
        const double done = cpu_seconds();
        if (completed != kBatch) return state.SkipWithError("operations are missing");
        const double time = phase == Phase::Send      ? sent - start - cost
                            : phase == Phase::Receive ? received - sent - cost
                                                      : done - start - 3 * cost;
        state.SetIterationTime(time);
    }
    report(state, allocations() - before);
}

void SendPacket(benchmark::State& state) {
    write(state, Phase::Send);
}
void ReceivePacket(benchmark::State& state) {
    write(state, Phase::Receive);
}
void WriteOperation(benchmark::State& state) {
    write(state, Phase::All);
}

void operation(benchmark::State& state, SendOp op) {
    const auto bytes = static_cast<std::uint32_t>(state.range(0));
    EnginePair pair(1);
    const auto batch = [&] {
        for (std::uint32_t i = 0; i < kBatch; ++i) pair.post(op, bytes);
        return pair.settle();
    };
    for (std::uint32_t i = 0; i < 1000; ++i) batch();
    const std::uint64_t before = allocations();
    for ([[maybe_unused]] auto _ : state) {
        if (batch() != kBatch) return state.SkipWithError("operations are missing");
    }
    report(state, allocations() - before);
}

void Crc(benchmark::State& state) {
    std::vector<unsigned char> bytes(static_cast<std::size_t>(state.range(0)), 7);
    std::uint32_t crc = 0;
    for ([[maybe_unused]] auto _ : state) {
        crc = crc32_gzip_refl(crc, bytes.data(), bytes.size());
        benchmark::DoNotOptimize(crc);
    }
    state.SetBytesProcessed(state.iterations() * state.range(0));
}

// The limit for many queue pairs: as many blocks as there are of them, and in each the lines that a
// packet touches; nothing else is done. `at_once` says whether all lines of a block are asked for
// before the first is used, or each only when the one before it is there.
void ColdMemory(benchmark::State& state) {
    struct alignas(kCacheLine) Block {  // About what one queue pair takes.
        std::array<std::uint64_t, 256> words{};
    };
    const auto lines = static_cast<std::size_t>(state.range(0));
    const bool at_once = state.range(2) != 0;
    std::vector<std::unique_ptr<Block>> blocks;
    for (std::int64_t i = 0; i < state.range(1); ++i) blocks.push_back(std::make_unique<Block>());
    Prng random(4);
    for (std::size_t i = blocks.size(); i > 1; --i)
        std::swap(blocks[i - 1], blocks[random.below(i)]);
    std::size_t next = 0;
    for ([[maybe_unused]] auto _ : state) {
        const std::uint64_t* at = blocks[next]->words.data();
        next = next + 1 < blocks.size() ? next + 1 : 0;
        if (at_once) prefetch(at, lines * kCacheLine);
        std::uint64_t value = 0;  // All words are zero, but only the memory knows.
        for (std::size_t i = 0; i < lines; ++i) value = at[i * kCacheLine / sizeof *at + value];
        benchmark::DoNotOptimize(value);
    }
}

void sizes(benchmark::internal::Benchmark* b) {
    b->ArgNames({"bytes", "qps", "burst"})->UseManualTime();
    for (int bytes : {64, 4096}) b->Args({bytes, 1, kBatch});
    b->Args({64, kBatch, 1});
    // All of a batch to one of many queue pairs, then each packet to another. With as many as a
    // batch has packets (above) nothing is cold; the difference is what cold memory costs.
    for (int qps : {100, 10'000}) b->Args({64, qps, kBatch})->Args({64, qps, 1});
}

BENCHMARK(SendPacket)->Apply(sizes);
BENCHMARK(ReceivePacket)->Apply(sizes);
BENCHMARK(WriteOperation)->Apply(sizes);
BENCHMARK_CAPTURE(operation, Send, SendOp::Send)->Arg(64)->Arg(4096);
BENCHMARK_CAPTURE(operation, Read, SendOp::Read)->Arg(64)->Arg(4096);
BENCHMARK_CAPTURE(operation, FetchAdd, SendOp::FetchAdd)->Arg(8);
BENCHMARK(ColdMemory)
    ->ArgNames({"lines", "blocks", "at_once"})
    ->ArgsProduct({{10}, {12, 10'000}, {0, 1}});
BENCHMARK(Crc)->Arg(64)->Arg(1024)->Arg(4096);

}  // namespace
}  // namespace feroce::bench

BENCHMARK_MAIN();
