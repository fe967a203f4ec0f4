#include "cli/web/gate.hpp"

#include <fmt/format.h>
#include <netinet/in.h>

#include <array>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

namespace feroce::cli {
namespace {

constexpr std::size_t kV4Digits = 8;  // Of an IPv4 address in the kernel's tables.

// As the kernel writes them: words of an address as numbers of this machine.
std::string words_of(const void* from, std::size_t count) {
    std::string out;
    for (std::size_t i = 0; i < count; ++i) {
        std::uint32_t word = 0;
        std::memcpy(&word, static_cast<const std::byte*>(from) + i * sizeof word, sizeof word);
        out += fmt::format("{:08X}", word);
    }
    return out;
}

// A program may use IPv4 by a socket of IPv6: all addresses are compared as those of IPv6.
std::string mapped(std::string_view v4) {
    constexpr std::array<std::uint8_t, 12> kMappedPrefix{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};
    return words_of(kMappedPrefix.data(), 3).append(v4);
}

std::string kernel_text(const sockaddr* address) {
    if (address->sa_family == AF_INET6) {
        sockaddr_in6 v6{};
        std::memcpy(&v6, address, sizeof v6);
        return fmt::format("{}:{:04X}", words_of(&v6.sin6_addr, 4), ntohs(v6.sin6_port));
    }
    sockaddr_in v4{};
    std::memcpy(&v4, address, sizeof v4);
    return fmt::format("{}:{:04X}", mapped(words_of(&v4.sin_addr, 1)), ntohs(v4.sin_port));
}

struct SocketRow {
    std::string own;
    std::string other;
    std::string state;
    std::uint32_t user = 0;
    std::uint64_t inode = 0;  // 0: no process has it, and its user is not told.
};

// Nothing if the line is none, as the titles are.
std::optional<SocketRow> row_of(const std::string& line) {
    SocketRow out;
    std::string number, queues, timer, retransmits, timeout;
    std::istringstream words(line);
    words >> number >> out.own >> out.other >> out.state >> queues >> timer >> retransmits >>
        out.user >> timeout >> out.inode;
    if (words.fail()) return std::nullopt;
    for (std::string* end : {&out.own, &out.other})
        if (end->find(':') == kV4Digits) *end = mapped(*end);
    return out;
}

// Established, or half closed by its program, which still reads.
bool can_still_read(const SocketRow& row) {
    return row.inode != 0 && (row.state == "01" || row.state == "04" || row.state == "05");
}

bool is_same_socket(const SocketRow& one, const SocketRow& other) {
    return one.inode == other.inode && one.user == other.user;
}

std::string socket_table(const char* path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
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

std::optional<std::uint32_t> user_of_socket(const sockaddr* own, const sockaddr* other,
                                            std::string_view tables) {
    const std::string wanted_own = kernel_text(own), wanted_other = kernel_text(other);
    std::istringstream lines{std::string(tables)};
    std::string line;
    std::optional<SocketRow> found;
    while (std::getline(lines, line)) {
        const auto row = row_of(line);
        if (!row || row->own != wanted_own || row->other != wanted_other) continue;
        if (!can_still_read(*row) || (found && !is_same_socket(*found, *row))) return std::nullopt;
        found = row;
    }
    if (!found) return std::nullopt;
    return found->user;
}

std::optional<std::uint32_t> user_of_socket(const sockaddr* own, const sockaddr* other,
                                            const std::function<std::string()>& read_tables) {
    constexpr int kLooks = 5;
    for (int look = 0; look < kLooks; ++look)
        if (const auto user = user_of_socket(own, other, read_tables())) return user;
    return std::nullopt;
}

std::optional<std::uint32_t> user_of_client(const HttpRequest& request) {
    const sockaddr* client = request.client();
    const auto own_end = request.own_end();
    if (client == nullptr || !own_end) return std::nullopt;
    return user_of_socket(client, reinterpret_cast<const sockaddr*>(&*own_end), [] {
        return socket_table("/proc/net/tcp") + socket_table("/proc/net/tcp6");
    });
}

std::string refusal_of_user(std::optional<std::uint32_t> user, std::uint32_t own,
                            std::string_view own_name) {
    if (!user) return "the user of this connection cannot be known, so nothing is shown";
    if (*user == 0 || *user == own) return "";
    return fmt::format("only {}{} may read this page", own_name, own == 0 ? "" : " and root");
}

}  // namespace feroce::cli
