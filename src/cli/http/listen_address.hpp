// Where --listen listens, and which clients are answered: a page of a web browser
// that has a name lead to our address (DNS rebinding) tells that name in its Host header.
#pragma once

#include <sys/socket.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace feroce::cli {

struct ListenAddress {
    sockaddr_storage address{};
    socklen_t length = 0;
};

// [ADDRESS:]PORT; IPv6 in brackets; the address is 127.0.0.1 if it is left out. Throws UsageError,
// which names the command.
ListenAddress parse_listen(const std::string& text, const std::string& command);
bool is_loopback(const ListenAddress& address);
std::string to_text(const ListenAddress& address);  // As in a URL.

// Any number, localhost, and `names`; with a port or without.
bool is_host_ours(std::string_view header, const std::vector<std::string>& names);

}  // namespace feroce::cli
