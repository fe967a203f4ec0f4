#include "rdmacm/devices.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>

#include "rdmacm/address.hpp"

namespace feroce::rdmacm {
namespace {

// Kept with the service, so that a fork leaves it behind and a simulated node has its own.
struct Table {
    std::mutex mutex;
    std::map<std::string, std::unique_ptr<Device>> by_name;
    std::vector<Device*> order;
};

Table& table() {
    static std::mutex& creation = *new std::mutex;  // Leaked: it may be needed at exit.
    const std::lock_guard held(creation);
    std::shared_ptr<void>& kept = service()->user_state();
    if (kept == nullptr) kept = std::make_shared<Table>();
    return *static_cast<Table*>(kept.get());
}

std::unique_ptr<Device> open_device(ibv_device* device) {
    ibv_context* context = ibv_open_device(device);
    if (context == nullptr) return nullptr;
    auto out = std::make_unique<Device>();
    out->context = context;
    out->pd = ibv_alloc_pd(context);
    ibv_query_device(context, &out->attributes);
    ibv_port_attr port;
    if (ibv_query_port(context, 1, &port) == 0)
        out->mtu = static_cast<std::uint8_t>(port.active_mtu);
    return out;
}

constexpr std::size_t kGidsMax = 1024;

bool has_address(ibv_context* context, const Gid& address) {
    return gid_index(context, address) >= 0;
}

}  // namespace

Device::~Device() {
    if (xrcd != nullptr) ibv_close_xrcd(xrcd);
    if (pd != nullptr) ibv_dealloc_pd(pd);
    ibv_close_device(context);
}

std::vector<Device*> devices() {
    Table& t = table();
    const std::lock_guard held(t.mutex);
    t.order.clear();
    int count = 0;
    ibv_device** list = ibv_get_device_list(&count);
    for (int i = 0; list != nullptr && i < count; ++i) {
        std::unique_ptr<Device>& known = t.by_name[ibv_get_device_name(list[i])];
        if (known == nullptr) known = open_device(list[i]);
        if (known != nullptr) t.order.push_back(known.get());
    }
    ibv_free_device_list(list);
    return t.order;
}

Device* device_with(const Gid& address) {
    {
        Table& t = table();
        const std::lock_guard held(t.mutex);
        for (Device* device : t.order)
            if (has_address(device->context, address)) return device;
    }
    for (Device* device : devices())
        if (has_address(device->context, address)) return device;
    return nullptr;
}

Device& device_of(ibv_context* context) {
    Table& t = table();
    const std::lock_guard held(t.mutex);
    for (const auto& [name, device] : t.by_name)
        if (device != nullptr && device->context == context) return *device;
    ASSERT(!"a context that rdma_cm has not opened");
    __builtin_unreachable();
}

bool is_present(ibv_context* context) {
    int count = 0;
    ibv_device** list = ibv_get_device_list(&count);
    const bool found = list != nullptr && std::count(list, list + count, context->device) > 0;
    ibv_free_device_list(list);
    return found;
}

int gid_index(ibv_context* context, const Gid& gid) {
    std::array<ibv_gid_entry, kGidsMax> entries;
    const ssize_t count = ibv_query_gid_table(context, entries.data(), entries.size(), 0);
    for (ssize_t i = 0; i < count; ++i) {
        const ibv_gid_entry& entry = entries[static_cast<std::size_t>(i)];
        if (std::memcmp(entry.gid.raw, gid.raw.data(), sizeof entry.gid.raw) == 0)
            return static_cast<int>(entry.gid_index);
    }
    return -1;
}

Result<void> attach_device(CmId& id) {
    const Device* device = device_with(id.local);
    if (device == nullptr) return Error{ENODEV, "no device has this local address"};
    id.base.verbs = device->context;
    if (id.base.pd == nullptr) id.base.pd = device->pd;
    id.base.port_num = 1;
    rdma_ib_addr& ib = id.base.route.addr.addr.ibaddr;
    ib.sgid = gid_to_ibv(id.local);
    ib.dgid = gid_to_ibv(id.remote);
    ib.pkey = htobe16(kDefaultPkey.raw);
    return {};
}

}  // namespace feroce::rdmacm
