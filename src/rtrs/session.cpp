// The handles of session.hpp over SessionCore.
#include "feroce/rtrs/session.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "rtrs/outcome.hpp"
#include "rtrs/session_core.hpp"
#include "rtrs/session_directory.hpp"

namespace feroce::rtrs {

namespace {

// Of a machine with more processors several share a connection: each costs a queue pair at both
// ends, and a round trip when a path is made to the kernel's server.
constexpr unsigned kMostByProcessor = 8;

}  // namespace

SessionTransfer::SessionTransfer(SessionCore& session)
    : Limited(session.loop(),
              [](rdma::Suspension& waiting, int code) {
                  auto& self = static_cast<SessionTransfer&>(waiting);
                  if (self.done()) return;
                  self.session_.cancel(self.request_, code, why_given_up(code));
              }),
      session_(session) {
    request_.transfer = this;
    request_.done = [](Request& request) {
        SessionTransfer& self = *static_cast<Pending&>(request).transfer;
        if (!self.starting_) self.finish();
    };
}

SessionTransfer::~SessionTransfer() {
    using State = Request::State;
    if (request_.state != State::Idle && request_.state != State::Done) session_.abandon(request_);
}

bool SessionTransfer::start(std::coroutine_handle<> handle, const rdma::Limits* outer) {
    code_ = begin(handle, outer);
    if (code_ != 0) return false;
    request_.limited = limited();
    request_.processor = loop().runtime().current_processor();
    starting_ = true;
    session_.submit(request_);
    starting_ = false;
    if (request_.state != Request::State::Done) return true;
    settle();
    return false;
}

Transferred SessionTransfer::result() const {
    return code_ == 0 ? result_of(request_) : Transferred(not_made(code_));
}

SessionBuffer::SessionBuffer(std::shared_ptr<SessionCore> session, std::span<std::byte> bytes,
                             std::uint64_t area, bool elsewhere)
    : session_(std::move(session)), bytes_(bytes), area_(area), elsewhere_(elsewhere) {}

SessionBuffer::SessionBuffer(SessionBuffer&& other) noexcept
    : session_(std::move(other.session_)),
      bytes_(other.bytes_),
      area_(other.area_),
      elsewhere_(other.elsewhere_) {}

SessionBuffer& SessionBuffer::operator=(SessionBuffer&& other) noexcept {
    std::swap(session_, other.session_);
    std::swap(bytes_, other.bytes_);
    std::swap(area_, other.area_);
    std::swap(elsewhere_, other.elsewhere_);
    return *this;
}

SessionBuffer::~SessionBuffer() {
    if (!session_) return;
    if (!elsewhere_) {
        session_->release({area_, bytes_});
        return;
    }
    // The session, which this may be the last to hold, is touched on its own thread only.
    rdma::Loop& there = session_->loop();
    there.post([core = std::move(session_), area = SessionCore::Area{area_, bytes_}] {
        core->release(area);
    });
}

const std::string& Session::name() const {
    return core_->name();
}

bool Session::connected() const {
    return core_->connected();
}

std::size_t Session::max_io_size() const {
    return core_->geometry().value().max_io_size;
}

std::uint16_t Session::queue_depth() const {
    return core_->geometry().value().queue_depth;
}

bool Session::extended() const {
    return core_->extended();
}

rdma::Loop& Session::loop() const {
    return core_->loop();
}

SessionTransfer Session::read(ConstSegment message, Segment into) const {
    return {*core_, message, into};
}

SessionTransfer Session::read(ConstSegment message, std::span<const Segment> into) const {
    return {*core_, message, into};
}

SessionTransfer Session::write(ConstSegment message, ConstSegment from) const {
    return {*core_, message, from};
}

SessionTransfer Session::write(ConstSegment message, std::span<const ConstSegment> from) const {
    return {*core_, message, from};
}

rdma::Result<SessionBuffer> Session::allocate(std::size_t bytes) const {
    auto area = core_->allocate(bytes);
    if (!area) return area.error();
    return SessionBuffer(core_, area->bytes, area->id, false);
}

rdma::Result<std::size_t> Session::add_path(const PathAddress& address) const {
    return core_->add_path(address);
}

rdma::Result<> Session::remove_path(std::size_t path) const {
    auto found = core_->path(path);
    if (!found) return found.error();
    (*found)->remove();
    return {};
}

rdma::Result<> Session::disconnect_path(std::size_t path) const {
    auto found = core_->path(path);
    if (!found) return found.error();
    (*found)->disconnect();
    return {};
}

rdma::Result<> Session::reconnect_path(std::size_t path) const {
    auto found = core_->path(path);
    if (!found) return found.error();
    (*found)->reconnect();
    return {};
}

rdma::Call<> Session::close() const {
    return {loop(), SessionCore::say_goodbye(core_)};
}

void Session::set_policy(PathPolicy policy) const {
    core_->set_policy(policy);
}

SessionStatistics Session::statistics() const {
    return core_->statistics();
}

Client::Client(rdma::Loop& loop) : directory_(std::make_shared<SessionDirectory>(loop)) {}

rdma::Call<Session> Client::open(std::string name, std::vector<PathAddress> paths,
                                 SessionOptions options) {
    return {directory_->loop(),
            open_session(directory_, std::move(name), std::move(paths), std::move(options))};
}

rdma::Task<rdma::Result<Session>> Client::open_session(std::shared_ptr<SessionDirectory> directory,
                                                       std::string name,
                                                       std::vector<PathAddress> paths,
                                                       SessionOptions options) {
    if (auto good = check_session_name(name); !good) co_return good.error();
    if (options.connections >= kMaxConnections)
        co_return rdma::Error(EINVAL, "a path has at most 4095 connections for requests");
    if (options.connections == 0)
        options.connections = static_cast<std::uint16_t>(
            std::clamp(directory->loop().runtime().processor_count(), 1u, kMostByProcessor));
    const std::shared_ptr<SessionCore> core = directory->find_or_make(name, std::move(options));
    for (const PathAddress& address : paths)
        if (auto added = core->add_path(address); !added && added.error().code != EEXIST)
            co_return added.error();
    if (auto ready = co_await core->ready(); !ready) co_return ready.error();
    co_return Session(core);
}

}  // namespace feroce::rtrs
