#include "cuda/device_memory.hpp"

#include "base/assert.hpp"

namespace feroce::cuda {

std::unique_ptr<mem::Staging> DeviceMemory::stage(std::uint32_t size) {
    return copier_.pool().stage(size);
}

void DeviceMemory::start(const mem::Copy& copy) noexcept {
    unsigned round = 0;
    {
        const std::lock_guard hold(mutex_);
        round = round_;
        ++running_[round];
    }
    copier_.start({copy, shared_from_this(), &place_, round});
}

void DeviceMemory::drain() {
    const std::lock_guard one(draining_);
    std::unique_lock hold(mutex_);
    const unsigned old = round_;
    round_ = 1 - old;  // In which none runs: the drain() before has seen to that.
    none_runs_.wait(hold, [&] { return running_[old] == 0; });
}

void DeviceMemory::close() {
    std::unique_lock hold(mutex_);
    none_runs_.wait(hold, [this] { return running_[0] == 0 && running_[1] == 0; });
}

void DeviceMemory::job_over(unsigned round) noexcept {
    const std::lock_guard hold(mutex_);
    ASSERT(running_[round] > 0);
    // Under the lock: close() may be followed by the end of this object.
    if (--running_[round] == 0) none_runs_.notify_all();
}

}  // namespace feroce::cuda
