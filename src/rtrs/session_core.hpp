// SessionCore: a client's session behind its handles: the paths, the book of requests, and what
// brings the two together. One loop, one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "feroce/loop.hpp"
#include "feroce/rtrs/options.hpp"
#include "feroce/rtrs/statistics.hpp"
#include "feroce/task_group.hpp"
#include "rtrs/client_path.hpp"
#include "rtrs/path_chooser.hpp"
#include "rtrs/request_book.hpp"
#include "rtrs/session_directory.hpp"
#include "rtrs/session_memory.hpp"

namespace feroce::rtrs {

class SessionCore final : private ClientPath::Owner {
public:
    SessionCore(rdma::Loop& loop, std::string name, SessionOptions options,
                std::shared_ptr<SessionDirectory> directory);
    ~SessionCore();
    SessionCore(const SessionCore&) = delete;
    SessionCore& operator=(const SessionCore&) = delete;

    rdma::Loop& loop() { return loop_; }
    const std::string& name() const { return name_; }
    rdma::Result<std::size_t> add_path(const PathAddress& address);
    rdma::Result<ClientPath*> path(std::size_t index);
    // Until the first path is up, or every path has failed once.
    rdma::Task<rdma::Result<>> ready();
    // Until the server knows on every path that the session ends; at most a second.
    static rdma::Task<rdma::Result<>> say_goodbye(std::shared_ptr<SessionCore> self);
    bool connected() const { return up_ > 0; }
    bool extended() const { return announced_ && announced_->extension != 0; }

    void submit(Request& request);
    // Gives a request up. If it is in flight and the server could still write the caller's memory,
    // or the device read it, its path goes down; else the permit stays away until the answer.
    void cancel(Request& request, int error, const char* why);
    // The same for a request whose owner goes away.
    void abandon(Request& request);

    rdma::Result<Geometry> geometry() const;
    // Memory that the paths may use directly.
    struct Area {
        AreaId id = 0;
        ByteSpan bytes;
    };
    rdma::Result<Area> allocate(std::size_t bytes);
    void release(const Area& area);
    PathPolicy policy() const { return chooser_.policy(); }
    void set_policy(PathPolicy policy) { chooser_.set_policy(policy); }
    SessionStatistics statistics();

private:
    struct Asked {
        Fence fence;
        const ClientLink* through = nullptr;
    };
    struct NoPath : rdma::Timer {
        explicit NoPath(SessionCore& of);
        SessionCore& session;
    };

    Result<void> on_connected(ClientPath& path, ClientLink& link) override;
    void on_up(ClientPath& path) override;
    void on_down(ClientPath& path, ClientLink& link) override;
    void on_attempt_failed(ClientPath& path, const rdma::Error& error) override;
    void on_answer(ClientLink& link, const Response& response, ByteView note) override;
    void on_overdue(ClientLink& link, const Overdue& overdue) override;
    void on_fence(const Fence& fence) override;
    void on_room() override;
    void on_failed(ClientLink& link) override;

    bool any_goodbye(ClientLink::Goodbye state) const;
    void pump();
    ClientPath* choose(const Request& request);
    void ask_fences();
    void refuse(Request& request, int error, const char* why);
    void withdraw(Request& request, int error, const char* why);  // One that is in flight.
    void tell(LinkEvent event, const ClientPath& path);
    void on_no_path();

    rdma::Loop& loop_;
    std::shared_ptr<SessionDirectory> directory_;  // Which shows this as long as it lives.
    std::string name_;
    SessionOptions options_;
    RuntimeRandom random_;
    Uuid uuid_;
    std::optional<ConnectResponse> announced_;  // By the first link.
    std::optional<SessionMemory> memory_;       // With it,
    std::optional<RequestBook> book_;           // and this.
    PathChooser chooser_;
    std::vector<PathLoad> loads_;
    std::vector<std::unique_ptr<ClientPath>> paths_;  // Removed ones among them.
    std::size_t up_ = 0;
    bool was_up_ = false;
    bool fails_at_once_ = false;  // The patience of queue_if_no_path is used up.
    bool pumping_ = false;
    bool leaving_ = false;  // Goodbyes are waited for.
    std::vector<Asked> asked_;
    std::uint64_t fences_ = 0;
    std::uint64_t epochs_lost_ = 0;
    rdma::Signal changed_;
    NoPath no_path_;
    rdma::TaskGroup tasks_;  // Ends first: its tasks use the rest.
};

}  // namespace feroce::rtrs
