// DeviceMemory: a registered range of a GPU's memory, as the engine knows it.
#pragma once

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
    void start(const mem::Copy& copy) override;
    void close() override;

private:
    void job_over() override;

    Copier& copier_;
    const Place place_;
    std::mutex mutex_;  // Guards the next.
    std::uint64_t running_ = 0;
    std::condition_variable none_runs_;
};

}  // namespace feroce::cuda
