// See server_shard.hpp.
#include "rtrs/server_shard.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>
#include <utility>

namespace feroce::rtrs {

ServerShard::Common::Common(ServerOptions wanted, const Geometry& shape, RequestHandler serve)
    : options(std::move(wanted)),
      geometry(shape),
      handler(std::move(serve)),
      loops(options.workers),
      registry(std::max<std::size_t>(options.workers.size(), 1),
               {options.max_sessions, options.max_bytes}, geometry.total_size()) {}

ServerShard::ServerShard(std::shared_ptr<Common> common, std::size_t number)
    : common_(std::move(common)),
      number_(number),
      loop_(*common_->loops[number]),
      random_(loop_.runtime()),
      closing_(loop_),
      tasks_(loop_) {
    tasks_.spawn(reap());
    tasks_.spawn(forget_deserted());
}

ServerShard::~ServerShard() {
    for (const auto& path : paths_) path->shut();
    for (const auto& [uuid, place] : sessions_) place.session->abandon();
}

ServerStatistics ServerShard::statistics() const {
    ServerStatistics out = statistics_;
    out.sessions = sessions_.size();
    out.paths = paths_.size();
    return out;
}

void ServerShard::take(rdma::Request request, const ConnectRequest& asked) {
    ConnectResponse response;
    std::string route =
        request.peer().with_port(0).text() + " " + request.local().with_port(0).text();
    Result<ServerPath*> path = path_for(asked, std::move(route));
    if (path)
        if (auto fits = (*path)->check(asked); !fits) path = fits.error();
    if (!path) {
        if (!sessions_.contains(asked.session)) common_->registry.forget(asked.session, number_);
        ++statistics_.refused;
        statistics_.last_refusal = path.error().why;
        return refuse(std::move(request), path.error().code);
    }
    const auto& session = (*path)->session();
    response.geometry = common_->geometry;
    response.new_keys = common_->options.always_invalidate;
    response.extension = session.identity().extended ? kExtensionLevel : 0;
    response.epoch = session.identity().extended ? session.identity().epoch : 0;
    if (auto added = (*path)->add(asked.connection, std::move(request), response); !added)
        (*path)->close("a connection of the path could not be made");
}

void ServerShard::refuse(rdma::Request request, int error) {
    ConnectResponse response;
    response.error = error;
    std::array<std::byte, ConnectResponse::kSize> bytes;
    response.emit(bytes);
    std::move(request).reject(rdma::PrivateData(bytes));
}

// Two paths of a session over the same two addresses would fail together.
bool ServerShard::is_taken(const std::string& route, const ServerSession& session) const {
    return std::any_of(paths_.begin(), paths_.end(), [&](const auto& path) {
        return !path->closed() && &path->session() == &session && path->identity().route == route;
    });
}

Result<ServerPath*> ServerShard::path_for(const ConnectRequest& request, std::string route) {
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
        std::make_unique<ServerPath>(loop_, identity, *session, common_->options, owner));
    common_->registry.set_paths(request.session, (*session)->paths());
    return paths_.back().get();
}

Result<std::shared_ptr<ServerSession>> ServerShard::session_for(const ConnectRequest& request) {
    const auto found = sessions_.find(request.session);
    const bool extended = request.extension != 0;
    if (found != sessions_.end()) {
        if (found->second.session->identity().extended != extended)
            return Error{ECONNRESET, "paths of one session speak different dialects"};
        return found->second.session;
    }
    if (!request.may_create)
        return Error{ENXIO, "a further path of a session that is not known here"};
    if (auto fits = common_->registry.admit(request.session, number_); !fits) return fits.error();
    auto session = std::make_shared<ServerSession>(
        ServerSession::Identity{request.session, random_.next(), extended, &loop_},
        common_->geometry, common_->handler, statistics_, loop_.runtime().memory());
    sessions_[request.session] = {session, {}};
    return session;
}

ServerPath* ServerShard::find_path(const Uuid& uuid) {
    for (const auto& path : paths_)
        if (path->identity().uuid == uuid && !path->closed()) return path.get();
    return nullptr;
}

Result<void> ServerShard::on_info(ServerPath& path, const std::string& name) {
    ServerSession& session = path.session();
    const auto claimed = common_->registry.claim_name(session.identity().uuid, name);
    if (!claimed) return claimed.error();
    if (const auto& displaced = *claimed) {
        const std::size_t shard = displaced->shard;
        const auto yield = [to = common_->shards[shard], uuid = displaced->session] {
            if (const auto there = to.lock()) there->yield_name(uuid);
        };
        shard == number_ ? yield() : common_->loops[shard]->post(yield);
    }
    if (common_->options.on_path) {
        const Visitor visitor{session.identity().epoch, name, path.peer(),
                              session.identity().uuid.bytes};
        if (const int error = common_->options.on_path(visitor); error != 0)
            return Error{error, "the server's owner does not let this client in"};
    }
    session.set_name(name);
    return {};
}

// Its client is gone, and the next one of that name has come. If it is back by now after all, its
// paths are refused when they give their name.
void ServerShard::yield_name(const Uuid& session) {
    const auto place = sessions_.find(session);
    if (place != sessions_.end() && place->second.session->paths() == 0) forget(place);
}

void ServerShard::on_fence(ServerPath& path, const Fence& fence) {
    // Only the session's own paths.
    for (const auto& other : paths_) {
        const bool named = other->identity().uuid == fence.path &&
                           !newer_incarnation(other->identity().incarnation, fence.reconnects);
        if (named && &other->session() == &path.session()) other->close("the client fenced it");
    }
    fences_.push_back({fence, path.identity().number, path.session().shared_from_this()});
    closing_.notify_all();
}

void ServerShard::on_closed(ServerPath& /*path*/, const char* why) {
    ++statistics_.paths_closed;
    statistics_.last_refusal = why;
    closing_.notify_all();
}

rdma::Task<void> ServerShard::reap() {
    for (;;) {
        if (auto waited = co_await closing_.wait(); !waited) co_return;
        end_closed_paths();
    }
}

void ServerShard::end_closed_paths() {
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
        // It counts this path until that has ended.
        common_->registry.set_paths(session.identity().uuid, session.paths() - 1);
        if (session.paths() > 1 || session.identity().extended) continue;
        forget(place);
    }
    // No path that a fence names is left.
    for (const Asked& asked : std::exchange(fences_, {}))
        asked.session->fenced(asked.fence, asked.asker);
}

ServerShard::Places::iterator ServerShard::forget(Places::iterator place) {
    if (common_->options.on_session_end)
        common_->options.on_session_end(place->second.session->identity().epoch);
    common_->registry.forget(place->first, number_);
    return sessions_.erase(place);
}

rdma::Task<void> ServerShard::forget_deserted() {
    const Duration linger = common_->options.session_linger;
    while (co_await loop_.sleep(linger / 4 + std::chrono::milliseconds(1))) {
        const Instant now = loop_.now();
        for (auto at = sessions_.begin(); at != sessions_.end();) {
            const Place& place = at->second;
            const bool over = place.session->paths() == 0 && now - place.deserted > linger;
            at = over ? forget(at) : std::next(at);
        }
    }
}

}  // namespace feroce::rtrs
