#include "port/port_owner.hpp"

#include <sys/socket.h>

#include <cstdio>
#include <cstring>

namespace feroce::port {
namespace {

constexpr char kTableV4[] = "/proc/thread-self/net/udp";
constexpr char kTableV6[] = "/proc/thread-self/net/udp6";

struct TableLine {
    char address[33] = {};  // In hexadecimal digits.
    unsigned port = 0;
    unsigned user = 0;
};

// Calls f for the sockets of the table, until it returns false; whether there is a table.
template <class F>
bool each_line(const char* table, F&& f) {
    std::FILE* file = std::fopen(table, "re");
    if (file == nullptr) return false;
    char text[512];
    for (bool goes_on = true; goes_on && std::fgets(text, sizeof text, file) != nullptr;) {
        TableLine line;
        // Slot, local and remote address, state, queues, timer, retransmissions, user.
        const int fields = std::sscanf(text, "%*d: %32[0-9A-F]:%x %*s %*s %*s %*s %*s %u",
                                       line.address, &line.port, &line.user);
        if (fields == 3) goes_on = f(line);
    }
    std::fclose(file);
    return true;
}

std::optional<std::uint32_t> owner_in(const char* table, std::uint16_t port) {
    std::optional<std::uint32_t> out;
    each_line(table, [&](const TableLine& line) {
        if (line.port == port) out = line.user;
        return !out;
    });
    return out;
}

}  // namespace

std::optional<std::uint32_t> owner_of_udp_port(std::uint16_t port) {
    const std::optional<std::uint32_t> v4 = owner_in(kTableV4, port);
    return v4 ? v4 : owner_in(kTableV6, port);
}

std::optional<std::uint32_t> wildcard_sockets(int family, std::uint16_t port) {
    std::uint32_t count = 0;
    const bool known =
        each_line(family == AF_INET ? kTableV4 : kTableV6, [&](const TableLine& line) {
            const bool wildcard = std::strspn(line.address, "0") == std::strlen(line.address);
            count += wildcard && line.port == port ? 1 : 0;
            return true;
        });
    return known ? std::optional(count) : std::nullopt;
}

}  // namespace feroce::port
