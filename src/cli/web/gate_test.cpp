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

std::string line(const std::string& address, const char* port, const char* state,
                 const char* user) {
    return "   0: " + address + ":" + port + " " + word_of("127.0.0.1") + ":2257 " + state +
           " 00000000:00000000 00:00000000 00000000 " + user + "        0 4711 1 0\n";
}

std::optional<std::uint32_t> user(const std::string& rows) {
    const sockaddr_in address = v4("127.0.0.1", 0x1234);
    return user_of_socket(reinterpret_cast<const sockaddr*>(&address), "titles\n" + rows);
}

TEST(Gate, FindsTheUserOfASocket) {
    const std::string here = word_of("127.0.0.1");
    EXPECT_EQ(user(line(here, "1234", "01", "1000")), 1000U);
    EXPECT_EQ(user(line(here, "1235", "01", "0") + line(here, "1234", "01", "  1001")), 1001U);
}

TEST(Gate, KnowsNoUserOfOtherSockets) {
    const std::string here = word_of("127.0.0.1");
    EXPECT_EQ(user(""), std::nullopt);
    EXPECT_EQ(user(line(here, "1235", "01", "1000")), std::nullopt);
    EXPECT_EQ(user(line(word_of("127.0.0.2"), "1234", "01", "1000")), std::nullopt);
    // A connection that is over has no user any more, and the kernel writes 0.
    EXPECT_EQ(user(line(here, "1234", "06", "0")), std::nullopt);
    EXPECT_EQ(user(line(here, "1234", "01", "nobody")), std::nullopt);
    EXPECT_EQ(user("   0: " + here + ":1234\n"), std::nullopt);
}

}  // namespace
}  // namespace feroce::cli::gate_test
