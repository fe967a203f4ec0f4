#include "port/port_owner.hpp"

#include <cstdio>

namespace feroce::port {
namespace {

std::optional<std::uint32_t> owner_in(const char* table, std::uint16_t port) {
    std::FILE* file = std::fopen(table, "re");
    if (file == nullptr) return std::nullopt;
    std::optional<std::uint32_t> out;
    char line[512];
    while (!out && std::fgets(line, sizeof line, file) != nullptr) {
        unsigned local = 0, user = 0;
        // Slot, local and remote address, state, queues, timer, retransmissions, user.
        const int fields =
            std::sscanf(line, "%*d: %*[0-9A-F]:%x %*s %*s %*s %*s %*s %u", &local, &user);
        if (fields == 2 && local == port) out = user;
    }
    std::fclose(file);
    return out;
}

}  // namespace

std::optional<std::uint32_t> owner_of_udp_port(std::uint16_t port) {
    const std::optional<std::uint32_t> v4 = owner_in("/proc/thread-self/net/udp", port);
    return v4 ? v4 : owner_in("/proc/thread-self/net/udp6", port);
}

}  // namespace feroce::port
