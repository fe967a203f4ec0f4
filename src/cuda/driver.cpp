#include "cuda/driver.hpp"

#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <cstring>
#include <mutex>

namespace feroce::cuda {
namespace {

// Guards writes of `functions`, which never change after `found`. Not held while the loader is
// called: a library's constructor may call us, with the loader's lock.
constinit std::mutex publishing;
constinit Driver functions;
constinit std::atomic<bool> found{false};
// The number of libraries ever loaded when none was the driver; none has 0. Only saves looks.
constinit std::atomic<unsigned long long> looked_at{0};

bool is_driver(const char* path) {
    constexpr char kName[] = "libcuda.so";
    const char* slash = std::strrchr(path, '/');
    const char* name = slash == nullptr ? path : slash + 1;
    if (std::strncmp(name, kName, sizeof kName - 1) != 0) return false;
    const char next = name[sizeof kName - 1];
    return next == '\0' || next == '.';
}

struct Search {
    unsigned long long known = looked_at.load(std::memory_order_relaxed);
    unsigned long long loads = 0;
    char path[4096] = "";
};

// Called by the loader for each library, the first time with the number of all loads so far.
int look(dl_phdr_info* info, std::size_t, void* data) {
    Search& search = *static_cast<Search*>(data);
    search.loads = info->dlpi_adds;
    if (search.loads == search.known) return 1;
    if (info->dlpi_name == nullptr || !is_driver(info->dlpi_name)) return 0;
    if (std::strlen(info->dlpi_name) >= sizeof search.path) return 0;
    std::strcpy(search.path, info->dlpi_name);
    return 1;
}

template <class Function>
bool bind(void* library, const char* name, Function*& out) {
    out = reinterpret_cast<Function*>(::dlsym(library, name));
    return out != nullptr;
}

// The names with a version are what the names without one mean to programs compiled today.
bool bind_all(void* library, Driver& d) {
    (void)bind(library, "cuCtxGetId", d.context_number);                       // Since CUDA 12.
    (void)bind(library, "cuThreadExchangeStreamCaptureMode", d.capture_mode);  // 10.1.
    return bind(library, "cuPointerGetAttribute", d.pointer_attribute) &&
           bind(library, "cuDeviceGet", d.device_get) &&
           bind(library, "cuDevicePrimaryCtxRetain", d.primary_context_retain) &&
           bind(library, "cuCtxPushCurrent_v2", d.context_push) &&
           bind(library, "cuCtxPopCurrent_v2", d.context_pop) &&
           bind(library, "cuStreamCreate", d.stream_create) &&
           bind(library, "cuStreamDestroy_v2", d.stream_destroy) &&
           bind(library, "cuEventCreate", d.event_create) &&
           bind(library, "cuEventDestroy_v2", d.event_destroy) &&
           bind(library, "cuEventRecord", d.event_record) &&
           bind(library, "cuEventQuery", d.event_query) &&
           bind(library, "cuMemHostRegister_v2", d.host_register) &&
           bind(library, "cuMemHostUnregister", d.host_unregister) &&
           bind(library, "cuMemcpyHtoDAsync_v2", d.copy_to_device) &&
           bind(library, "cuMemcpyDtoHAsync_v2", d.copy_to_host);
}

}  // namespace

const Driver* loaded_driver() {
    // acquire: pairs with the release below, so the functions are there.
    if (found.load(std::memory_order_acquire)) return &functions;
    Search search;
    (void)::dl_iterate_phdr(look, &search);
    // By the name it has already, so nothing is searched for. Never closed: its code stays.
    void* library = search.path[0] == '\0'
                        ? nullptr
                        : ::dlopen(search.path, RTLD_NOLOAD | RTLD_NOW | RTLD_LOCAL);
    Driver bound;
    if (library == nullptr || !bind_all(library, bound)) {
        looked_at.store(search.loads, std::memory_order_relaxed);
        return nullptr;
    }
    const std::lock_guard hold(publishing);
    if (found.load(std::memory_order_relaxed)) return &functions;
    functions = bound;
    found.store(true, std::memory_order_release);
    return &functions;
}

}  // namespace feroce::cuda
