#include "cli/http/listen_address.hpp"

#include <gtest/gtest.h>

#include "cli/output.hpp"

namespace feroce::cli::listen_address_test {
namespace {

TEST(ListenAddress, IsLoopbackUnlessItSaysMore) {
    EXPECT_EQ(to_text(parse_listen("9879", "metrics")), "127.0.0.1:9879");
    EXPECT_EQ(to_text(parse_listen(":9879", "metrics")), "127.0.0.1:9879");
    EXPECT_EQ(to_text(parse_listen("localhost:0", "metrics")), "127.0.0.1:0");
    EXPECT_EQ(to_text(parse_listen("0.0.0.0:1", "metrics")), "0.0.0.0:1");
    EXPECT_EQ(to_text(parse_listen("10.0.0.1:65535", "metrics")), "10.0.0.1:65535");
    EXPECT_EQ(to_text(parse_listen("[::1]:80", "metrics")), "[::1]:80");
}

TEST(ListenAddress, KnowsLoopback) {
    for (const char* text : {"1", "127.0.0.1:1", "127.255.0.9:1", "[::1]:1"})
        EXPECT_TRUE(is_loopback(parse_listen(text, "web"))) << text;
    for (const char* text : {"0.0.0.0:1", "128.0.0.1:1", "10.0.0.1:1", "[::]:1", "[fe80::1]:1"})
        EXPECT_FALSE(is_loopback(parse_listen(text, "web"))) << text;
}

TEST(ListenAddress, RefusesWhatIsNone) {
    for (const char* text : {"", ":", "host", "10.0.0.1", "10.0.0.1:", "10.0.0.1:65536", "1:2:3",
                             "::1:80", "[::1]", "[::1]80", "[::1:80", "[10.0.0.1]:80", "[]:80",
                             "example.org:80", "10.0.0.1:8x", "10.0.0.1:-1", "10.0.0.1: 80"})
        EXPECT_THROW(parse_listen(text, "metrics"), UsageError) << text;
}

TEST(HostHeader, NumbersAndOurNamesAreOurs) {
    const std::vector<std::string> names{"node1"};
    for (const char* header : {"127.0.0.1", "127.0.0.1:9879", "10.1.2.3:80", "[::1]", "[::1]:9879",
                               "localhost", "LocalHost:9879", "node1", "NODE1:80"})
        EXPECT_TRUE(is_host_ours(header, names)) << header;
}

TEST(HostHeader, OthersAreNot) {
    const std::vector<std::string> names{"node1"};
    for (const char* header :
         {"", ":80", "evil.example", "evil.example:9879", "node1.evil.example", "node11",
          "localhost.evil.example", "127.0.0.1.evil.example", "127.0.0.1:80:80", "[::1", "[evil]",
          "[127.0.0.1]:80", "localhost:x", "127.0.0.1 evil", "::1"})
        EXPECT_FALSE(is_host_ours(header, names)) << header;
}

}  // namespace
}  // namespace feroce::cli::listen_address_test
