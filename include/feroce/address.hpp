// Address: an IPv4 or IPv6 address with a port, as text: "10.0.0.1:7471", "[fe80::1%eth0]:7471",
// or without port where none is needed. A text that is none is kept, and refused where it is used.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "feroce/error.hpp"

namespace feroce::rdma {

class Address {
public:
    Address(std::string_view text);
    Address(const char* text) : Address(std::string_view(text)) {}
    Address(const std::string& text) : Address(std::string_view(text)) {}
    explicit Address(const sockaddr& address);

    Result<> check() const;  // What is wrong with the text.
    std::uint16_t port() const;
    Address with_port(std::uint16_t port) const;
    const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&storage_); }
    std::string text() const;

private:
    Address() = default;

    sockaddr_storage storage_{};  // AF_UNSPEC: the text is no address.
    std::string wrong_;           // That text.
};

}  // namespace feroce::rdma
