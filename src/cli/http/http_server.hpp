// A small HTTP server for what the command shows: GET only, one request a connection. A thread of
// libmicrohttpd serves all connections and never waits for one of them.
#pragma once

#include <sys/socket.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace feroce::cli {

class HttpRequest {
public:
    virtual ~HttpRequest() = default;
    virtual std::string_view path() const = 0;                    // Without what follows a `?`.
    virtual std::string_view header(const char* name) const = 0;  // Empty if it is not there.
    virtual const sockaddr* client() const = 0;                   // Null if it is not known.
    virtual std::optional<sockaddr_storage> own_end() const = 0;  // Of the same connection.
};

struct HttpReply {
    unsigned status = 200;
    std::string type = "text/plain";
    std::shared_ptr<const std::string> body;  // Shared with all clients that still read it.
    std::vector<std::pair<const char*, const char*>> headers = {};
};

// A refusal, as one sentence.
HttpReply refuse_request(unsigned status, std::string_view sentence);

// What is served. Asked by one thread at a time, and only what has a Host header of our own.
class HttpSite {
public:
    virtual ~HttpSite() = default;
    virtual HttpReply answer(const HttpRequest& request) = 0;
};

struct HttpPlace {
    std::string command;             // In front of complaints.
    std::string listen;              // [ADDRESS:]PORT
    bool loopback_only = false;      // Any other address is refused.
    std::vector<std::string> hosts;  // Names that clients may call us by, beside localhost.
    std::string host_advice;         // Behind the refusal of any other.
    std::string said;                // Before the URL, on stdout.
    std::string path;                // Behind it.
};

// Until SIGTERM or SIGINT. The exit status.
int serve_http(const HttpPlace& place, HttpSite& site);

}  // namespace feroce::cli
