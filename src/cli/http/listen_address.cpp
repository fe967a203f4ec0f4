#include "cli/http/listen_address.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <strings.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <optional>

#include "cli/output.hpp"

namespace feroce::cli {
namespace {

// What comes before the port, without brackets, and the port.
struct HostAndPort {
    std::string host;
    std::string port;
    bool bracketed = false;
};

std::optional<HostAndPort> split_host(std::string_view text) {
    if (!text.empty() && text[0] == '[') {
        const std::size_t end = text.find(']');
        if (end == std::string_view::npos) return std::nullopt;
        const std::string_view rest = text.substr(end + 1);
        if (!rest.empty() && rest[0] != ':') return std::nullopt;
        return HostAndPort{std::string(text.substr(1, end - 1)),
                           std::string(rest.empty() ? rest : rest.substr(1)), true};
    }
    const std::size_t colon = text.find(':');
    if (colon == std::string_view::npos) return HostAndPort{std::string(text), "", false};
    if (text.find(':', colon + 1) != std::string_view::npos) return std::nullopt;
    return HostAndPort{std::string(text.substr(0, colon)), std::string(text.substr(colon + 1)),
                       false};
}

std::optional<std::uint16_t> port_of(const std::string& text) {
    std::uint16_t port = 0;
    const char* end = text.data() + text.size();
    const auto [used, error] = std::from_chars(text.data(), end, port);
    if (text.empty() || error != std::errc{} || used != end) return std::nullopt;
    return port;
}

bool set_v4(const std::string& host, std::uint16_t port, ListenAddress& out) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    if (::inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) return false;
    std::memcpy(&out.address, &address, sizeof address);
    out.length = sizeof address;
    return true;
}

bool set_v6(const std::string& host, std::uint16_t port, ListenAddress& out) {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(port);
    if (::inet_pton(AF_INET6, host.c_str(), &address.sin6_addr) != 1) return false;
    std::memcpy(&out.address, &address, sizeof address);
    out.length = sizeof address;
    return true;
}

bool same_name(const std::string& a, const std::string& b) {
    return ::strcasecmp(a.c_str(), b.c_str()) == 0;
}

}  // namespace

ListenAddress parse_listen(const std::string& text, const std::string& command) {
    const auto refuse = [&] {
        return UsageError(fmt::format(
            "{} cannot listen on {}: [ADDRESS:]PORT is meant, IPv6 in brackets", command, text));
    };
    std::optional<HostAndPort> parts = split_host(text);
    if (!parts) throw refuse();
    if (text.find(':') == std::string::npos) std::swap(parts->host, parts->port);
    const std::optional<std::uint16_t> port = port_of(parts->port);
    if (!port) throw refuse();
    if (!parts->bracketed && (parts->host.empty() || same_name(parts->host, "localhost")))
        parts->host = "127.0.0.1";
    ListenAddress out;
    if (parts->bracketed ? !set_v6(parts->host, *port, out) : !set_v4(parts->host, *port, out))
        throw refuse();
    return out;
}

bool is_loopback(const ListenAddress& listen) {
    if (listen.address.ss_family == AF_INET6) {
        sockaddr_in6 address{};
        std::memcpy(&address, &listen.address, sizeof address);
        return IN6_IS_ADDR_LOOPBACK(&address.sin6_addr) != 0;
    }
    sockaddr_in address{};
    std::memcpy(&address, &listen.address, sizeof address);
    return (ntohl(address.sin_addr.s_addr) >> 24) == 127;
}

std::string to_text(const ListenAddress& listen) {
    char text[INET6_ADDRSTRLEN] = "";
    if (listen.address.ss_family == AF_INET6) {
        sockaddr_in6 address{};
        std::memcpy(&address, &listen.address, sizeof address);
        ::inet_ntop(AF_INET6, &address.sin6_addr, text, sizeof text);
        return fmt::format("[{}]:{}", text, ntohs(address.sin6_port));
    }
    sockaddr_in address{};
    std::memcpy(&address, &listen.address, sizeof address);
    ::inet_ntop(AF_INET, &address.sin_addr, text, sizeof text);
    return fmt::format("{}:{}", text, ntohs(address.sin_port));
}

bool is_host_ours(std::string_view header, const std::vector<std::string>& names) {
    const std::optional<HostAndPort> parts = split_host(header);
    if (!parts || parts->host.empty()) return false;
    if (!parts->port.empty() && !port_of(parts->port)) return false;
    ListenAddress number;
    if (parts->bracketed) return set_v6(parts->host, 0, number);
    if (set_v4(parts->host, 0, number) || same_name(parts->host, "localhost")) return true;
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& name) { return same_name(name, parts->host); });
}

}  // namespace feroce::cli
