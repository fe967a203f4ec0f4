#include "cuda/devices.hpp"

#include <utility>

#include "cuda/device_memory.hpp"
#include "cuda/pointer.hpp"

namespace feroce::cuda {

Result<std::shared_ptr<mem::FarMemory>> Devices::find(std::uint64_t address, std::uint64_t length) {
    const Driver* driver = loaded_driver();
    if (driver == nullptr) return std::shared_ptr<mem::FarMemory>();
    const Result<Place> place = place_of(*driver, address, length);
    if (!place) return place.error();
    if (!place->on_device) return std::shared_ptr<mem::FarMemory>();
    const Result<Copier*> copier = copier_for(*driver, place->context);
    if (!copier) return copier.error();
    return std::shared_ptr<mem::FarMemory>(std::make_shared<DeviceMemory>(**copier, *place));
}

Result<Copier*> Devices::copier_for(const Driver& driver, Context context) {
    unsigned long long number = 0;
    if (driver.context_number != nullptr) (void)driver.context_number(context, &number);
    const std::lock_guard hold(mutex_);
    std::unique_ptr<Copier>& known = copiers_[{context, number}];
    if (known != nullptr) return known.get();
    Result<std::unique_ptr<Copier>> made = Copier::make(driver, context, host_);
    if (!made) return made.error();
    known = std::move(*made);
    return known.get();
}

}  // namespace feroce::cuda
