// The server: takes connections and hands each to the shard that serves its session, on this loop
// or on another thread's.
#include "feroce/rtrs/server.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <optional>
#include <utility>

#include "feroce/resolve.hpp"
#include "rtrs/server_shard.hpp"

namespace feroce::rtrs {

class Server::State {
public:
    State(rdma::Loop& loop, ServerOptions options, const Geometry& geometry, RequestHandler handler,
          rdma::Listener listener)
        : loop_(loop),
          common_(std::make_shared<ServerShard::Common>(std::move(options), geometry,
                                                        std::move(handler))),
          listener_(std::move(listener)),
          tasks_(std::in_place, loop) {
        if (common_->loops.empty()) common_->loops.push_back(&loop_);
        shards_.resize(common_->loops.size());
        for (std::size_t i = 0; i < shards_.size(); ++i) {
            run_at(i, [&] { shards_[i] = std::make_shared<ServerShard>(common_, i); });
            common_->shards.emplace_back(shards_[i]);
        }
        tasks_->spawn(listen());
    }
    ~State() {
        tasks_.reset();
        for (std::size_t i = 0; i < shards_.size(); ++i) run_at(i, [&] { shards_[i].reset(); });
    }
    State(const State&) = delete;
    State& operator=(const State&) = delete;

    std::uint16_t port() const { return listener_.address().port(); }
    ServerStatistics statistics();

private:
    // How often it is looked whether another thread has done what it was asked.
    static constexpr Duration kLook = std::chrono::microseconds(100);

    // Runs something in a shard's thread and waits for it.
    template <class Function>
    void run_at(std::size_t shard, Function function) {
        rdma::Loop& there = *common_->loops[shard];
        if (&there == &loop_) return function();
        std::atomic<bool> done = false;  // Release and acquire: what the function did is seen here.
        there.post([&] {
            function();
            done.store(true, std::memory_order_release);
        });
        while (!done.load(std::memory_order_acquire)) loop_.runtime().wait(loop_.after(kLook), {});
    }
    rdma::Task<void> listen();
    void hand_over(rdma::ConnectionRequest request);

    rdma::Loop& loop_;
    const std::shared_ptr<ServerShard::Common> common_;
    std::vector<std::shared_ptr<ServerShard>> shards_;  // Each is touched in its own thread only.
    std::uint64_t refused_ = 0;                         // Here, before any shard was asked.
    std::string last_refusal_;
    rdma::Listener listener_;
    std::optional<rdma::TaskGroup> tasks_;
};

rdma::Task<void> Server::State::listen() {
    for (;;) {
        auto request = co_await listener_.next();
        if (!request) co_return;
        hand_over(*std::move(request));
    }
}

void Server::State::hand_over(rdma::ConnectionRequest request) {
    const auto asked = ConnectRequest::parse(request.peer_data().bytes());
    if (!asked) {
        ++refused_;
        last_refusal_ = asked.error().why;
        return ServerShard::refuse(std::move(request), asked.error().code);
    }
    const std::size_t shard = common_->registry.shard_of(asked->session);
    rdma::Loop& there = *common_->loops[shard];
    if (&there == &loop_) return shards_[shard]->take(std::move(request), *asked);
    // Shared because a function must be copyable; dropped, it is refused.
    there.post([to = common_->shards[shard], asked = *asked,
                held = std::make_shared<rdma::ConnectionRequest>(std::move(request))] {
        if (const auto served = to.lock()) served->take(std::move(*held), asked);
    });
}

ServerStatistics Server::State::statistics() {
    ServerStatistics sum;
    sum.refused = refused_;
    sum.last_refusal = last_refusal_;
    for (std::size_t i = 0; i < shards_.size(); ++i) {
        ServerStatistics part;
        run_at(i, [&] { part = shards_[i]->statistics(); });
        sum.sessions += part.sessions;
        sum.paths += part.paths;
        sum.requests += part.requests;
        sum.replays += part.replays;
        sum.joins += part.joins;
        sum.stale += part.stale;
        sum.fences += part.fences;
        sum.overdue += part.overdue;
        sum.dropped += part.dropped;
        sum.paths_closed += part.paths_closed;
        sum.refused += part.refused;
        if (!part.last_refusal.empty()) sum.last_refusal = part.last_refusal;
    }
    return sum;
}

namespace {

constexpr int kBacklog = 1024;  // All connections of dozens of clients that come at once.

// By default every address of both families, as the kernel's server; IPv4 alone where there is no
// other.
rdma::Result<rdma::Listener> listen_at(rdma::Loop& loop, const ServerOptions& options) {
    const auto at = [&](const rdma::Address& address) {
        return rdma::Listener::listen(loop, address.with_port(options.port), kBacklog);
    };
    if (!options.address.empty()) {
        const rdma::Address numeric(options.address);
        if (numeric.check()) return at(numeric);
        const auto named = loop.run(rdma::resolve(loop, options.address));
        if (!named) return named.error();
        return at(named->front());
    }
    auto both = at("::");
    if (both || (both.error().code != EADDRNOTAVAIL && both.error().code != EAFNOSUPPORT))
        return both;
    return at("0.0.0.0");
}

}  // namespace

namespace {

// The one answer of a task's request, also if the task is destroyed before its end.
class PendingAnswer {
public:
    explicit PendingAnswer(ServerRequest& request) : request_(&request) {}
    ~PendingAnswer() {
        if (request_ != nullptr)
            request_->respond(rdma::Error(ECANCELED, "the handler's task was destroyed"));
    }
    PendingAnswer(const PendingAnswer&) = delete;
    PendingAnswer& operator=(const PendingAnswer&) = delete;

    void give(const rdma::Result<std::size_t>& result) {
        ServerRequest& request = *std::exchange(request_, nullptr);
        if (!result) return request.respond(result.error());
        if (request.direction() == Direction::Read) return request.respond_filled(*result);
        request.respond();
    }

private:
    ServerRequest* request_;
};

rdma::Task<void> run_handler(std::shared_ptr<const TaskHandler> handler, ServerRequest& request) {
    PendingAnswer answer(request);
    try {
        HandlerTask task = (*handler)(request);
        answer.give(co_await task);
    } catch (...) {
        answer.give(rdma::Error(EIO, "the handler threw"));
        throw;
    }
}

}  // namespace

rdma::Result<Server> Server::open_awaiting(rdma::Loop& loop, ServerOptions options,
                                           TaskHandler handler) {
    auto shared = std::make_shared<const TaskHandler>(std::move(handler));
    return open(loop, std::move(options), RequestHandler([shared](ServerRequest& request) {
                    request.loop().spawn(run_handler(shared, request));
                }));
}

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
