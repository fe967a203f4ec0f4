// DeviceMemory: a registered range of a GPU's memory, as the engine knows it.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include "cuda/copier.hpp"
#include "cuda/pointer.hpp"
#include "mem/far_memory.hpp"

namespace feroce::cuda {

class DeviceMemory final : public mem::FarMemory,
                           public JobOwner,
                           public std::enable_shared_from_this<DeviceMemory> {
public:
    // The copier outlives the region; Devices keeps it.
    DeviceMemory(Copier& copier, const Place& place) : copier_(copier), place_(place) {}

    std::unique_ptr<mem::Staging> stage(std::uint32_t size) override;
    void start(const mem::Copy& copy) noexcept override;
    void drain() override;
    void close() override;

private:
    void job_over(unsigned round) noexcept override;

    Copier& copier_;
    const Place place_;
    std::mutex draining_;  // One drain() at a time; taken before mutex_.
    std::mutex mutex_;     // Guards the next two.
    // A drain() begins a round, and waits for the copies of the one before.
    unsigned round_ = 0;
    std::array<std::uint64_t, 2> running_{};
    std::condition_variable none_runs_;  // In some round.
};

}  // namespace feroce::cuda
