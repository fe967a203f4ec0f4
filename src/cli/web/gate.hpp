// Who may read the page. It shows what only its user may see, on a port that every process of the
// machine and every page of a browser can reach. So a request must come from a process of this user
// or of root, and, where a browser says for whom it asks, for our own page.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cli/http/http_server.hpp"

namespace feroce::cli {

// Why a browser's request is refused, as a sentence; empty if it is not. A page of another origin
// may lead here by a link, as a person may, but neither frame, fetch nor embed anything.
std::string refusal_of_origin(const HttpRequest& request);

// The user whose socket has this address as its own end of a connection that stands, by the text of
// /proc/net/tcp or tcp6; nothing if none has.
std::optional<std::uint32_t> user_of_socket(const sockaddr* address, std::string_view table);

// The user at the other end of a connection on this machine; nothing if that cannot be known.
std::optional<std::uint32_t> user_of_client(const sockaddr* client);

}  // namespace feroce::cli
