#include "cli/devices.hpp"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <infiniband/verbs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "cli/output.hpp"

// In our libibverbs, FEROCE_1. Absent from any other.
extern "C" [[gnu::weak]] const char* feroce_device_interface(ibv_device* device);
extern "C" [[gnu::weak]] ibv_device** feroce_devices(int* count);

namespace feroce::cli {
namespace {

bool gid_from(const sockaddr* address, Gid& out) {
    if (address == nullptr) return false;
    if (address->sa_family == AF_INET) {
        const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
        out = Gid::from_v4(ntohl(v4->sin_addr.s_addr));
        return true;
    }
    if (address->sa_family != AF_INET6) return false;
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
    std::memcpy(out.raw.data(), &v6->sin6_addr, out.raw.size());
    return true;
}

// IPv4, then global IPv6, then link-local: the order that the library promises.
int rank(const Gid& gid) {
    if (gid.is_v4()) return 0;
    return gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80 ? 2 : 1;
}

// As the library tells it of an open port.
std::uint32_t speed_of(const std::string& interface) {
    constexpr std::uint32_t kLoopback = 100'000, kUnknown = 10'000, kMax = 10'000'000;
    if (interface == "lo") return kLoopback;
    ethtool_cmd link{};
    link.cmd = ETHTOOL_GSET;
    ifreq request{};
    std::strncpy(request.ifr_name, interface.c_str(), IFNAMSIZ - 1);
    request.ifr_data = reinterpret_cast<char*>(&link);
    const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const bool known = fd >= 0 && ::ioctl(fd, SIOCETHTOOL, &request) == 0;
    if (fd >= 0) ::close(fd);
    const std::uint32_t speed = ethtool_cmd_speed(&link);
    return known && speed != 0 && speed <= kMax ? speed : kUnknown;
}

void add_interface(DeviceInfo& device) {
    device.interface_index = ::if_nametoindex(device.interface.c_str());
    device.speed_mbps = speed_of(device.interface);
    ifaddrs* list = nullptr;
    if (::getifaddrs(&list) != 0) return;
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
        if (device.interface != entry->ifa_name) continue;
        device.up = (entry->ifa_flags & IFF_UP) != 0 && (entry->ifa_flags & IFF_RUNNING) != 0;
        Gid gid;
        if (gid_from(entry->ifa_addr, gid)) device.gids.push_back(gid);
    }
    ::freeifaddrs(list);
    std::stable_sort(device.gids.begin(), device.gids.end(),
                     [](const Gid& a, const Gid& b) { return rank(a) < rank(b); });
}

bool restricts_devices() {
    const char* restricted = std::getenv("FEROCE_DEVICES");
    return restricted != nullptr && restricted[0] != '\0';
}

}  // namespace

std::vector<DeviceInfo> list_devices() {
    std::vector<DeviceInfo> out;
    if (feroce_devices == nullptr) return out;
    int count = 0;
    ibv_device** list = feroce_devices(&count);
    for (int i = 0; list != nullptr && i < count; ++i) {
        DeviceInfo device;
        device.name = ::ibv_get_device_name(list[i]);
        device.verbs_name = list[i]->dev_name;
        device.interface = feroce_device_interface(list[i]);
        device.guid = be64toh(::ibv_get_device_guid(list[i]));
        add_interface(device);
        out.push_back(std::move(device));
    }
    if (list != nullptr) ::ibv_free_device_list(list);
    return out;
}

std::vector<DeviceInfo> list_named_devices() {
    std::vector<DeviceInfo> out = list_devices();
    if (out.empty() && restricts_devices())
        throw UsageError("FEROCE_DEVICES names no interface that is here and has an address");
    return out;
}

void forget_settings_of_programs() {
    ::unsetenv("FEROCE_PCAP");
    ::unsetenv("FEROCE_FAULTS");
}

bool hides_loopback(const std::vector<DeviceInfo>& devices) {
    if (devices.empty() || restricts_devices()) return false;
    DeviceInfo loopback;
    loopback.interface = "lo";
    add_interface(loopback);
    return !loopback.gids.empty() &&
           std::none_of(devices.begin(), devices.end(),
                        [](const DeviceInfo& d) { return d.interface == "lo"; });
}

std::string guid_text(std::uint64_t guid) {
    return fmt::format("{:04x}:{:04x}:{:04x}:{:04x}", guid >> 48, guid >> 32 & 0xffff,
                       guid >> 16 & 0xffff, guid & 0xffff);
}

}  // namespace feroce::cli
