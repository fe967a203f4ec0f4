// See server_shard.hpp.
#include "rtrs/server_shard.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>
#include <utility>

namespace feroce::rtrs {

namespace {
// Connections at a time whose clients have not proved to be there.
constexpr std::size_t kMaxUnproved = 64;
// Requests for connections that nobody has looked at; those beyond are refused.
constexpr std::size_t kMaxNewcomers = 128;
// Further connections of clients that are there. One of them may repeat its requests.
constexpr std::size_t kMaxExpected = 1024;
// How often is looked whether a name has become free.
constexpr Duration kLook = std::chrono::milliseconds(5);
}  // namespace

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
      arrived_(loop_),
      closing_(loop_),
      tasks_(loop_) {
    tasks_.spawn(greet());
    tasks_.spawn(reap());
    tasks_.spawn(forget_deserted());
    if (common_->options.answer_within != Duration{}) tasks_.spawn(watch_handlers());
}

ServerShard::~ServerShard() {
    for (const auto& path : paths_) path->shut();
    for (const auto& [uuid, entry] : sessions_) entry.session->abandon();
}

ServerStatistics ServerShard::statistics() const {
    ServerStatistics out = statistics_;
    out.sessions = sessions_.size();
    out.paths = paths_.size();
    return out;
}

void ServerShard::take(rdma::ConnectionRequest request, const ConnectRequest& asked) {
    Newcomer newest{std::move(request), asked};
    // The rest of a path whose client is there: no stranger knows its number.
    const ServerPath* const path = find_path(asked.path);
    if (path != nullptr && path->proved() && path->identity().incarnation == asked.reconnects) {
        if (auto fits = path->check(asked); !fits)
            return turn_away(std::move(newest), fits.error());
        if (expected_.size() >= kMaxExpected)
            return turn_away(std::move(newest), {EBUSY, "too many connections at a time"});
        expected_.push_back(std::move(newest));
        return arrived_.notify_all();
    }
    if (newcomers_.size() >= kMaxNewcomers)
        return turn_away(std::move(newest), {EBUSY, "too many clients ask at a time"});
    newcomers_.push_back(std::move(newest));
    arrived_.notify_all();
}

// One a round: a queue pair and its memory cost more than any request, and a client that is let in
// already waits for one newcomer at most, however many there are.
rdma::Task<void> ServerShard::greet() {
    for (;;) {
        while (newcomers_.empty() && expected_.empty())
            if (auto waited = co_await arrived_.wait(); !waited) co_return;
        std::deque<Newcomer>& first = expected_.empty() ? newcomers_ : expected_;
        Newcomer oldest = std::move(first.front());
        first.pop_front();
        try {
            answer(std::move(oldest));
        } catch (...) {
            loop_.throw_later(std::current_exception());
        }
        if (auto others = co_await loop_.yield(); !others) co_return;
    }
}

void ServerShard::answer(Newcomer newcomer) {
    auto& [request, asked] = newcomer;
    ConnectResponse response;
    std::string route =
        request.peer().with_port(0).text() + " " + request.local().with_port(0).text();
    Result<ServerPath*> path = path_for(asked, std::move(route));
    if (path)
        if (auto fits = (*path)->check(asked); !fits) path = fits.error();
    if (!path) return turn_away(std::move(newcomer), path.error());
    const auto& session = (*path)->session();
    response.geometry = common_->geometry;
    response.new_keys = common_->options.always_invalidate;
    response.extension = std::min(asked.extension, kExtensionLevel);
    response.epoch = session.identity().extended ? session.identity().epoch : 0;
    if (auto added = (*path)->add(asked.connection, std::move(request), response); !added)
        (*path)->close("a connection of the path could not be made");
}

void ServerShard::turn_away(Newcomer newcomer, const Error& why) {
    const Uuid& session = newcomer.asked.session;
    const auto same = [&](const Newcomer& other) { return other.asked.session == session; };
    if (!sessions_.contains(session) && std::none_of(newcomers_.begin(), newcomers_.end(), same))
        common_->registry.forget(session, number_);
    ++statistics_.refused;
    statistics_.last_refusal = why.why;
    refuse(std::move(newcomer.request), why.code);
}

void ServerShard::refuse(rdma::ConnectionRequest request, int error) {
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
    limit_unproved();
    if (ServerPath* const old = find_path(request.path)) {
        if (old->identity().incarnation == request.reconnects) return old;
        if (!newer_incarnation(request.reconnects, old->identity().incarnation))
            return Error{ECONNRESET, "a connection of a path's former life"};
        // The client knows that the old one is dead before we do.
        old->close("the client connects the path again");
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
    const bool notes = request.extension >= kNoteLevel;
    if (found != sessions_.end()) {
        const ServerSession::Identity& identity = found->second.session->identity();
        if (identity.extended != extended || identity.notes != notes)
            return Error{ECONNRESET, "paths of one session speak different dialects"};
        return found->second.session;
    }
    if (!request.may_create)
        return Error{ENXIO, "a further path of a session that is not known here"};
    // Anybody can send a request in anybody's name: nothing large is made for it, and it is not
    // counted, before its client has proved to be there.
    if (auto fits = common_->registry.has_room(); !fits) return fits.error();
    if (!common_->registry.hold(request.session, number_))
        return Error{ECONNRESET, "the session is served elsewhere by now"};
    auto session = std::make_shared<ServerSession>(
        ServerSession::Identity{request.session, random_.next(), extended, notes, &loop_},
        common_->geometry, ServerSession::Surroundings{&common_->handler, &statistics_, this});
    sessions_[request.session] = {session, {}};
    return session;
}

ServerPath* ServerShard::find_path(const Uuid& uuid) {
    for (const auto& path : paths_)
        if (path->identity().uuid == uuid && !path->closed()) return path.get();
    return nullptr;
}

ServerPath* ServerShard::find_path(PathNumber number) {
    for (const auto& path : paths_)
        if (path->identity().number == number && !path->closed()) return path.get();
    return nullptr;
}

// A flood of forged requests takes places only from its like: a client that is there proves it
// within a round trip.
void ServerShard::limit_unproved() {
    ServerPath* oldest = nullptr;
    std::size_t connections = 0;
    for (const auto& path : paths_) {
        if (path->closed() || path->proved()) continue;
        if (oldest == nullptr) oldest = path.get();
        connections += path->connections();
    }
    if (connections < kMaxUnproved) return;
    oldest->close("newer connections came before its client proved to be there");
    end_closed_paths();
}

void ServerShard::on_info(ServerPath& path, const std::string& name) {
    tasks_.spawn(decide(path.identity().number, name));
}

void ServerShard::on_sign(ServerPath& path) {
    common_->registry.note_sign(path.session().identity().uuid);
}

template <class Function>
void ServerShard::at_shard(std::size_t shard, Function function) {
    if (shard == number_) return function(*this);
    common_->loops[shard]->post([to = common_->shards[shard], function] {
        if (const auto there = to.lock()) function(*there);
    });
}

rdma::Task<void> ServerShard::decide(PathNumber newcomer, std::string name) {
    std::optional<ServerRegistry::Holder> asked;  // For a sign of life,
    Instant since{};                              // then.
    for (;;) {
        ServerPath* const path = find_path(newcomer);
        if (path == nullptr) co_return;
        const auto claimed = common_->registry.claim_name(
            {path->session().identity().uuid, name, path->heartbeat_interval(), path->peer()});
        if (!claimed) co_return path->refuse(claimed.error().code, claimed.error().why);
        if (!*claimed) co_return let_in(*path, name);
        const ServerRegistry::Holder& holder = **claimed;
        if (!asked || asked->session != holder.session) {
            asked = holder;
            since = loop_.now();
            at_shard(holder.shard,
                     [uuid = holder.session](ServerShard& shard) { shard.probe_paths(uuid); });
        } else if (holder.signs != asked->signs) {
            co_return path->refuse(EPERM, "the session name " + name +
                                              " is in use here by a live client at " + holder.peer);
        }
        const bool silent = loop_.now() - since > 2 * holder.heartbeat;
        if (holder.paths == 0 || silent)
            at_shard(holder.shard, [uuid = holder.session, silent](ServerShard& shard) {
                shard.vacate(uuid, silent);
            });
        if (auto slept = co_await loop_.sleep(kLook); !slept) co_return;
    }
}

void ServerShard::let_in(ServerPath& path, const std::string& name) {
    ServerSession& session = path.session();
    const auto entry = sessions_.find(session.identity().uuid);
    if (entry == sessions_.end()) return path.refuse(ECONNRESET, "the session was forgotten");
    if (common_->options.on_path) {
        entry->second.seen = true;
        const Visitor visitor{session.identity().epoch, name, path.peer(),
                              session.identity().uuid.bytes, path.identity().incarnation != 1};
        if (const int error = common_->options.on_path(visitor); error != 0)
            return path.refuse(error, "the server's owner does not let this client in");
    }
    if (!session.furnished()) {
        const auto admitted = common_->registry.admit(session.identity().uuid, number_);
        if (!admitted) return path.refuse(admitted.error().code, admitted.error().why);
        if (!session.furnish(loop_.runtime().memory())) {
            common_->registry.dismiss(session.identity().uuid);
            return path.refuse(ENOMEM, "the server has no memory for one more session");
        }
    }
    session.set_name(name);
    path.admit();
}

void ServerShard::probe_paths(const Uuid& session) {
    for (const auto& path : paths_)
        if (path->session().identity().uuid == session) path->probe();
}

void ServerShard::vacate(const Uuid& session, bool has_paths) {
    const auto entry = sessions_.find(session);
    if (entry == sessions_.end()) return;
    if (!has_paths && entry->second.session->paths() > 0) return;  // Its client is back after all.
    entry->second.session->say_goodbye();
    for (const auto& path : paths_)
        if (&path->session() == entry->second.session.get())
            path->close("it was silent, and another client wanted its session's name");
    closing_.notify_all();
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
        std::unique_ptr<ServerPath> path = std::move(*dead);
        paths_.erase(dead);
        const auto session = path->session().shared_from_this();
        path.reset();
        const auto entry = sessions_.find(session->identity().uuid);
        if (entry == sessions_.end() || entry->second.session != session) continue;
        entry->second.deserted = loop_.now();
        common_->registry.set_paths(session->identity().uuid, session->paths());
    }
    // No path that a fence names is left.
    for (const Asked& asked : std::exchange(fences_, {}))
        asked.session->fenced(asked.fence, asked.asker);
    forget_gone();
}

// Sessions to which nobody comes back, once their last request has ended: until then it may still
// change what the next client of that name works with.
void ServerShard::forget_gone() {
    for (auto at = sessions_.begin(); at != sessions_.end();) {
        const ServerSession& session = *at->second.session;
        const bool gone = session.paths() == 0 && !session.lingers() && session.idle();
        at = gone ? forget(at) : std::next(at);
    }
}

ServerShard::Sessions::iterator ServerShard::forget(Sessions::iterator entry) {
    if (common_->options.on_session_end && entry->second.seen)
        common_->options.on_session_end(entry->second.session->identity().epoch);
    common_->registry.forget(entry->first, number_);
    entry->second.session->abandon();  // A request that still runs may outlive this shard.
    return sessions_.erase(entry);
}

rdma::Task<void> ServerShard::forget_deserted() {
    const Duration linger = common_->options.session_linger;
    while (co_await loop_.sleep(linger / 4 + std::chrono::milliseconds(1))) {
        const Instant now = loop_.now();
        for (auto at = sessions_.begin(); at != sessions_.end();) {
            const Entry& entry = at->second;
            const bool over = entry.session->paths() == 0 && now - entry.deserted > linger;
            at = over && entry.session->idle() ? forget(at) : std::next(at);
        }
    }
}

rdma::Task<void> ServerShard::watch_handlers() {
    const Duration tick = common_->options.answer_within / ServerSession::kTicks;
    while (co_await loop_.sleep(tick))
        for (const auto& [uuid, entry] : sessions_) entry.session->look_for_overdue();
}

}  // namespace feroce::rtrs
