// ClientPath: one path of a session for as long as the session has it: makes a link, waits for its
// failure, and after a while makes the next.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "feroce/rtrs/statistics.hpp"
#include "feroce/signal.hpp"
#include "feroce/task.hpp"
#include "rtrs/backoff.hpp"
#include "rtrs/client_link.hpp"
#include "rtrs/runtime_random.hpp"

namespace feroce::rtrs {

class ClientPath {
public:
    class Owner : public ClientLink::Owner {
    public:
        // Whether the session can work with what the server announced; it can from then on.
        virtual Result<void> on_connected(ClientPath& path, ClientLink& link) = 0;
        virtual void on_up(ClientPath& path) = 0;
        // The link has failed or is to end: take its requests. It ends after this.
        virtual void on_down(ClientPath& path, ClientLink& link) = 0;
        virtual void on_attempt_failed(ClientPath& path, const rdma::Error& error) = 0;

    protected:
        ~Owner() = default;
    };

    ClientPath(rdma::Loop& loop, ClientLink::Plan plan, Owner& owner);

    // Lives as long as the path; the session spawns it.
    rdma::Task<void> run();

    ClientLink* link() { return up_ ? link_.get() : nullptr; }
    // Also by a link that is not up yet: the server may have let it in.
    void say_goodbye() {
        if (link_) link_->say_goodbye();
    }
    bool is(const ClientLink& link) const { return link_.get() == &link; }
    const PathAddress& address() const { return plan_.address; }
    // Of the user. A removed path ends after its link.
    void disconnect();
    void reconnect();
    void remove();
    bool removed() const { return removed_; }
    bool ended() const { return ended_; }
    void shut() {  // The session is destroyed: its link tells nothing any more.
        if (link_) link_->shut();
    }
    void wake() { changed_.notify_all(); }  // Its link has failed.

    PathStatistics& counts() { return counts_; }
    PathStatistics statistics();
    const std::optional<rdma::Error>& last_error() const { return last_error_; }

private:
    rdma::Task<void> use_link();
    rdma::Task<void> pause();
    void note(const rdma::Error& error);

    rdma::Loop& loop_;
    ClientLink::Plan plan_;
    Owner& owner_;
    RuntimeRandom random_;
    Backoff backoff_;
    rdma::Signal changed_;
    bool wanted_ = true;  // The user wants it connected.
    bool removed_ = false;
    bool ended_ = false;
    bool up_ = false;
    bool hurry_ = false;      // reconnect() ends a pause.
    bool blameless_ = false;  // We ended the last link: it had not failed.
    PathStatistics counts_;
    std::optional<rdma::Error> last_error_;
    std::unique_ptr<ClientLink> link_;
};

}  // namespace feroce::rtrs
