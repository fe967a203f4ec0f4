// Copies between pinned host memory and the GPU without Feroce, of the size and number that its
// copy thread keeps on their way: what the machine allows, also to two processes that share one
// GPU.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "gpu_calls.hpp"

namespace gpu {

class BareCopies {
public:
    explicit BareCopies(const Gpu& gpu) : gpu_(gpu) {
        check(gpu.call<int(void**, unsigned)>("cuStreamCreate")(&stream_, kNonBlocking));
        for (Slot& slot : slots_) {
            check(gpu.call<int(void**, unsigned)>("cuEventCreate")(&slot.event, kWithoutTime));
            slot.host = gpu.pinned(kBytes);
            slot.device = gpu.allocate(kBytes);
        }
    }
    BareCopies(const BareCopies&) = delete;
    BareCopies& operator=(const BareCopies&) = delete;

    // In GB/s.
    double rate(bool to_gpu, std::chrono::milliseconds time) {
        using Clock = std::chrono::steady_clock;
        const auto record = gpu_.call<int(void*, void*)>("cuEventRecord");
        const auto query = gpu_.call<int(void*)>("cuEventQuery");
        std::uint64_t begun = 0, done = 0;
        const auto start = Clock::now();
        while (Clock::now() - start < time || done < begun) {
            while (begun - done < kSlots && Clock::now() - start < time) {
                const Slot& slot = slots_[begun++ % kSlots];
                copy(slot, to_gpu);
                check(record(slot.event, stream_));
            }
            for (; done < begun; ++done) {
                const int status = query(slots_[done % kSlots].event);
                if (status == kNotReady) break;
                check(status);
            }
        }
        const std::chrono::duration<double> took = Clock::now() - start;
        return static_cast<double>(done) * kBytes / took.count() / 1e9;
    }

private:
    static constexpr std::size_t kBytes = 256 << 10;
    static constexpr std::uint64_t kSlots = 4;
    static constexpr unsigned kNonBlocking = 1, kWithoutTime = 2;
    static constexpr int kNotReady = 600;
    struct Slot {
        void* event = nullptr;
        void* host = nullptr;
        std::uint64_t device = 0;
    };
    void copy(const Slot& slot, bool to_gpu) const {
        if (to_gpu)
            check(gpu_.call<int(std::uint64_t, const void*, std::size_t, void*)>(
                "cuMemcpyHtoDAsync_v2")(slot.device, slot.host, kBytes, stream_));
        else
            check(gpu_.call<int(void*, std::uint64_t, std::size_t, void*)>("cuMemcpyDtoHAsync_v2")(
                slot.host, slot.device, kBytes, stream_));
    }
    static void check(int status) {
        if (status == 0) return;
        std::fprintf(stderr, "CUDA status %d\n", status);
        std::exit(2);
    }

    const Gpu& gpu_;
    void* stream_ = nullptr;
    std::array<Slot, kSlots> slots_;
};

}  // namespace gpu
