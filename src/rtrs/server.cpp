// The server: takes connections, finds or makes sessions and paths for them, ends those that are
// closed, and forgets sessions that nobody comes back to.
#include "feroce/rtrs/server.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <list>
#include <map>
#include <utility>

#include "feroce/listener.hpp"
#include "feroce/signal.hpp"
#include "feroce/task_group.hpp"
#include "rtrs/runtime_random.hpp"
#include "rtrs/server_path.hpp"

namespace feroce::rtrs {

class Server::State final : private ServerPath::Owner {
public:
    State(rdma::Loop& loop, ServerOptions options, const Geometry& geometry, RequestHandler handler,
          rdma::Listener listener)
        : loop_(loop),
          options_(std::move(options)),
          geometry_(geometry),
          handler_(std::move(handler)),
          random_(loop.runtime()),
          listener_(std::move(listener)),
          closing_(loop),
          tasks_(loop) {
        tasks_.spawn(listen());
        tasks_.spawn(reap());
        tasks_.spawn(forget_deserted());
    }
    ~State() {
        for (const auto& [uuid, place] : sessions_) place.session->abandon();
    }

    std::uint16_t port() const { return listener_.address().port(); }
    ServerStatistics statistics() const {
        ServerStatistics out = statistics_;
        out.sessions = sessions_.size();
        out.paths = paths_.size();
        return out;
    }

private:
    struct Place {
        std::shared_ptr<ServerSession> session;
        Instant deserted{};  // Valid while it has no paths.
    };

    rdma::Task<void> listen();
    rdma::Task<void> reap();
    rdma::Task<void> forget_deserted();
    void take(rdma::Request request);
    Result<ServerPath*> path_for(const ConnectRequest& request, std::string route);
    bool is_taken(const std::string& route, const ServerSession& session) const;
    Result<std::shared_ptr<ServerSession>> session_for(const ConnectRequest& request);
    void end_closed_paths();
    ServerPath* find_path(const Uuid& uuid);
    void forget(const ServerSession& session);

    Result<void> on_info(ServerPath& path, const std::string& name) override;
    void on_fence(ServerPath& path, const Fence& fence) override;
    void on_closed(ServerPath& path, const char* why) override;

    rdma::Loop& loop_;
    ServerOptions options_;
    Geometry geometry_;
    RequestHandler handler_;
    RuntimeRandom random_;
    ServerStatistics statistics_;
    std::map<Uuid, Place> sessions_;
    std::list<std::unique_ptr<ServerPath>> paths_;
    PathNumber last_path_ = kNoPath;
    struct Asked {
        Fence fence;
        PathNumber asker = kNoPath;
        std::shared_ptr<ServerSession> session;
    };
    std::vector<Asked> fences_;  // To be confirmed when the paths they name have ended.
    rdma::Listener listener_;
    rdma::Signal closing_;
    rdma::TaskGroup tasks_;  // Ends first: its tasks use the rest.
};

rdma::Task<void> Server::State::listen() {
    for (;;) {
        auto request = co_await listener_.next();
        if (!request) co_return;
        take(*std::move(request));
    }
}

void Server::State::take(rdma::Request request) {
    ConnectResponse response;
    const auto asked = ConnectRequest::parse(request.peer_data().bytes());
    std::string route =
        request.peer().with_port(0).text() + " " + request.local().with_port(0).text();
    Result<ServerPath*> path =
        asked ? path_for(*asked, std::move(route)) : Result<ServerPath*>(asked.error());
    if (path)
        if (auto fits = (*path)->check(*asked); !fits) path = fits.error();
    if (!path) {
        ++statistics_.refused;
        statistics_.last_refusal = path.error().why;
        response.error = path.error().code;
        std::array<std::byte, ConnectResponse::kSize> bytes;
        response.emit(bytes);
        std::move(request).reject(rdma::PrivateData(bytes));
        return;
    }
    const auto& session = (*path)->session();
    response.geometry = geometry_;
    response.new_keys = options_.always_invalidate;
    response.extension = session.identity().extended ? kExtensionLevel : 0;
    response.epoch = session.identity().extended ? session.identity().epoch : 0;
    if (auto added = (*path)->add(asked->connection, std::move(request), response); !added)
        (*path)->close("a connection of the path could not be made");
}

// Two paths of a session over the same two addresses would fail together.
bool Server::State::is_taken(const std::string& route, const ServerSession& session) const {
    return std::any_of(paths_.begin(), paths_.end(), [&](const auto& path) {
        return !path->closed() && &path->session() == &session && path->identity().route == route;
    });
}

Result<ServerPath*> Server::State::path_for(const ConnectRequest& request, std::string route) {
    if (ServerPath* const old = find_path(request.path)) {
        if (old->identity().incarnation == request.reconnects) return old;
        if (!newer_incarnation(request.reconnects, old->identity().incarnation))
            return Error{ECONNRESET, "a connection of a path's former life"};
        // The client knows that the old one is dead before we do.
        old->close("the client connects the path anew");
        end_closed_paths();
    }
    if (request.connection != 0)
        return Error{ECONNRESET, "a path begins with its service connection"};
    auto session = session_for(request);
    if (!session) return session.error();
    if ((*session)->paths() >= kMaxPaths)
        return Error{ECONNRESET, "the session has the largest number of paths"};
    if (is_taken(route, **session))
        return Error{EEXIST, "the session has a path between these two addresses already"};
    const ServerPath::Identity identity{++last_path_, request.path, request.reconnects,
                                        request.connection_count, std::move(route)};
    ServerPath::Owner& owner = *this;
    paths_.push_back(
        std::make_unique<ServerPath>(loop_, identity, *std::move(session), options_, owner));
    return paths_.back().get();
}

Result<std::shared_ptr<ServerSession>> Server::State::session_for(const ConnectRequest& request) {
    const auto found = sessions_.find(request.session);
    const bool extended = request.extension != 0;
    if (found != sessions_.end()) {
        if (found->second.session->identity().extended != extended)
            return Error{ECONNRESET, "paths of one session speak different dialects"};
        return found->second.session;
    }
    if (!request.may_create)
        return Error{ENXIO, "a further path of a session that is not known here"};
    if (sessions_.size() >= options_.max_sessions)
        return Error{ENOMEM, "the server has the largest number of sessions"};
    if ((sessions_.size() + 1) * geometry_.total_size() > options_.max_bytes)
        return Error{ENOMEM, "the chunks of one more session exceed the server's memory limit"};
    auto session = std::make_shared<ServerSession>(
        ServerSession::Identity{request.session, random_.next(), extended}, geometry_, handler_,
        statistics_, loop_.runtime().memory());
    sessions_[request.session] = {session, {}};
    return session;
}

ServerPath* Server::State::find_path(const Uuid& uuid) {
    for (const auto& path : paths_)
        if (path->identity().uuid == uuid && !path->closed()) return path.get();
    return nullptr;
}

Result<void> Server::State::on_info(ServerPath& path, const std::string& name) {
    for (auto at = sessions_.begin(); at != sessions_.end(); ++at) {
        ServerSession& other = *at->second.session;
        if (&other == &path.session() || other.name() != name) continue;
        if (other.paths() > 0) return Error{EPERM, "another session has this name"};
        forget(other);  // Its client is gone; this is the next one of that name.
        sessions_.erase(at);
        break;
    }
    ServerSession& session = path.session();
    if (!session.name().empty() && session.name() != name)
        return Error{EPERM, "paths of one session give different names"};
    if (options_.on_path) {
        const Visitor visitor{session.identity().epoch, name, path.peer()};
        if (const int error = options_.on_path(visitor); error != 0)
            return Error{error, "the server's owner does not let this client in"};
    }
    session.set_name(name);
    return {};
}

void Server::State::on_fence(ServerPath& path, const Fence& fence) {
    // Only the session's own paths.
    for (const auto& other : paths_) {
        const bool named = other->identity().uuid == fence.path &&
                           !newer_incarnation(other->identity().incarnation, fence.reconnects);
        if (named && &other->session() == &path.session()) other->close("the client fenced it");
    }
    fences_.push_back({fence, path.identity().number, path.session().shared_from_this()});
    closing_.notify_all();
}

void Server::State::on_closed(ServerPath& /*path*/, const char* why) {
    ++statistics_.paths_closed;
    statistics_.last_refusal = why;
    closing_.notify_all();
}

rdma::Task<void> Server::State::reap() {
    for (;;) {
        if (auto waited = co_await closing_.wait(); !waited) co_return;
        end_closed_paths();
    }
}

void Server::State::end_closed_paths() {
    // Ending one may close others.
    for (;;) {
        const auto closed = [](const auto& path) { return path->closed(); };
        const auto dead = std::find_if(paths_.begin(), paths_.end(), closed);
        if (dead == paths_.end()) break;
        const std::unique_ptr<ServerPath> path = std::move(*dead);
        paths_.erase(dead);
        ServerSession& session = path->session();
        const auto place = sessions_.find(session.identity().uuid);
        if (place == sessions_.end()) continue;
        place->second.deserted = loop_.now();
        if (session.paths() > 1 || session.identity().extended) continue;
        forget(session);
        sessions_.erase(place);
    }
    // No path that a fence names is left.
    for (const Asked& asked : std::exchange(fences_, {}))
        asked.session->fenced(asked.fence, asked.asker);
}

void Server::State::forget(const ServerSession& session) {
    if (options_.on_session_end) options_.on_session_end(session.identity().epoch);
}

rdma::Task<void> Server::State::forget_deserted() {
    while (co_await loop_.sleep(options_.session_linger / 4 + std::chrono::milliseconds(1))) {
        const Instant now = loop_.now();
        std::erase_if(sessions_, [&](const auto& entry) {
            const bool over = entry.second.session->paths() == 0 &&
                              now - entry.second.deserted > options_.session_linger;
            if (over) forget(*entry.second.session);
            return over;
        });
    }
}

namespace {

// By default every address of both families, as the kernel's server; IPv4 alone where there is no
// other.
rdma::Result<rdma::Listener> listen_at(rdma::Loop& loop, const ServerOptions& options) {
    const auto at = [&](const char* address) {
        return rdma::Listener::listen(loop, rdma::Address(address).with_port(options.port));
    };
    if (!options.address.empty()) return at(options.address.c_str());
    auto both = at("::");
    if (both || (both.error().code != EADDRNOTAVAIL && both.error().code != EAFNOSUPPORT))
        return both;
    return at("0.0.0.0");
}

}  // namespace

Server::Server(std::shared_ptr<State> state) : state_(std::move(state)) {}
Server::Server(Server&&) noexcept = default;
Server& Server::operator=(Server&&) noexcept = default;
Server::~Server() = default;

rdma::Result<Server> Server::open(rdma::Loop& loop, ServerOptions options, RequestHandler handler) {
    if (options.header_size >= options.chunk_size)
        return rdma::Error(EINVAL, "a chunk must be larger than its header_size");
    const Geometry geometry{options.queue_depth, options.chunk_size - options.header_size,
                            options.header_size};
    if (auto fits = geometry.check(); !fits) return rdma::Error(fits.error());
    if (geometry.total_size() > UINT32_MAX)
        return rdma::Error(EINVAL, "queue_depth times chunk_size must stay below 4 GiB");
    auto listener = listen_at(loop, options);
    if (!listener) return listener.error();
    return Server(std::make_shared<State>(loop, std::move(options), geometry, std::move(handler),
                                          *std::move(listener)));
}

std::uint16_t Server::port() const {
    return state_->port();
}

ServerStatistics Server::statistics() const {
    return state_->statistics();
}

}  // namespace feroce::rtrs
