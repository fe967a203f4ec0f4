#include "feroce/listener.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "rdma/connection_core.hpp"
#include "rdma/failure.hpp"

namespace feroce::rdma {

void ConnectionRequest::Refuse::operator()(rdma_cm_id* id) const {
    ::rdma_reject(id, nullptr, 0);
    ::rdma_destroy_id(id);
}

Address ConnectionRequest::peer() const {
    return Address(*::rdma_get_peer_addr(id_.get()));
}

Address ConnectionRequest::local() const {
    return Address(*::rdma_get_local_addr(id_.get()));
}

Result<Connection> ConnectionRequest::prepare(Loop& loop, const ConnectionOptions& options) && {
    Result<rdma_event_channel*> channel = loop.cm_channel();
    if (!channel) return channel.error();
    if (id_->channel != *channel && ::rdma_migrate_id(id_.get(), *channel) != 0)
        return failure("the request of " + peer().text() + " could not be moved to this loop");
    Connection out(std::make_unique<ConnectionCore>(loop, id_.release(), options, true));
    out.core().set_peer_data(data_);
    if (Result<> made = out.core().make_queue_pair(); !made) return made.error();
    return out;
}

Task<Result<Connection>> ConnectionRequest::accepting(Loop& loop, ConnectionOptions options,
                                                      PrivateData data) {
    Result<Connection> prepared = std::move(*this).prepare(loop, options);
    if (!prepared) co_return prepared;
    if (Result<> done = co_await prepared->accept(data); !done) co_return done.error();
    co_return prepared;
}

void ConnectionRequest::reject(const PrivateData& data) && {
    const std::size_t size = data.bytes().size();
    ::rdma_reject(id_.get(), data.bytes().data(), static_cast<std::uint8_t>(size));
    ::rdma_destroy_id(id_.release());
}

class Listener::Core final : public CmHandler {
public:
    Core(Loop& loop, rdma_cm_id* id, std::size_t most)
        : loop_(loop), id_(id), most_(most), arrived_(loop) {
        id_->context = static_cast<CmHandler*>(this);
    }
    ~Core() {
        waiting_.clear();
        ::rdma_destroy_id(id_);
    }
    Core(const Core&) = delete;
    Core& operator=(const Core&) = delete;

    Loop& loop() const { return loop_; }
    rdma_cm_id* id() const { return id_; }
    std::deque<ConnectionRequest>& waiting() { return waiting_; }
    Signal& arrived() { return arrived_; }

private:
    void on_cm_event(const CmEvent& event) override {
        if (event.type != RDMA_CM_EVENT_CONNECT_REQUEST) return;
        event.id->context = nullptr;  // It inherited ours; until it is accepted nobody listens.
        ConnectionRequest request(event.id, event.data);
        // The device counts no longer what was fetched from it.
        if (waiting_.size() >= most_) return;
        waiting_.push_back(std::move(request));
        arrived_.notify_all();  // A waiter may be gone when its turn comes.
    }

    Loop& loop_;
    rdma_cm_id* id_;
    const std::size_t most_;
    std::deque<ConnectionRequest> waiting_;  // At most so many.
    Signal arrived_;
};

Listener::Listener(std::unique_ptr<Core> core) : core_(std::move(core)) {}
Listener::Listener(Listener&&) noexcept = default;
Listener& Listener::operator=(Listener&&) noexcept = default;
Listener::~Listener() = default;

Result<Listener> Listener::listen(Loop& loop, const Address& at, int backlog) {
    if (Result<> good = at.check(); !good) return good.error();
    Result<rdma_event_channel*> channel = loop.cm_channel();
    if (!channel) return channel.error();
    rdma_cm_id* id = nullptr;
    if (::rdma_create_id(*channel, &id, nullptr, RDMA_PS_TCP) != 0)
        return failure("no id for a listener could be made");
    // As rdma_listen() takes what is no number of them.
    const auto most = static_cast<std::size_t>(backlog > 0 ? backlog : 128);
    Listener out(std::make_unique<Core>(loop, id, most));
    if (::rdma_bind_addr(id, const_cast<sockaddr*>(at.raw())) != 0 ||
        ::rdma_listen(id, backlog) != 0)
        return failure("cannot listen at " + at.text());
    return out;
}

Loop& Listener::loop() const {
    return core_->loop();
}

Task<Result<ConnectionRequest>> Listener::awaiting() {
    Core& core = *core_;
    while (core.waiting().empty())
        if (Result<> waited = co_await core.arrived().wait(); !waited) co_return waited.error();
    ConnectionRequest first = std::move(core.waiting().front());
    core.waiting().pop_front();
    co_return first;
}

Address Listener::address() const {
    return Address(*::rdma_get_local_addr(core_->id()));
}

rdma_cm_id* Listener::raw() const {
    return core_->id();
}

}  // namespace feroce::rdma
