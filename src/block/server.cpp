// See server.hpp; what requests mean is in desk.hpp.
#include "feroce/block/server.hpp"

#include <cerrno>
#include <deque>
#include <optional>
#include <utility>

#include "block/desk.hpp"

namespace feroce::block {

class Server::State {
public:
    State(rdma::Loop& loop, std::uint32_t max_io) : loop_(loop), desk_(max_io) {}

    Desk& desk() { return desk_; }
    rdma::Result<> listen(rtrs::ServerOptions options) {
        // A write that was ended here could still land over a later one: a slow disk is waited for.
        options.answer_within = {};
        options.on_path = [this](const rtrs::Visitor& visitor) { return desk_.admit(visitor); };
        options.on_session_end = [this](std::uint64_t session) { desk_.end_session(session); };
        auto opened = rtrs::Server::open(loop_, std::move(options),
                                         [this](auto& request) { desk_.handle(request); });
        if (!opened) return opened.error();
        sessions_ = *std::move(opened);
        return {};
    }
    std::uint16_t port() const { return sessions_ ? sessions_->port() : 0; }
    ServerStatistics statistics() const {
        ServerStatistics out = desk_.statistics();
        if (sessions_) out.sessions = sessions_->statistics();
        return out;
    }
    rdma::Task<rdma::Result<>> stop();

private:
    static constexpr Duration kLook = std::chrono::milliseconds(1);
    rdma::Task<rdma::Result<>> wait_for_back_ends();

    struct Flush : BackendRequest {
        bool ended = false;
        int error = 0;
    };

    rdma::Loop& loop_;
    Desk desk_;
    std::deque<Flush> flushes_;  // Of stop(); back ends hold them until they have ended.
    std::optional<rtrs::Server> sessions_;
};

rdma::Task<rdma::Result<>> Server::State::stop() {
    // Answers that come from here on find no path; clients repeat those requests elsewhere.
    sessions_.reset();
    int error = 0;
    if (auto ended = co_await wait_for_back_ends(); !ended) co_return ended;
    for (const auto& disk : desk_.disks()) {
        Flush& flush = flushes_.emplace_back();
        flush.kind = IoKind::Flush;
        flush.done = [](BackendRequest& request, int code) {
            auto& self = static_cast<Flush&>(request);
            self.ended = true;
            self.error = code;
        };
        disk->what().backend->submit(flush);
        while (!flush.ended)
            if (auto slept = co_await loop_.sleep(kLook); !slept) co_return slept;
        if (flush.error == 0) continue;
        error = flush.error;
        // Its writers are not here any more: the next server tells them.
        disk->flush_failed();
        disk->settle([](int) {});
    }
    if (auto ended = co_await wait_for_back_ends(); !ended) co_return ended;
    if (error != 0) co_return rdma::Error(error, "a disk could not be flushed at the end");
    co_return rdma::Result<>{};
}

rdma::Task<rdma::Result<>> Server::State::wait_for_back_ends() {
    while (desk_.under_way() > 0)
        if (auto slept = co_await loop_.sleep(kLook); !slept) co_return slept;
    co_return rdma::Result<>{};
}

Server::Server(std::unique_ptr<State> state) : state_(std::move(state)) {}
Server::Server(Server&&) noexcept = default;
Server& Server::operator=(Server&&) noexcept = default;
Server::~Server() = default;

rdma::Result<Server> Server::open(rdma::Loop& loop, rtrs::ServerOptions options,
                                  std::vector<Export> exports) {
    if (!options.workers.empty())
        return rdma::Error(EINVAL, "disks are served by one loop; leave the workers out");
    // Of memory for reads and writes around the cache.
    constexpr std::uint32_t kBufferAlignment = 4096;
    if (options.chunk_size % kBufferAlignment != 0 || options.header_size >= options.chunk_size ||
        (options.chunk_size - options.header_size) % kBufferAlignment != 0)
        return rdma::Error(EINVAL,
                           "the chunk size, and what its header leaves of it, must be multiples "
                           "of 4096 bytes");
    auto state = std::make_unique<State>(loop, options.chunk_size - options.header_size);
    for (Export& what : exports)
        if (auto added = state->desk().add(std::move(what)); !added) return added.error();
    if (auto listening = state->listen(std::move(options)); !listening) return listening.error();
    return Server(std::move(state));
}

std::uint16_t Server::port() const {
    return state_->port();
}

ServerStatistics Server::statistics() const {
    return state_->statistics();
}

rdma::Result<> Server::add(Export what) {
    return state_->desk().add(std::move(what));
}

rdma::Result<> Server::withdraw(const std::string& name) {
    if (state_->desk().withdraw(name)) return {};
    return rdma::Error(ENOENT, "no disk " + name + " is exported");
}

std::vector<Writer> Server::writers() const {
    return state_->desk().writers();
}

rdma::Result<> Server::evict(const std::string& name) {
    if (state_->desk().evict(name)) return {};
    return rdma::Error(ENOENT, "no client has the disk " + name + " open for writing");
}

rdma::Task<rdma::Result<>> Server::stop() {
    return state_->stop();
}

}  // namespace feroce::block
