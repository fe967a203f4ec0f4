// See client_path.hpp.
#include "rtrs/client_path.hpp"

#include <utility>

namespace feroce::rtrs {

ClientPath::ClientPath(rdma::Loop& loop, ClientLink::Plan plan, Owner& owner)
    : loop_(loop),
      plan_(std::move(plan)),
      owner_(owner),
      random_(loop.runtime()),
      backoff_(plan_.options->reconnect, random_),
      changed_(loop) {
    counts_.address = plan_.address;
}

rdma::Task<void> ClientPath::run() {
    while (!removed_) {
        if (wanted_) co_await use_link();
        if (!removed_) co_await pause();
    }
    counts_.state = PathState::Disconnected;
    ended_ = true;
}

rdma::Task<void> ClientPath::use_link() {
    counts_.state = PathState::Connecting;
    ++plan_.incarnation;
    link_ = std::make_unique<ClientLink>(loop_, plan_, owner_);
    auto connected = co_await link_->connect();
    if (connected)
        if (auto usable = owner_.on_connected(*this, *link_); !usable)
            connected = rdma::Error(usable.error());
    if (!connected) {
        ++counts_.connect_failures;
        note(connected.error());
        link_.reset();
        owner_.on_attempt_failed(*this, *last_error_);
        co_return;
    }
    ++counts_.connects;
    counts_.state = PathState::Connected;
    const Instant since = loop_.now();
    up_ = true;
    owner_.on_up(*this);
    while (!link_->failed() && wanted_ && !removed_) (void)co_await changed_.wait();
    up_ = false;
    counts_.state = PathState::Waiting;
    note({ECONNRESET, link_->failed() ? link_->why() : "the user disconnected the path"});
    blameless_ = !link_->failed() || link_->given_up();
    if (!blameless_) backoff_.failed_after(loop_.now() - since);
    owner_.on_down(*this, *link_);
    link_.reset();
}

rdma::Task<void> ClientPath::pause() {
    // One that we ended ourselves is connected again soon, whatever happened before.
    const bool soon = std::exchange(blameless_, false) && plan_.options->reconnect.attempts != 0;
    const auto wait = !wanted_ ? std::nullopt
                      : soon   ? std::optional(plan_.options->reconnect.first)
                               : backoff_.next();
    counts_.state = wait ? PathState::Waiting : PathState::Disconnected;
    const Instant until = wait ? loop_.after(*wait) : kNever;
    hurry_ = false;
    while (!removed_ && !hurry_ && loop_.now() < until) (void)co_await changed_.wait().until(until);
}

void ClientPath::note(const rdma::Error& error) {
    last_error_ = error;
    counts_.last_error = error.why;
}

void ClientPath::disconnect() {
    wanted_ = false;
    hurry_ = true;
    wake();
}

void ClientPath::reconnect() {
    wanted_ = true;
    hurry_ = true;
    backoff_.reset();
    wake();
}

void ClientPath::remove() {
    removed_ = true;
    wake();
}

PathStatistics ClientPath::statistics() {
    PathStatistics out = counts_;
    if (up_) {
        out.inflight = static_cast<std::uint32_t>(link_->inflight().size());
        out.latency = link_->latency();
        out.sent = link_->sent();
    }
    return out;
}

}  // namespace feroce::rtrs
