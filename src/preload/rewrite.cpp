#include "preload/rewrite.hpp"

#include <atomic>
#include <cstring>
#include <initializer_list>

#include "base/invented_pci.hpp"

namespace feroce::preload {
namespace {

// Written by the constructor of the library, while the program has one thread; read ever after.
char root_path[kPathMax];
std::size_t root_length = 0;
// relaxed: the file it tells of was there before the program began.
std::atomic<bool> has_gpu_module{false};

bool starts_with(const char* path, const char* prefix, std::size_t length) {
    return std::strncmp(path, prefix, length) == 0;
}

bool starts_with(const char* path, const char* prefix) {
    return starts_with(path, prefix, std::strlen(prefix));
}

// A place on the PCI bus that no machine has. Real ones are the kernel's, also where a device is
// said to be at one.
bool is_invented(const char* path) {
    for (const char* folder : {"/sys/bus/pci/devices/", "/sys/class/pci_bus/", "/sys/devices/pci"})
        if (starts_with(path, folder))
            return starts_with(path + std::strlen(folder), kInventedPciDomainText);
    return false;
}

// infiniband, infiniband_verbs, infiniband_mad, ... but only one class of devices in /dev.
bool is_ours(const char* path) {
    if (std::strcmp(path, "/sys/module/nvidia_peermem/version") == 0)
        return has_gpu_module.load(std::memory_order_relaxed);
    constexpr char kClass[] = "/sys/class/infiniband";
    constexpr char kDevices[] = "/dev/infiniband";
    if (starts_with(path, kClass, sizeof kClass - 1)) {
        const char next = path[sizeof kClass - 1];
        return next == '\0' || next == '/' || next == '_';
    }
    if (is_invented(path)) return true;
    if (!starts_with(path, kDevices, sizeof kDevices - 1)) return false;
    const char next = path[sizeof kDevices - 1];
    return next == '\0' || next == '/';
}

}  // namespace

void set_root(const char* root) {
    root_length = 0;
    if (root == nullptr || root[0] != '/') return;
    const std::size_t length = std::strlen(root);
    if (length >= kPathMax) return;
    std::memcpy(root_path, root, length + 1);
    root_length = length;
}

void show_gpu_module() {
    has_gpu_module.store(true, std::memory_order_relaxed);
}

Rewritten::Rewritten(const char* path) : path_(path) {
    if (path == nullptr || root_length == 0 || path[0] != '/') return;
    if (!is_ours(path)) return;
    const std::size_t length = std::strlen(path);
    if (root_length + length >= kPathMax) return;
    std::memcpy(buffer_, root_path, root_length);
    std::memcpy(buffer_ + root_length, path, length + 1);
    path_ = buffer_;
}

}  // namespace feroce::preload
