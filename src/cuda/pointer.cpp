#include "cuda/pointer.hpp"

#include <cerrno>

namespace feroce::cuda {
namespace {

// Any refusal means host memory: the driver knows nothing of it, or the program has loaded the
// driver and not begun to use it.
bool is_device_memory(const Driver& driver, Address address) {
    unsigned type = 0;
    return driver.pointer_attribute(&type, Attribute::MemoryType, address) == kSuccess &&
           type == kDeviceMemory;
}

bool is_managed(const Driver& driver, Address address) {
    unsigned managed = 0;
    return driver.pointer_attribute(&managed, Attribute::IsManaged, address) == kSuccess &&
           managed != 0;
}

std::uint64_t allocation_of(const Driver& driver, Address address) {
    unsigned long long id = 0;
    return driver.pointer_attribute(&id, Attribute::BufferId, address) == kSuccess ? id : 0;
}

// Memory that was mapped piece by piece (cuMemMap) belongs to no context, so that of its device
// is used, which all of the program's parts share. It is kept for the life of the process.
Context context_of(const Driver& driver, Address address) {
    Context context = nullptr;
    if (driver.pointer_attribute(&context, Attribute::OwnContext, address) == kSuccess &&
        context != nullptr)
        return context;
    int ordinal = 0;
    int device = 0;
    if (driver.pointer_attribute(&ordinal, Attribute::DeviceOrdinal, address) != kSuccess ||
        driver.device_get(&device, ordinal) != kSuccess ||
        driver.primary_context_retain(&context, device) != kSuccess)
        return nullptr;
    return context;
}

}  // namespace

Result<Place> place_of(const Driver& driver, Address address, std::uint64_t length) {
    if (length == 0 || address + (length - 1) < address) return Place{};
    if (!is_device_memory(driver, address) || is_managed(driver, address)) return Place{};
    const Address last = address + (length - 1);
    if (!is_device_memory(driver, last))
        return Error{EFAULT, "the range begins in GPU memory and ends elsewhere"};
    Place out;
    out.on_device = true;
    out.context = context_of(driver, address);
    if (out.context == nullptr) return Error{ENODEV, "the GPU memory has no usable CUDA context"};
    out.allocation = allocation_of(driver, address);
    if (allocation_of(driver, last) != out.allocation) out.allocation = 0;
    return out;
}

bool still_there(const Driver& driver, const Place& place, Address address, std::uint64_t length) {
    const Address last = address + (length - 1);
    if (place.allocation != 0)
        return allocation_of(driver, address) == place.allocation &&
               allocation_of(driver, last) == place.allocation;
    return is_device_memory(driver, address) && is_device_memory(driver, last);
}

}  // namespace feroce::cuda
