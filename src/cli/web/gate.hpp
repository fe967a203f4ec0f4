// Who may read the page. It shows what only its user may see, on a port that every process of the
// machine and every page of a browser can reach. So a request must come from a process of this user
// or of root, and, where a browser says for whom it asks, for our own page.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "cli/http/http_server.hpp"

namespace feroce::cli {

// Why a browser's request is refused, as a sentence; empty if it is not. A page of another origin
// may lead here by a link, as a person may, but neither frame, fetch nor embed anything.
std::string refusal_of_origin(const HttpRequest& request);

// The user whose socket has these as its own and its other end, by the text of /proc/net/tcp and
// tcp6; nothing unless there is exactly one. Several sockets may have the same own end.
std::optional<std::uint32_t> user_of_socket(const sockaddr* own, const sockaddr* other,
                                            std::string_view tables);

// The kernel gives these tables page by page: while sockets come and go a row may be missing, or be
// there twice. So they are read up to five times.
std::optional<std::uint32_t> user_of_socket(const sockaddr* own, const sockaddr* other,
                                            const std::function<std::string()>& read_tables);

// The user at the other end of the request's connection; nothing if that cannot be known.
std::optional<std::uint32_t> user_of_client(const HttpRequest& request);

// Why the client's user is refused by a server of the user `own`, as a sentence; empty if it is
// not.
std::string refusal_of_user(std::optional<std::uint32_t> user, std::uint32_t own,
                            std::string_view own_name);

}  // namespace feroce::cli
