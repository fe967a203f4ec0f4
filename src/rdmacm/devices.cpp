#include "rdmacm/devices.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "rdmacm/address.hpp"

extern "C" ibv_device* feroce_unlisted_device();  // In libibverbs, FEROCE_1.

namespace feroce::rdmacm {
namespace {

std::unique_ptr<Device> open_device(ibv_device* device) {
    auto out = std::make_unique<Device>();
    out->context = ibv_open_device(device);
    if (out->context == nullptr) return nullptr;
    out->pd = ibv_alloc_pd(out->context);
    if (out->pd == nullptr) return nullptr;
    ibv_query_device(out->context, &out->attributes);
    ibv_port_attr port;
    if (ibv_query_port(out->context, 1, &port) == 0)
        out->mtu = static_cast<std::uint8_t>(port.active_mtu);
    return out;
}

constexpr std::size_t kGidsMax = 1024;

// Most tables are short: what is not filled is not cleared.
class GidEntries {
public:
    explicit GidEntries(ibv_context* context)
        : entries_(std::make_unique_for_overwrite<ibv_gid_entry[]>(kGidsMax)) {
        const ssize_t count = ibv_query_gid_table(context, entries_.get(), kGidsMax, 0);
        if (count > 0) count_ = static_cast<std::size_t>(count);
    }
    const ibv_gid_entry* begin() const { return entries_.get(); }
    const ibv_gid_entry* end() const { return entries_.get() + count_; }

private:
    std::unique_ptr<ibv_gid_entry[]> entries_;
    std::size_t count_ = 0;
};

bool has_address(Device& device, const Gid& address) {
    return gid_index(device, address) >= 0;
}

bool is_same(const ibv_gid& entry, const Gid& gid) {
    return std::memcmp(entry.raw, gid.raw.data(), sizeof entry.raw) == 0;
}

// Under the library's devices_mutex.
Device* open_once(Library& library, ibv_device* device) {
    std::unique_ptr<Device>& known = library.devices[ibv_get_device_name(device)];
    if (known == nullptr) known = open_device(device);
    return known.get();
}

Device* unlisted_device(Library& library, const Gid& address) {
    ibv_device* found = feroce_unlisted_device();
    if (found == nullptr) return nullptr;
    const std::lock_guard held(library.devices_mutex);
    Device* device = open_once(library, found);
    return device != nullptr && has_address(*device, address) ? device : nullptr;
}

}  // namespace

Library::Library() = default;
Library::~Library() = default;

Device::~Device() {
    if (xrcd != nullptr) ibv_close_xrcd(xrcd);
    if (pd != nullptr) ibv_dealloc_pd(pd);
    if (context != nullptr) ibv_close_device(context);
}

std::vector<Device*> devices(Library& library) {
    const std::lock_guard held(library.devices_mutex);
    library.listed.clear();
    int count = 0;
    ibv_device** list = ibv_get_device_list(&count);
    const Rollback free_list([list] { ibv_free_device_list(list); });
    for (int i = 0; list != nullptr && i < count; ++i) {
        if (Device* known = open_once(library, list[i])) library.listed.push_back(known);
    }
    return library.listed;
}

Device* device_with(Library& library, const Gid& address) {
    {
        const std::lock_guard held(library.devices_mutex);
        for (Device* device : library.listed)
            if (has_address(*device, address)) return device;
    }
    for (Device* device : devices(library))
        if (has_address(*device, address)) return device;
    return nullptr;
}

Device& device_of(const CmId& id) {
    const std::lock_guard held(id.library->devices_mutex);
    for (const auto& [name, device] : id.library->devices)
        if (device != nullptr && device->context == id.base.verbs) return *device;
    ASSERT(!"a context that rdma_cm has not opened");
    __builtin_unreachable();
}

bool is_present(ibv_context* context) {
    int count = 0;
    ibv_device** list = ibv_get_device_list(&count);
    const bool found = (list != nullptr && std::count(list, list + count, context->device) > 0) ||
                       feroce_unlisted_device() == context->device;
    ibv_free_device_list(list);
    return found;
}

// Every connection asks a few times, and mostly for the same one.
int gid_index(Device& device, const Gid& gid) {
    const int last = device.last_gid.load(std::memory_order_relaxed);
    ibv_gid there{};
    // Places that are empty are zero.
    if (!gid.is_zero() && ibv_query_gid(device.context, 1, last, &there) == 0 &&
        is_same(there, gid))
        return last;
    for (const ibv_gid_entry& entry : GidEntries(device.context)) {
        if (!is_same(entry.gid, gid)) continue;
        const int index = static_cast<int>(entry.gid_index);
        device.last_gid.store(index, std::memory_order_relaxed);
        return index;
    }
    return -1;
}

Gid first_gid(ibv_context* context) {
    const GidEntries entries(context);
    Gid out;
    if (entries.begin() != entries.end())
        std::memcpy(out.raw.data(), entries.begin()->gid.raw, out.raw.size());
    return out;
}

Result<void> attach_device(CmId& id) {
    errno = 0;
    const Device* device = device_with(*id.library, id.local);
    // A peer that lists loopback may ask for us by it.
    if (device == nullptr) device = unlisted_device(*id.library, id.local);
    if (device == nullptr && errno == ENOMEM) return process::kNoMemory;  // Not all were asked.
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
