#include "cli/web/gate.hpp"

#include <fmt/format.h>
#include <netinet/in.h>

#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

namespace feroce::cli {
namespace {

constexpr std::string_view kEstablished = "01";

// As the kernel writes it: the words of the address as numbers of this machine, then the port.
std::string kernel_text(const sockaddr* address) {
    std::string out;
    const auto add_words = [&out](const void* from, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) {
            std::uint32_t word = 0;
            std::memcpy(&word, static_cast<const std::byte*>(from) + i * sizeof word, sizeof word);
            out += fmt::format("{:08X}", word);
        }
    };
    if (address->sa_family == AF_INET6) {
        sockaddr_in6 v6{};
        std::memcpy(&v6, address, sizeof v6);
        add_words(&v6.sin6_addr, 4);
        return out + fmt::format(":{:04X}", ntohs(v6.sin6_port));
    }
    sockaddr_in v4{};
    std::memcpy(&v4, address, sizeof v4);
    add_words(&v4.sin_addr, 1);
    return out + fmt::format(":{:04X}", ntohs(v4.sin_port));
}

bool is_link_to_page(const HttpRequest& request) {
    return request.path() == "/" && request.header("Sec-Fetch-Mode") == "navigate" &&
           request.header("Sec-Fetch-Dest") == "document";
}

}  // namespace

std::string refusal_of_origin(const HttpRequest& request) {
    const std::string_view origin = request.header("Origin");
    if (!origin.empty() && origin != fmt::format("http://{}", request.header("Host")))
        return "a page of another origin asks";
    const std::string_view site = request.header("Sec-Fetch-Site");
    if (!site.empty() && site != "same-origin" && site != "none" && !is_link_to_page(request))
        return "a page of another site asks";
    return "";
}

std::optional<std::uint32_t> user_of_socket(const sockaddr* address, std::string_view table) {
    const std::string wanted = kernel_text(address);
    std::istringstream lines{std::string(table)};
    std::string line;
    std::getline(lines, line);  // Titles.
    while (std::getline(lines, line)) {
        std::istringstream words(line);
        std::string number, local, remote, state, queues, timer, retransmits, user;
        words >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user;
        if (local != wanted || state != kEstablished) continue;
        std::uint32_t out = 0;
        const char* end = user.data() + user.size();
        const auto [used, error] = std::from_chars(user.data(), end, out);
        if (error == std::errc{} && used == end && !user.empty()) return out;
    }
    return std::nullopt;
}

std::optional<std::uint32_t> user_of_client(const sockaddr* client) {
    if (client == nullptr) return std::nullopt;
    std::ifstream file(client->sa_family == AF_INET6 ? "/proc/net/tcp6" : "/proc/net/tcp");
    const std::string table{std::istreambuf_iterator<char>(file), {}};
    return user_of_socket(client, table);
}

}  // namespace feroce::cli
