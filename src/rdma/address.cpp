#include "feroce/address.hpp"

#include <arpa/inet.h>
#include <net/if.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>

namespace feroce::rdma {
namespace {

std::optional<std::uint16_t> parse_port(std::string_view text) {
    std::uint16_t port = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), port);
    if (code != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    return port;
}

bool parse_v6(const std::string& host, std::uint16_t port, sockaddr_in6& out) {
    const std::size_t percent = host.find('%');
    if (percent != std::string::npos) {
        out.sin6_scope_id = ::if_nametoindex(host.c_str() + percent + 1);
        if (out.sin6_scope_id == 0) return false;
    }
    out.sin6_family = AF_INET6;
    out.sin6_port = htons(port);
    return ::inet_pton(AF_INET6, host.substr(0, percent).c_str(), &out.sin6_addr) == 1;
}

bool parse_v4(const std::string& host, std::uint16_t port, sockaddr_in& out) {
    out.sin_family = AF_INET;
    out.sin_port = htons(port);
    return ::inet_pton(AF_INET, host.c_str(), &out.sin_addr) == 1;
}

// Host and port of "host", "host:port", "[host]" or "[host]:port".
bool parse(std::string_view text, sockaddr_storage& out) {
    const bool bracketed = text.starts_with('[');
    const std::size_t end = bracketed ? text.find(']') : std::min(text.find(':'), text.size());
    if (end == std::string_view::npos) return false;
    const bool bare_v6 = !bracketed && text.find(':') != text.rfind(':');
    std::string_view host = bracketed ? text.substr(1, end - 1) : text.substr(0, end);
    std::string_view rest = text.substr(bracketed ? end + 1 : end);
    if (bare_v6) {
        host = text;
        rest = {};
    }
    if (!rest.empty() && !rest.starts_with(':')) return false;
    const std::optional<std::uint16_t> port = rest.empty() ? 0 : parse_port(rest.substr(1));
    if (!port) return false;
    if (bracketed || bare_v6)
        return parse_v6(std::string(host), *port, reinterpret_cast<sockaddr_in6&>(out));
    return parse_v4(std::string(host), *port, reinterpret_cast<sockaddr_in&>(out));
}

}  // namespace

Address::Address(std::string_view text) {
    if (parse(text, storage_)) return;
    storage_ = {};
    wrong_ = text;
}

Address::Address(const sockaddr& address) {
    if (address.sa_family == AF_INET)
        std::memcpy(&storage_, &address, sizeof(sockaddr_in));
    else if (address.sa_family == AF_INET6)
        std::memcpy(&storage_, &address, sizeof(sockaddr_in6));
    else
        wrong_ = "an address that is neither IPv4 nor IPv6";
}

Result<> Address::check() const {
    if (storage_.ss_family != AF_UNSPEC) return {};
    return Error(EINVAL, "'" + wrong_ +
                             "' is not an address; write it as 10.0.0.1:7471 or [::1]:7471, or let "
                             "rdma::resolve() find that of a name");
}

std::uint16_t Address::port() const {
    // The port is at the same place in both kinds.
    return ntohs(reinterpret_cast<const sockaddr_in&>(storage_).sin_port);
}

Address Address::with_port(std::uint16_t port) const {
    Address out = *this;
    reinterpret_cast<sockaddr_in&>(out.storage_).sin_port = htons(port);
    return out;
}

std::string Address::text() const {
    std::array<char, INET6_ADDRSTRLEN> host{};
    const bool v4 = storage_.ss_family == AF_INET;
    if (!check()) return wrong_;
    const void* bytes = &reinterpret_cast<const sockaddr_in6&>(storage_).sin6_addr;
    if (v4) bytes = &reinterpret_cast<const sockaddr_in&>(storage_).sin_addr;
    ::inet_ntop(storage_.ss_family, bytes, host.data(), host.size());
    // By appending: g++ 12 takes a sum that begins with a literal for an overflow at -O3.
    std::string name = v4 ? "" : "[";
    name += host.data();
    if (!v4) name += "]";
    return port() == 0 ? name : name + ":" + std::to_string(port());
}

}  // namespace feroce::rdma
