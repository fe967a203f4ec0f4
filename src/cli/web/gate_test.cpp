#include "cli/web/gate.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <cstring>
#include <map>

namespace feroce::cli::gate_test {
namespace {

class FakeRequest final : public HttpRequest {
public:
    FakeRequest(std::string path, std::map<std::string, std::string> headers)
        : path_(std::move(path)), headers_(std::move(headers)) {
        headers_.emplace("Host", "127.0.0.1:8791");
    }
    std::string_view path() const override { return path_; }
    std::string_view header(const char* name) const override {
        const auto found = headers_.find(name);
        return found == headers_.end() ? std::string_view() : found->second;
    }
    const sockaddr* client() const override { return nullptr; }
    std::optional<sockaddr_storage> own_end() const override { return std::nullopt; }

private:
    std::string path_;
    std::map<std::string, std::string> headers_;
};

bool passes(const std::string& path, std::map<std::string, std::string> headers) {
    return refusal_of_origin(FakeRequest(path, std::move(headers))).empty();
}

TEST(Gate, LetsOurOwnPageAndPeopleIn) {
    EXPECT_TRUE(passes("/state.json", {}));
    EXPECT_TRUE(passes("/state.json", {{"Origin", "http://127.0.0.1:8791"}}));
    EXPECT_TRUE(passes("/state.json", {{"Sec-Fetch-Site", "same-origin"}}));
    EXPECT_TRUE(passes("/", {{"Sec-Fetch-Site", "none"}}));
    EXPECT_TRUE(passes("/", {{"Sec-Fetch-Site", "cross-site"},
                             {"Sec-Fetch-Mode", "navigate"},
                             {"Sec-Fetch-Dest", "document"}}));
}

TEST(Gate, RefusesPagesOfOthers) {
    for (const char* origin : {"http://evil.example", "null", "http://127.0.0.1:80",
                               "https://127.0.0.1:8791", "http://127.0.0.1:8791.evil.example"})
        EXPECT_FALSE(passes("/state.json", {{"Origin", origin}})) << origin;
    for (const char* site : {"cross-site", "same-site", "anything"})
        EXPECT_FALSE(passes("/state.json", {{"Sec-Fetch-Site", site}})) << site;
    EXPECT_FALSE(passes("/", {{"Sec-Fetch-Site", "cross-site"},
                              {"Sec-Fetch-Mode", "navigate"},
                              {"Sec-Fetch-Dest", "iframe"}}));
    EXPECT_FALSE(passes("/state.json", {{"Sec-Fetch-Site", "cross-site"},
                                        {"Sec-Fetch-Mode", "navigate"},
                                        {"Sec-Fetch-Dest", "document"}}));
}

sockaddr_in v4(const char* address, std::uint16_t port) {
    sockaddr_in out{};
    out.sin_family = AF_INET;
    out.sin_port = htons(port);
    ::inet_pton(AF_INET, address, &out.sin_addr);
    return out;
}

// As the kernel writes it, on machines of either byte order.
std::string word_of(const char* address) {
    char text[9] = "";
    std::snprintf(text, sizeof text, "%08X", v4(address, 0).sin_addr.s_addr);
    return text;
}

struct Row {
    std::string own = word_of("127.0.0.1") + ":1234";
    std::string other = word_of("127.0.0.1") + ":2257";
    std::string state = "01";
    std::string user = "1000";
    std::string inode = "4711";
};

std::string line(const Row& row) {
    return "   0: " + row.own + " " + row.other + " " + row.state +
           " 00000000:00000000 00:00000000 00000000 " + row.user + "        0 " + row.inode +
           " 1 0\n";
}

std::optional<std::uint32_t> user(const std::string& rows) {
    const sockaddr_in own = v4("127.0.0.1", 0x1234), other = v4("127.0.0.1", 0x2257);
    return user_of_socket(reinterpret_cast<const sockaddr*>(&own),
                          reinterpret_cast<const sockaddr*>(&other),
                          "  sl  local_address rem_address   st\n" + rows);
}

std::string in_v6(const std::string& v4_end) {
    char word[9] = "";
    std::snprintf(word, sizeof word, "%08X", htonl(0xFFFF));
    return "0000000000000000" + std::string(word) + v4_end;
}

TEST(Gate, FindsTheUserOfASocket) {
    const std::string here = word_of("127.0.0.1");
    EXPECT_EQ(user(line({})), 1000U);
    EXPECT_EQ(user(line({.own = here + ":1235", .user = "0"}) + line({.user = "  1001"})), 1001U);
}

// The kernel gives its tables page by page, while sockets come and go.
TEST(Gate, FindsTheUserInTablesThatRepeatOrLeaveOutARow) {
    EXPECT_EQ(user(line({}) + line({})), 1000U);
    const sockaddr_in own = v4("127.0.0.1", 0x1234), other = v4("127.0.0.1", 0x2257);
    const auto user_at_look = [&](int complete) {
        int looks = 0;
        const auto found = user_of_socket(
            reinterpret_cast<const sockaddr*>(&own), reinterpret_cast<const sockaddr*>(&other),
            [&] { return ++looks == complete ? line({}) : std::string(); });
        EXPECT_LE(looks, 5);
        return found;
    };
    EXPECT_EQ(user_at_look(1), 1000U);
    EXPECT_EQ(user_at_look(5), 1000U);
    EXPECT_EQ(user_at_look(6), std::nullopt);
}

TEST(Gate, IsNotDeceivedByAnotherConnectionFromTheSamePort) {
    const std::string here = word_of("127.0.0.1");
    const std::string of_root = line({.other = here + ":1B58", .user = "0"});
    const std::string elsewhere = line({.other = word_of("127.0.0.2") + ":2257", .user = "0"});
    EXPECT_EQ(user(of_root + line({})), 1000U);
    EXPECT_EQ(user(line({}) + elsewhere + of_root), 1000U);
    EXPECT_EQ(user(of_root + elsewhere), std::nullopt);
    // The server's own socket of this connection.
    EXPECT_EQ(user(line({.own = here + ":2257", .other = here + ":1234", .user = "0"})),
              std::nullopt);
}

TEST(Gate, KnowsSocketsOfIpv6ThatUseIpv4) {
    const Row plain;
    const Row row{.own = in_v6(plain.own), .other = in_v6(plain.other), .user = "1002"};
    const std::string of_root = line({.other = word_of("127.0.0.1") + ":1B58", .user = "0"});
    EXPECT_EQ(user(line(row)), 1002U);
    EXPECT_EQ(user(of_root + line(row)), 1002U);
    // Two cannot be: the tables changed while they were read.
    EXPECT_EQ(user(line({.user = "0"}) + line(row)), std::nullopt);
}

TEST(Gate, KnowsTheUserOfASocketThatIsHalfClosed) {
    for (const char* state : {"04", "05"}) {
        EXPECT_EQ(user(line({.state = state})), 1000U) << state;
        // Closed, it belongs to nobody any more, and the kernel writes user 0.
        EXPECT_EQ(user(line({.state = state, .user = "0", .inode = "0"})), std::nullopt) << state;
    }
}

TEST(Gate, KnowsNoUserOfOtherSockets) {
    const std::string here = word_of("127.0.0.1");
    EXPECT_EQ(user(""), std::nullopt);
    EXPECT_EQ(user(line({.own = here + ":1235"})), std::nullopt);
    EXPECT_EQ(user(line({.own = word_of("127.0.0.2") + ":1234"})), std::nullopt);
    EXPECT_EQ(user(line({.state = "06", .user = "0", .inode = "0"})), std::nullopt);
    EXPECT_EQ(user(line({.user = "0", .inode = "0"})), std::nullopt);
    EXPECT_EQ(user(line({.user = "nobody"})), std::nullopt);
    EXPECT_EQ(user("   0: " + here + ":1234\n"), std::nullopt);
}

TEST(Gate, SaysWhetherTheUserIsAnotherOrUnknown) {
    EXPECT_EQ(refusal_of_user(0, 1000, "ann"), "");
    EXPECT_EQ(refusal_of_user(1000, 1000, "ann"), "");
    EXPECT_EQ(refusal_of_user(1001, 1000, "ann"), "only ann and root may read this page");
    EXPECT_EQ(refusal_of_user(1001, 0, "root"), "only root may read this page");
    EXPECT_EQ(refusal_of_user(std::nullopt, 0, "root"),
              "the user of this connection cannot be known, so nothing is shown");
}

}  // namespace
}  // namespace feroce::cli::gate_test
