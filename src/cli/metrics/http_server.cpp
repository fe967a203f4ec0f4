#include "cli/metrics/http_server.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "cli/complain.hpp"
#include "cli/metrics/connections.hpp"
#include "cli/metrics/end_signals.hpp"
#include "cli/metrics/http_library.hpp"
#include "cli/metrics/listen_address.hpp"

namespace feroce::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kRequestBytesMax = 16 * 1024;  // With its headers.
constexpr unsigned kSilenceMax = 5;                  // Seconds.
// One look at the processes answers all requests of this time: asking often costs them nothing.
constexpr std::chrono::milliseconds kLookLasts{250};
constexpr std::chrono::milliseconds kSweep{500};

class Server {
public:
    Server(const HttpLibrary& http, const MetricsOptions& options);
    ~Server();
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

    MHD_Result answer(MHD_Connection* connection, std::string_view url);
    MHD_Result refuse(MHD_Connection* connection, unsigned status, std::string_view sentence) const;
    MHD_Response* metrics(Exposition exposition);
    MHD_Response* make_response(std::string_view text, std::string_view type) const;
    const char* header(MHD_Connection* connection, const char* name) const {
        return http_.lookup_value(connection, MHD_HEADER_KIND, name);
    }
    void forget_answers();

    const HttpLibrary& http_;
    std::vector<std::string> names_;  // Of this machine, for Host.
    Connections connections_;
    MHD_Daemon* daemon_ = nullptr;
    // The rest is of the library's thread.
    Collector collector_;
    Clock::time_point looked_;
    std::array<MHD_Response*, 2>
        answers_{};  // By Exposition; null if not asked for since the look.
    std::vector<Family> families_;
};

Server::Server(const HttpLibrary& http, const MetricsOptions& options)
    : http_(http), names_(options.hosts), collector_(options) {
    char name[HOST_NAME_MAX + 1] = "";
    if (::gethostname(name, sizeof name - 1) == 0 && name[0] != '\0') names_.emplace_back(name);
}

Server::~Server() {
    if (daemon_ != nullptr) http_.stop_daemon(daemon_);
    forget_answers();
}

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
        return server.refuse(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET is understood");
    if (*upload_size != 0) return MHD_NO;
    if (*request == nullptr) {
        *request = self;
        return MHD_YES;
    }
    return server.answer(connection, url);
}

MHD_Result Server::answer(MHD_Connection* connection, std::string_view url) {
    const char* host = header(connection, MHD_HTTP_HEADER_HOST);
    if (host == nullptr)
        return refuse(connection, MHD_HTTP_BAD_REQUEST, "the request has no Host header");
    if (!is_host_ours(host, names_))
        return refuse(connection, MHD_HTTP_FORBIDDEN,
                      "the Host header names another machine; --host allows a further name");
    if (url != "/metrics") return refuse(connection, MHD_HTTP_NOT_FOUND, "there is only /metrics");
    const char* accepted = header(connection, MHD_HTTP_HEADER_ACCEPT);
    const bool open =
        accepted != nullptr &&
        std::string_view(accepted).find("application/openmetrics-text") != std::string_view::npos;
    MHD_Response* response = metrics(open ? Exposition::OpenMetrics : Exposition::Text);
    return response == nullptr ? MHD_NO : http_.queue_response(connection, MHD_HTTP_OK, response);
}

MHD_Result Server::refuse(MHD_Connection* connection, unsigned status,
                          std::string_view sentence) const {
    MHD_Response* response = make_response(fmt::format("{}\n", sentence), "text/plain");
    if (response == nullptr) return MHD_NO;
    const MHD_Result queued = http_.queue_response(connection, status, response);
    http_.destroy_response(response);  // The connection holds it.
    return queued;
}

MHD_Response* Server::make_response(std::string_view text, std::string_view type) const {
    MHD_Response* response =
        http_.create_response(text.size(), const_cast<char*>(text.data()), MHD_RESPMEM_MUST_COPY);
    if (response == nullptr) return nullptr;
    http_.add_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, std::string(type).c_str());
    http_.add_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    return response;
}

void Server::forget_answers() {
    for (MHD_Response*& response : answers_) {
        if (response != nullptr) http_.destroy_response(response);
        response = nullptr;
    }
}

MHD_Response* Server::metrics(Exposition exposition) {
    const Clock::time_point now = Clock::now();
    if (families_.empty() || now - looked_ >= kLookLasts) {
        forget_answers();
        families_ = collector_.families();
        looked_ = Clock::now();
    }
    MHD_Response*& response = answers_[static_cast<std::size_t>(exposition)];
    if (response == nullptr)
        response = make_response(render(families_, exposition), content_type(exposition));
    return response;
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

int serve_metrics(const MetricsOptions& options) {
    ListenAddress listen = parse_listen(options.listen);
    const HttpLibrary* http = http_library();
    if (http == nullptr)
        return complain("--listen needs libmicrohttpd.so.12, which is not installed");
    const int socket = open_socket(listen);
    if (socket < 0)
        return complain(
            fmt::format("metrics cannot listen on {}: {}", to_text(listen), std::strerror(errno)));
    const EndSignals signals;
    ::signal(SIGPIPE, SIG_IGN);
    Server server(*http, options);
    if (!server.start(socket)) {
        ::close(socket);
        return complain("the server of metrics cannot start");
    }
    fmt::print("metrics at http://{}/metrics\n", to_text(listen));
    std::fflush(stdout);
    while (!signals.wait(kSweep)) server.connections().end_old_ones(Clock::now());
    return 0;  // The library closes its socket.
}

}  // namespace feroce::cli
