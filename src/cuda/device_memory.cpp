#include "cuda/device_memory.hpp"

#include "base/assert.hpp"

namespace feroce::cuda {

std::unique_ptr<mem::Staging> DeviceMemory::stage(std::uint32_t size) {
    return copier_.pool().stage(size);
}

void DeviceMemory::start(const mem::Copy& copy) {
    {
        const std::lock_guard hold(mutex_);
        ++running_;
    }
    copier_.start({copy, shared_from_this(), &place_});
}

void DeviceMemory::close() {
    std::unique_lock hold(mutex_);
    none_runs_.wait(hold, [this] { return running_ == 0; });
}

void DeviceMemory::job_over() {
    const std::lock_guard hold(mutex_);
    ASSERT(running_ > 0);
    // Under the lock: close() may be followed by the end of this object.
    if (--running_ == 0) none_runs_.notify_all();
}

}  // namespace feroce::cuda
