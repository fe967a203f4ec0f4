// ServerShard: the part of a server that one loop drives: its sessions and their paths, from the
// first connection to the day when they are forgotten. A session stays with its loop, so that
// nothing that its requests touch is shared between threads.
#pragma once

#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "feroce/listener.hpp"
#include "feroce/signal.hpp"
#include "feroce/task_group.hpp"
#include "rtrs/runtime_random.hpp"
#include "rtrs/server_path.hpp"
#include "rtrs/server_registry.hpp"

namespace feroce::rtrs {

class ServerShard final : private ServerPath::Owner, private ServerSession::Owner {
public:
    // What the shards of a server share. Nothing but the registry changes once a client was heard.
    struct Common {
        Common(ServerOptions wanted, const Geometry& shape, RequestHandler serve);

        const ServerOptions options;
        const Geometry geometry;
        RequestHandler handler;
        std::vector<rdma::Loop*> loops;                  // One a shard,
        std::vector<std::weak_ptr<ServerShard>> shards;  // each to be locked on its own loop.
        ServerRegistry registry;
    };

    // In the loop's thread, as all that follows and its end.
    ServerShard(std::shared_ptr<Common> common, std::size_t number);
    ~ServerShard();
    ServerShard(const ServerShard&) = delete;
    ServerShard& operator=(const ServerShard&) = delete;

    // A connection for a session of this shard: accepts or refuses it, when it is its turn.
    void take(rdma::ConnectionRequest request, const ConnectRequest& asked);
    ServerStatistics statistics() const;
    // Any thread.
    static void refuse(rdma::ConnectionRequest request, int error);

private:
    struct Entry {
        std::shared_ptr<ServerSession> session;
        Instant deserted{};  // Valid while it has no paths.
        bool seen = false;   // on_path was asked about it.
    };
    using Sessions = std::map<Uuid, Entry>;
    struct Newcomer {
        rdma::ConnectionRequest request;
        ConnectRequest asked;
    };
    struct Asked {
        Fence fence;
        PathNumber asker = kNoPath;
        std::shared_ptr<ServerSession> session;
    };

    rdma::Task<void> greet();
    void answer(Newcomer newcomer);
    void turn_away(Newcomer newcomer, const Error& why);
    rdma::Task<void> reap();
    rdma::Task<void> forget_deserted();
    rdma::Task<void> watch_handlers();
    Result<ServerPath*> path_for(const ConnectRequest& request, std::string route);
    bool is_taken(const std::string& route, const ServerSession& session) const;
    Result<std::shared_ptr<ServerSession>> session_for(const ConnectRequest& request);
    void end_closed_paths();
    ServerPath* find_path(const Uuid& uuid);
    ServerPath* find_path(PathNumber number);
    Sessions::iterator forget(Sessions::iterator entry);
    void forget_gone();
    void limit_unproved();
    // From INFO to the decision: one client of a name is let in, another one when the first is
    // gone.
    rdma::Task<void> decide(PathNumber newcomer, std::string name);
    void let_in(ServerPath& path, const std::string& name);
    // Of the session that holds a name: asks its paths for signs of life; takes the name from it.
    void probe_paths(const Uuid& session);
    void vacate(const Uuid& session, bool has_paths);
    template <class Function>
    void at_shard(std::size_t shard, Function function);

    void on_info(ServerPath& path, const std::string& name) override;
    void on_sign(ServerPath& path) override;
    void on_idle() override { closing_.notify_all(); }
    void on_fence(ServerPath& path, const Fence& fence) override;
    void on_closed(ServerPath& path, const char* why) override;

    const std::shared_ptr<Common> common_;
    const std::size_t number_;
    rdma::Loop& loop_;
    RuntimeRandom random_;
    ServerStatistics statistics_;
    std::deque<Newcomer> newcomers_;  // Oldest first, as the next.
    std::deque<Newcomer> expected_;   // Further connections of proved paths; they come first.
    rdma::Signal arrived_;            // One of them.
    Sessions sessions_;
    std::list<std::unique_ptr<ServerPath>> paths_;
    PathNumber last_path_ = kNoPath;
    std::vector<Asked> fences_;  // To be confirmed when the paths they name have ended.
    rdma::Signal closing_;
    rdma::TaskGroup tasks_;  // Ends first: its tasks use the rest.
};

}  // namespace feroce::rtrs
