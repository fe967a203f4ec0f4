#include "port/interfaces.hpp"

#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <tuple>

#include "base/uncancelled.hpp"
#include "port/address.hpp"
#include "port/fd.hpp"
#include "port/inet_socket.hpp"

namespace feroce::port {
namespace {

using host::Interface;

constexpr std::uint32_t kLoopbackSpeed = 100'000;  // In Mb/s. Memory is about as fast.
constexpr std::uint32_t kSpeedMax = 10'000'000;    // Beyond are the kernel's words for "unknown".

bool listed(std::string_view only, std::string_view name) {
    if (only.empty()) return true;
    while (!only.empty()) {
        const std::size_t comma = std::min(only.find(','), only.size());
        if (only.substr(0, comma) == name) return true;
        only.remove_prefix(std::min(comma + 1, only.size()));
    }
    return false;
}

// The interface of the IPv4 default route with the lowest metric; empty if there is none.
std::string default_route_interface() {
    std::string best;
    unsigned long best_metric = ~0UL;
    std::FILE* file = std::fopen("/proc/thread-self/net/route", "re");
    if (file == nullptr) return best;
    char line[512];
    while (std::fgets(line, sizeof line, file) != nullptr) {
        char name[IFNAMSIZ] = {};
        unsigned long destination = 1, gateway = 0, flags = 0, metric = 0;
        const int fields = std::sscanf(line, "%15s %lx %lx %lx %*u %*u %lu", name, &destination,
                                       &gateway, &flags, &metric);
        if (fields != 5 || destination != 0 || metric >= best_metric) continue;
        best = name;
        best_metric = metric;
    }
    std::fclose(file);
    return best;
}

// For want of memory or of descriptors nothing is known, which is not that there is nothing: a
// device must not lose its addresses and its link by that.
void check_shortage(int error) {
    if (error == ENOMEM || error == ENOBUFS || error == EMFILE || error == ENFILE)
        throw std::bad_alloc();
}

void ask_kernel(Interface& interface) {
    const Fd fd = inet_socket(AF_INET);
    ifreq request{};
    std::strncpy(request.ifr_name, interface.name.c_str(), IFNAMSIZ - 1);
    if (!fd.valid()) return check_shortage(errno);
    if (::ioctl(fd.get(), SIOCGIFINDEX, &request) == 0)
        interface.index = static_cast<std::uint32_t>(request.ifr_ifindex);
    if (::ioctl(fd.get(), SIOCGIFMTU, &request) == 0)
        interface.mtu = static_cast<std::uint32_t>(request.ifr_mtu);
    if (interface.name == "lo") {
        interface.speed_mbps = kLoopbackSpeed;
        return;
    }
    // Not /sys/class/net, which may be that of another network namespace.
    ethtool_cmd link{};
    link.cmd = ETHTOOL_GSET;
    request.ifr_data = reinterpret_cast<char*>(&link);
    if (::ioctl(fd.get(), SIOCETHTOOL, &request) != 0) return;
    const std::uint32_t speed = ethtool_cmd_speed(&link);
    if (speed != 0 && speed <= kSpeedMax) interface.speed_mbps = speed;  // Else it is not known.
}

void take_address(const ifaddrs& entry, Interface& into) {
    if (entry.ifa_addr == nullptr) return;
    if (entry.ifa_addr->sa_family == AF_INET) {
        into.gids.push_back(gid_of(reinterpret_cast<const sockaddr_in*>(entry.ifa_addr)->sin_addr));
    } else if (entry.ifa_addr->sa_family == AF_INET6) {
        into.gids.push_back(
            gid_of(reinterpret_cast<const sockaddr_in6*>(entry.ifa_addr)->sin6_addr));
    } else if (entry.ifa_addr->sa_family == AF_PACKET) {
        const auto* link = reinterpret_cast<const sockaddr_ll*>(entry.ifa_addr);
        std::memcpy(into.mac.data(), link->sll_addr, into.mac.size());
    }
}

// IPv4, then global IPv6, then link-local; within a kind in the kernel's order.
int kind_of(const Gid& gid) {
    if (gid.is_v4()) return 0;
    return is_link_local(gid) ? 2 : 1;
}

bool is_word_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// Arguments with a zero byte behind each; empty where there is no /proc.
std::string own_arguments() {
    std::string out;
    const Fd file(::open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC));
    char buffer[4096];
    ssize_t got = 0;
    while (file.valid() && (got = ::read(file.get(), buffer, sizeof buffer)) > 0)
        out.append(buffer, static_cast<std::size_t>(got));
    return out;
}

}  // namespace

bool has_word(std::string_view text, std::string_view word) {
    for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
        const std::size_t end = at + word.size();
        const bool starts = at == 0 || !is_word_character(text[at - 1]);
        const bool ends = end == text.size() || !is_word_character(text[end]);
        if (starts && ends) return true;
    }
    return false;
}

bool program_names(std::string_view word) {
    if (has_word(own_arguments(), word)) return true;
    if (::getauxval(AT_SECURE) != 0) return false;
    for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable)
        if (has_word(*variable, word)) return true;
    return false;
}

std::vector<Interface> list_interfaces(std::string_view only) {
    const Uncancelled call;  // Programs' threads come here with a shard's lock.
    ifaddrs* list = nullptr;
    if (::getifaddrs(&list) != 0) {
        check_shortage(errno);
        return {};
    }
    const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owned(list, &::freeifaddrs);
    std::map<std::string, Interface> found;
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
        if (!listed(only, entry->ifa_name)) continue;
        Interface& interface = found[entry->ifa_name];
        interface.name = entry->ifa_name;
        interface.up = (entry->ifa_flags & IFF_UP) != 0 && (entry->ifa_flags & IFF_RUNNING) != 0;
        take_address(*entry, interface);
    }

    std::vector<Interface> out;
    for (auto& [name, interface] : found) {
        if (interface.gids.empty()) continue;
        ask_kernel(interface);
        std::stable_sort(interface.gids.begin(), interface.gids.end(),
                         [](const Gid& a, const Gid& b) { return kind_of(a) < kind_of(b); });
        out.push_back(std::move(interface));
    }
    const std::string first = default_route_interface();
    std::sort(out.begin(), out.end(), [&first](const Interface& a, const Interface& b) {
        const auto rank = [&first](const Interface& i) {
            return std::tuple(i.name != first, i.name == "lo", i.index);
        };
        return rank(a) < rank(b);
    });
    return out;
}

}  // namespace feroce::port
