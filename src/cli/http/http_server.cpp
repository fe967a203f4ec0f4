#include "cli/http/http_server.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "cli/complain.hpp"
#include "cli/http/connections.hpp"
#include "cli/http/end_signals.hpp"
#include "cli/http/http_library.hpp"
#include "cli/http/listen_address.hpp"
#include "cli/output.hpp"

namespace feroce::cli {
namespace {

using Clock = std::chrono::steady_clock;
using SharedText = std::shared_ptr<const std::string>;

constexpr std::size_t kRequestBytesMax = 16 * 1024;  // With its headers.
constexpr unsigned kSilenceMax = 5;                  // Seconds.
constexpr std::chrono::milliseconds kSweep{500};

class LibraryRequest final : public HttpRequest {
public:
    LibraryRequest(const HttpLibrary& http, MHD_Connection* connection, std::string_view path)
        : http_(http), connection_(connection), path_(path) {}

    std::string_view path() const override { return path_; }
    std::string_view header(const char* name) const override {
        const char* value = http_.lookup_value(connection_, MHD_HEADER_KIND, name);
        return value == nullptr ? std::string_view() : value;
    }
    bool has_header(const char* name) const {
        return http_.lookup_value(connection_, MHD_HEADER_KIND, name) != nullptr;
    }
    const sockaddr* client() const override {
        const MHD_ConnectionInfo* info =
            http_.connection_info(connection_, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
        return info == nullptr ? nullptr : info->client_addr;
    }
    std::optional<sockaddr_storage> own_end() const override {
        const MHD_ConnectionInfo* info =
            http_.connection_info(connection_, MHD_CONNECTION_INFO_CONNECTION_FD);
        sockaddr_storage out{};
        socklen_t size = sizeof out;
        if (info == nullptr ||
            ::getsockname(info->connect_fd, reinterpret_cast<sockaddr*>(&out), &size) != 0)
            return std::nullopt;
        return out;
    }

private:
    const HttpLibrary& http_;
    MHD_Connection* connection_;
    std::string_view path_;
};

class Server {
public:
    Server(const HttpLibrary& http, const HttpPlace& place, HttpSite& site)
        : http_(http), names_(place.hosts), host_advice_(place.host_advice), site_(site) {}
    ~Server() {
        if (daemon_ != nullptr) http_.stop_daemon(daemon_);
    }
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    bool start(int socket);
    Connections& connections() { return connections_; }

private:
    static MHD_Result on_request(void* self, MHD_Connection* connection, const char* url,
                                 const char* method, const char* version, const char* upload,
                                 std::size_t* upload_size, void** request);
    static void on_connection(void* self, MHD_Connection* connection, void** context,
                              MHD_ConnectionNotificationCode what);
    static void on_log(void*, const char*, va_list) {}

    HttpReply answer(MHD_Connection* connection, std::string_view path);
    MHD_Result send(MHD_Connection* connection, const HttpReply& reply) const;

    const HttpLibrary& http_;
    const std::vector<std::string> names_;
    const std::string host_advice_;
    HttpSite& site_;
    Connections connections_;
    MHD_Daemon* daemon_ = nullptr;
};

bool Server::start(int socket) {
    // The limit is above our own, at which the oldest connection ends: there accepting would stop.
    daemon_ = http_.start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD, 0, nullptr, nullptr, &Server::on_request, this,
        MHD_OPTION_EXTERNAL_LOGGER, &Server::on_log, nullptr, MHD_OPTION_LISTEN_SOCKET, socket,
        MHD_OPTION_CONNECTION_LIMIT, unsigned{2 * Connections::kMax}, MHD_OPTION_CONNECTION_TIMEOUT,
        kSilenceMax, MHD_OPTION_CONNECTION_MEMORY_LIMIT, kRequestBytesMax,
        MHD_OPTION_NOTIFY_CONNECTION, &Server::on_connection, this, MHD_OPTION_END);
    return daemon_ != nullptr;
}

void Server::on_connection(void* self, MHD_Connection* connection, void** /*context*/,
                           MHD_ConnectionNotificationCode what) {
    Server& server = *static_cast<Server*>(self);
    const MHD_ConnectionInfo* info =
        server.http_.connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (info == nullptr) return;
    if (what == MHD_CONNECTION_NOTIFY_STARTED)
        server.connections_.opened(info->connect_fd, Clock::now());
    else
        server.connections_.closed(info->connect_fd);
}

// Called first with the headers, then once more; in between with a body, which no request of ours
// has: such a connection ends.
MHD_Result Server::on_request(void* self, MHD_Connection* connection, const char* url,
                              const char* method, const char* /*version*/, const char* /*upload*/,
                              std::size_t* upload_size, void** request) {
    Server& server = *static_cast<Server*>(self);
    const std::string_view asked = method;
    if (asked != "GET" && asked != "HEAD")
        return server.send(connection,
                           refuse_request(MHD_HTTP_METHOD_NOT_ALLOWED, "only GET is understood"));
    if (*upload_size != 0) return MHD_NO;
    if (*request == nullptr) {
        *request = self;
        return MHD_YES;
    }
    return server.send(connection, server.answer(connection, url));
}

HttpReply Server::answer(MHD_Connection* connection, std::string_view path) {
    const LibraryRequest request(http_, connection, path);
    if (!request.has_header(MHD_HTTP_HEADER_HOST))
        return refuse_request(MHD_HTTP_BAD_REQUEST, "the request has no Host header");
    if (!is_host_ours(request.header(MHD_HTTP_HEADER_HOST), names_))
        return refuse_request(MHD_HTTP_FORBIDDEN,
                              "the Host header names another machine" + host_advice_);
    return site_.answer(request);
}

// The library reads the text while it sends, and lets go of it then.
MHD_Result Server::send(MHD_Connection* connection, const HttpReply& reply) const {
    auto text = std::make_unique<SharedText>(reply.body);
    const auto let_go = [](void* held) { delete static_cast<SharedText*>(held); };
    MHD_Response* response = http_.create_response(
        (*text)->size(), const_cast<char*>((*text)->data()), let_go, text.get());
    if (response == nullptr) return MHD_NO;
    (void)text.release();
    http_.add_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, reply.type.c_str());
    http_.add_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    for (const auto& [name, value] : reply.headers) http_.add_header(response, name, value);
    const MHD_Result queued = http_.queue_response(connection, reply.status, response);
    http_.destroy_response(response);  // The connection holds it.
    return queued;
}

// -1 with errno if that cannot be. `listen` gets the port that the kernel chose.
int open_socket(ListenAddress& listen) {
    const auto* address = reinterpret_cast<const sockaddr*>(&listen.address);
    const int fd =
        ::socket(listen.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    const int on = 1;
    ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (::bind(fd, address, listen.length) == 0 && ::listen(fd, SOMAXCONN) == 0) {
        ::getsockname(fd, reinterpret_cast<sockaddr*>(&listen.address), &listen.length);
        return fd;
    }
    const int error = errno;
    ::close(fd);
    errno = error;
    return -1;
}

}  // namespace

HttpReply refuse_request(unsigned status, std::string_view sentence) {
    return {.status = status,
            .body = std::make_shared<const std::string>(fmt::format("{}\n", sentence))};
}

int serve_http(const HttpPlace& place, HttpSite& site) {
    ListenAddress listen = parse_listen(place.listen, place.command);
    if (place.loopback_only && !is_loopback(listen))
        throw UsageError(
            fmt::format("{} listens on loopback only, not on {}; ssh -L brings it elsewhere",
                        place.command, to_text(listen)));
    const HttpLibrary* http = http_library();
    if (http == nullptr)
        return complain(
            fmt::format("{} needs libmicrohttpd.so.12, which is not installed", place.command));
    const int socket = open_socket(listen);
    if (socket < 0)
        return complain(fmt::format("{} cannot listen on {}: {}", place.command, to_text(listen),
                                    std::strerror(errno)));
    const EndSignals signals;
    ::signal(SIGPIPE, SIG_IGN);
    Server server(*http, place, site);
    if (!server.start(socket)) {
        ::close(socket);
        return complain(fmt::format("the server of {} cannot start", place.command));
    }
    fmt::print("{} http://{}{}\n", place.said, to_text(listen), place.path);
    std::fflush(stdout);
    while (!signals.wait(kSweep)) server.connections().end_old_ones(Clock::now());
    return 0;  // The library closes its socket.
}

}  // namespace feroce::cli
