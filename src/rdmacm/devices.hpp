// Devices as rdma_cm uses them: opened once, kept as long as the service, found by address.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/gid.hpp"
#include "base/result.hpp"
#include "rdmacm/objects.hpp"

namespace feroce::rdmacm {

struct Device {
    Device() = default;
    ~Device();
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

    ibv_context* context = nullptr;  // Closed with the device.
    ibv_pd* pd = nullptr;            // For programs that bring none.
    ibv_xrcd* xrcd = nullptr;
    ibv_device_attr attributes{};
    std::uint8_t mtu = IBV_MTU_1024;  // IBTA's code.
    std::atomic<int> last_gid{0};     // Where in the table the last one was. A hint: relaxed.
};

std::vector<Device*> devices(Library& library);             // Those that programs see.
Device* device_with(Library& library, const Gid& address);  // Of those; null if none has it.
Device& device_of(const CmId& id);                          // Of one with a device.

bool is_present(ibv_context* context);  // Its device is still there.

int gid_index(Device& device, const Gid& gid);  // -1 if it is not there.
Gid first_gid(ibv_context* context);            // Zero if there is none.

// Binds the id to the device of its local address: verbs, pd, port and addresses.
Result<void> attach_device(CmId& id);

}  // namespace feroce::rdmacm
