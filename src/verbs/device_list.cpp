// Devices: one for each interface that has an address.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "verbs/common.hpp"
#include "verbs/instance.hpp"

namespace feroce::verbs {
namespace {

// An EUI-64 from the interface's address; loopback has none, so its index stands in.
std::uint64_t guid_of(const host::Interface& interface) {
    std::uint64_t high = 0, low = 0;
    for (std::size_t i = 0; i < 3; ++i) {
        high = high << 8 | interface.mac[i];
        low = low << 8 | interface.mac[i + 3];
    }
    if (high == 0 && low == 0) low = interface.index;
    return (high ^ 0x02'0000) << 40 | std::uint64_t{0xfffe} << 24 | low;
}

// The position in the list if no other device has it.
int free_number(const Instance& instance, int wanted) {
    const auto taken = [&instance](int number) {
        return std::any_of(instance.devices.begin(), instance.devices.end(),
                           [number](const auto& entry) { return entry.second.index == number; });
    };
    while (taken(wanted)) ++wanted;
    return wanted;
}

// An interface that was removed and made again is another device: programs may still hold the old
// one, which does not change.
Device& device_for(Instance& instance, const host::Interface& interface, int position) {
    const std::pair key(interface.name, interface.index);
    if (const auto found = instance.devices.find(key); found != instance.devices.end())
        return found->second;
    const int number = free_number(instance, position);
    Device& device = instance.devices[key];
    device.interface_index = interface.index;
    device.guid = guid_of(interface);
    device.index = number;
    ibv_device& base = device.base;
    base.node_type = IBV_NODE_CA;
    base.transport_type = IBV_TRANSPORT_IB;
    device.interface_name = interface.name;
    std::snprintf(base.name, sizeof base.name, "%s",
                  instance.names.name_of(interface.name, number).c_str());
    std::snprintf(base.dev_name, sizeof base.dev_name, "uverbs%d", number);
    std::snprintf(base.dev_path, sizeof base.dev_path, "/sys/class/infiniband_verbs/uverbs%d",
                  number);
    std::snprintf(base.ibdev_path, sizeof base.ibdev_path, "/sys/class/infiniband/%s", base.name);
    annotate::defined(&device);
    return device;
}

// Null without memory.
ibv_device** make_list(Instance& instance, int& count) {
    std::vector<host::Interface> interfaces = instance.host().interfaces();
    std::erase_if(interfaces, [](const host::Interface& i) { return !i.listed; });
    auto** list = static_cast<ibv_device**>(std::calloc(interfaces.size() + 1, sizeof(void*)));
    if (list == nullptr) return nullptr;
    Rollback give_back([list] { std::free(list); });
    const std::lock_guard lock(instance.mutex);
    for (std::size_t i = 0; i < interfaces.size(); ++i)
        list[i] = &device_for(instance, interfaces[i], static_cast<int>(i)).base;
    count = static_cast<int>(interfaces.size());
    annotate::defined(list, (interfaces.size() + 1) * sizeof(void*));
    give_back.keep();
    return list;
}

}  // namespace
}  // namespace feroce::verbs

using namespace feroce;
using namespace feroce::verbs;

ibv_device** ibv_get_device_list(int* count) {
    if (count != nullptr) *count = 0;  // Also where the call is refused.
    annotate::defined(count);
    return abi_call("ibv_get_device_list", [&]() -> ibv_device** {
        Instance& instance = Instance::get();
        if (const Result<void> there = instance.check_devices(); !there)
            return refuse_null("ibv_get_device_list", there.error());
        int found = 0;
        ibv_device** list = make_list(instance, found);
        if (list == nullptr) return refuse_null("ibv_get_device_list", {ENOMEM, "out of memory"});
        if (count != nullptr) *count = found;
        return list;
    });
}

// For the command, whose own looks must not repeat what programs are told: empty in that case.
extern "C" [[gnu::visibility("default")]] ibv_device** feroce_devices(int* count) {
    *count = 0;
    return abi_call("feroce_devices", [&] { return make_list(Instance::get(), *count); });
}

// For librdmacm: the device that the list leaves out, which a peer may yet name by its address.
extern "C" [[gnu::visibility("default")]] ibv_device* feroce_unlisted_device() {
    return abi_call("feroce_unlisted_device", [&]() -> ibv_device* {
        Instance& instance = Instance::get();
        const std::vector<host::Interface> interfaces = instance.host().interfaces();
        const auto found = std::find_if(interfaces.begin(), interfaces.end(),
                                        [](const host::Interface& i) { return !i.listed; });
        if (found == interfaces.end()) return nullptr;
        const std::lock_guard lock(instance.mutex);
        return &device_for(instance, *found, static_cast<int>(interfaces.size()) - 1).base;
    });
}

// For the command: the interface behind a device, whose name may be any.
extern "C" [[gnu::visibility("default")]] const char* feroce_device_interface(ibv_device* device) {
    return object_of<Device>(device).interface_name.c_str();
}

void ibv_free_device_list(ibv_device** list) {
    const Uncancelled call;
    std::free(list);
}

const char* ibv_get_device_name(ibv_device* device) {
    return device->name;
}

int ibv_get_device_index(ibv_device* device) {
    return object_of<Device>(device).index;
}

__be64 ibv_get_device_guid(ibv_device* device) {
    return htobe64(object_of<Device>(device).guid);
}
