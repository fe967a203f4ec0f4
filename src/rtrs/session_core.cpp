// See session_core.hpp.
#include "rtrs/session_core.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/assert.hpp"
#include "feroce/resolve.hpp"

namespace feroce::rtrs {

namespace {
constexpr std::size_t kAreaAlignment = 4096;
constexpr const char* kOverdue = "the server's handler did not answer within the server's limit";
constexpr Duration kGoodbyeTime = std::chrono::seconds(1);
constexpr std::size_t kLengthNote = 4;  // How long the note of a short read is.
}  // namespace

SessionCore::NoPath::NoPath(SessionCore& of)
    : Timer(of.loop_, [](Timer& timer) { static_cast<NoPath&>(timer).session.on_no_path(); }),
      session(of) {}

SessionCore::SessionCore(rdma::Loop& loop, std::string name, SessionOptions options,
                         std::shared_ptr<SessionDirectory> directory)
    : loop_(loop),
      directory_(std::move(directory)),
      name_(std::move(name)),
      options_(std::move(options)),
      random_(loop.runtime()),
      uuid_(Uuid::random(random_)),
      chooser_(options_.policy),
      changed_(loop),
      no_path_(*this),
      tasks_(loop) {}

SessionCore::~SessionCore() {
    options_.on_link = {};
    for (auto& path : paths_) path->say_goodbye();
    for (auto& path : paths_) path->shut();
    if (!book_) return;
    for (auto& path : paths_)
        if (path->link() != nullptr) book_->path_failed(path->link()->inflight(), std::nullopt);
    book_->fail_waiting(ECANCELED, "the session was closed", loop_.now());
}

rdma::Result<std::size_t> SessionCore::add_path(const PathAddress& address) {
    const auto removed = [](const auto& path) { return path->removed(); };
    const auto gone = std::count_if(paths_.begin(), paths_.end(), removed);
    if (paths_.size() - static_cast<std::size_t>(gone) == kMaxPaths)
        return rdma::Error(ENOSPC, "a session has at most 128 paths");
    for (const auto& path : paths_)
        if (!path->removed() && path->address() == address)
            return rdma::Error(EEXIST,
                               "the session has a path to " + address.destination + " already");
    if (auto good = rdma::check_host(address.destination); !good) return good.error();
    if (!address.source.empty())
        if (auto good = rdma::check_host(address.source); !good) return good.error();
    ClientLink::Plan plan{name_, address, uuid_, Uuid::random(random_), 0, &options_};
    ClientPath::Owner& owner = *this;
    paths_.push_back(std::make_unique<ClientPath>(loop_, std::move(plan), owner));
    loads_.resize(paths_.size());
    tasks_.spawn(paths_.back()->run());
    return paths_.size() - 1;
}

rdma::Result<ClientPath*> SessionCore::path(std::size_t index) {
    if (index >= paths_.size() || paths_[index]->removed())
        return rdma::Error(ENOENT, "the session has no such path");
    return paths_[index].get();
}

rdma::Task<rdma::Result<>> SessionCore::ready() {
    const auto tried = [](const auto& path) { return path->counts().connect_failures > 0; };
    while (!was_up_ && !std::all_of(paths_.begin(), paths_.end(), tried))
        if (auto waited = co_await changed_.wait(); !waited) co_return waited;
    if (was_up_) co_return rdma::Result<>{};
    for (const auto& path : paths_)
        if (path->last_error()) co_return *path->last_error();
    co_return rdma::Error(EINVAL, "a session needs at least one path");
}

rdma::Task<rdma::Result<>> SessionCore::say_goodbye(std::shared_ptr<SessionCore> self) {
    self->leaving_ = true;
    const Instant end = self->loop_.after(kGoodbyeTime);
    for (auto& path : self->paths_) path->say_goodbye();
    while (self->any_goodbye(ClientLink::Goodbye::OnItsWay))
        if (auto waited = co_await self->changed_.wait().until(end); !waited) co_return waited;
    if (self->extended() && !self->any_goodbye(ClientLink::Goodbye::Arrived))
        co_return rdma::Error(ENOTCONN, "no path is up by which the server could be told");
    co_return rdma::Result<>{};
}

bool SessionCore::any_goodbye(ClientLink::Goodbye state) const {
    return std::any_of(paths_.begin(), paths_.end(), [state](const auto& path) {
        return path->link() != nullptr && path->link()->goodbye() == state;
    });
}

void SessionCore::on_room() {
    if (leaving_) changed_.notify_all();
    pump();
}

Result<void> SessionCore::on_connected(ClientPath& /*path*/, ClientLink& link) {
    const ConnectResponse& now = link.announced();
    if (announced_) {
        if (now.geometry != announced_->geometry)
            return Error{EPROTO,
                         "the server changed its queue depth or chunk size; close the "
                         "session and open it again"};
        if ((now.extension != 0) != (announced_->extension != 0))
            return Error{EPROTO,
                         "another kind of server answers; close the session and open it "
                         "again"};
        if (now.epoch != announced_->epoch) ++epochs_lost_;
        announced_->epoch = now.epoch;
    } else {
        announced_ = now;
        memory_.emplace(now.geometry, loop_.runtime().memory());
        book_.emplace(now.geometry.queue_depth);
    }
    link.start(*memory_);
    return {};
}

void SessionCore::on_up(ClientPath& path) {
    no_path_.cancel();
    fails_at_once_ = false;
    const bool back = up_++ == 0 && was_up_;
    was_up_ = true;
    changed_.notify_all();
    tell(LinkEvent::PathUp, path);
    if (back) tell(LinkEvent::Reconnected, path);
    ask_fences();
    pump();
}

void SessionCore::on_down(ClientPath& path, ClientLink& link) {
    path.counts().failovers += link.inflight().size();
    std::erase_if(asked_, [&](const Asked& asked) { return asked.through == &link; });
    const bool by_itself = link.failed() && !link.given_up();
    book_->path_failed(link.inflight(),
                       link.extended() ? std::optional(link.fence()) : std::nullopt,
                       by_itself ? options_.request_attempts : 0);
    const bool last = --up_ == 0;
    if (leaving_) changed_.notify_all();
    tell(LinkEvent::PathDown, path);
    if (last) {
        tell(LinkEvent::Disconnected, path);
        no_path_.arm(loop_.after(options_.queue_if_no_path));
    }
    book_->fail_exhausted(ECONNABORTED, "its path failed every time that it was sent", loop_.now());
    ask_fences();
    pump();
}

void SessionCore::on_attempt_failed(ClientPath& /*path*/, const rdma::Error& /*error*/) {
    changed_.notify_all();
}

void SessionCore::on_failed(ClientLink& link) {
    for (auto& path : paths_)
        if (path->is(link)) path->wake();
}

void SessionCore::on_answer(ClientLink& link, const Response& response, ByteView note) {
    const auto permit = static_cast<std::uint16_t>(response.chunk);
    Request* const request = book_->in_flight(permit, link.inflight());
    if (request == nullptr) {
        if (!book_->answered_late(permit, link.inflight()))
            return link.fail("the server answered a request that was not sent");
        return pump();
    }
    request->moved = request->data_size;
    if (response.error != 0)
        request->text = note_text(note);
    else if (note.size() >= kLengthNote && request->direction == Direction::Read)
        request->moved = std::min<std::size_t>(load_le32(note.first<4>()), request->data_size);
    if (response.error == 0) deliver_staged(*request, *memory_);
    const Instant now = loop_.round_time();
    for (auto& path : paths_) {
        if (!path->is(link)) continue;
        PathStatistics& counts = path->counts();
        const bool read = request->direction == Direction::Read;
        ++(read ? counts.reads : counts.writes);
        (read ? counts.read_bytes : counts.write_bytes) += request->data_size;
        counts.requests.record(now - request->submitted);
    }
    const bool refused = response.error != 0;
    book_->end(*request,
               {response.error, refused ? "the server refused or failed the request" : ""}, now);
    pump();
}

// The server will not write its data any more, so the path stays; the permit comes back with the
// response.
void SessionCore::on_overdue(ClientLink& link, const Overdue& overdue) {
    Request* const request = book_->in_flight(overdue.chunk, link.inflight());
    if (request == nullptr || request->sequence != overdue.sequence) return;
    // The server got a write whose acknowledgement was lost: the device may read it again.
    if (request->direction == Direction::Write && link.uses_memory_of(*request))
        return withdraw(*request, ETIMEDOUT, kOverdue);
    book_->end(*request, {ETIMEDOUT, kOverdue, true}, loop_.now());
    pump();
}

void SessionCore::on_fence(const Fence& fence) {
    ++fences_;
    std::erase_if(asked_, [&](const Asked& asked) { return asked.fence == fence; });
    book_->fenced(fence);
    ask_fences();  // One that was asked without drain may now need it.
    pump();
}

void SessionCore::ask_fences() {
    if (up_ == 0) return;
    for (const Fence& fence : book_->open_fences()) {
        const auto same = [&](const Asked& asked) { return asked.fence == fence; };
        if (std::any_of(asked_.begin(), asked_.end(), same)) continue;
        for (auto& path : paths_) {
            ClientLink* const link = path->link();
            if (link == nullptr || link->failed() || !link->send_fence(fence)) continue;
            asked_.push_back({fence, link});
            break;
        }
    }
}

void SessionCore::submit(Request& request) {
    if (!book_) return refuse(request, ENOTCONN, "the session is not open yet");
    if (auto fits = check_request(request, announced_->geometry, announced_->extension != 0); !fits)
        return refuse(request, fits.error().code, fits.error().why);
    if (up_ == 0 && (fails_at_once_ || options_.queue_if_no_path == Duration{}))
        return refuse(request, ECONNABORTED, "no path of the session is connected");
    book_->submit(request, loop_.round_time());
    pump();
}

void SessionCore::refuse(Request& request, int error, const char* why) {
    request.error = error;
    request.why = why;
    request.state = Request::State::Done;
    request.done(request);
}

void SessionCore::cancel(Request& request, int error, const char* why) {
    if (request.state == Request::State::InFlight) return withdraw(request, error, why);
    book_->end(request, {error, why}, loop_.now());
    ask_fences();
    pump();
}

void SessionCore::abandon(Request& request) {
    request.done = [](Request&) {};
    cancel(request, ECANCELED, "its owner went away");
}

void SessionCore::withdraw(Request& request, int error, const char* why) {
    for (auto& path : paths_) {
        ClientLink* const link = path->link();
        if (link == nullptr || book_->in_flight(request.permit, link->inflight()) == nullptr)
            continue;
        if (!link->uses_memory_of(request)) {
            book_->end(request, {error, why, true}, loop_.now());
            return pump();
        }
        link->give_up("a request was given up whose caller's memory was still in use");
        link->stop();
        Outcome cut_off{error, why};
        if (link->extended()) cut_off.fence = link->fence();
        return book_->end(request, cut_off, loop_.now());
    }
    ASSERT(false && "a request is in flight on no path");
}

// Requests that are done may submit others, which come here again; one round does for all.
void SessionCore::pump() {
    if (std::exchange(pumping_, true)) return;
    while (Request* const request = book_->next()) {
        ClientPath* const path = choose(*request);
        if (path == nullptr) break;
        ClientLink& link = *path->link();
        book_->sent(*request, link.inflight());
        link.send(*request);  // If the device refuses the link fails, and its requests move on.
    }
    pumping_ = false;
}

ClientPath* SessionCore::choose(const Request& request) {
    if (paths_.size() == 1) {
        ClientLink* const only = paths_[0]->link();
        const bool ready = only != nullptr && !only->failed() && only->has_room(request);
        return ready ? paths_[0].get() : nullptr;
    }
    for (std::size_t i = 0; i < paths_.size(); ++i) {
        ClientLink* const link = paths_[i]->link();
        loads_[i] = {};
        if (link == nullptr || link->failed() || !link->has_room(request)) continue;
        loads_[i] = {true, static_cast<std::uint32_t>(link->inflight().size()), link->latency()};
    }
    const auto chosen = chooser_.choose(loads_);
    return chosen ? paths_[*chosen].get() : nullptr;
}

void SessionCore::on_no_path() {
    fails_at_once_ = true;
    book_->fail_waiting(ETIMEDOUT, "no path of the session came back in time", loop_.now());
}

void SessionCore::tell(LinkEvent event, const ClientPath& path) {
    if (!options_.on_link) return;
    const auto at = std::find_if(paths_.begin(), paths_.end(),
                                 [&](const auto& other) { return other.get() == &path; });
    options_.on_link(event, static_cast<std::size_t>(at - paths_.begin()));
}

rdma::Result<Geometry> SessionCore::geometry() const {
    if (!announced_) return rdma::Error(ENOTCONN, "the session is not open yet");
    return announced_->geometry;
}

rdma::Result<SessionCore::Area> SessionCore::allocate(std::size_t bytes) {
    if (!memory_) return rdma::Error(ENOTCONN, "the session is not open yet");
    const auto start = rdma::allocate(loop_.runtime().memory(), bytes, kAreaAlignment);
    if (!start) return start.error();
    std::memset(*start, 0, bytes);
    const ByteSpan area(*start, bytes);
    return Area{memory_->add(area), area};
}

void SessionCore::release(const Area& area) {
    for (auto& path : paths_)
        if (path->link() != nullptr) path->link()->areas().forget(area.id);
    memory_->remove(area.id);
    loop_.runtime().memory().deallocate(area.bytes.data(), area.bytes.size(), kAreaAlignment);
}

SessionStatistics SessionCore::statistics() {
    SessionStatistics out;
    for (std::size_t i = 0; i < paths_.size(); ++i) {
        if (paths_[i]->removed()) continue;
        out.paths.push_back(paths_[i]->statistics());
        out.paths.back().number = i;
    }
    out.fences = fences_;
    out.epochs_lost = epochs_lost_;
    if (!book_) return out;
    out.latency = book_->latency();
    out.completed = book_->completed();
    out.failed = book_->failed();
    out.queue_depth = book_->permits().count();
    out.permits_taken = book_->permits().taken();
    out.permit_waiters = book_->permits().waiting();
    return out;
}

}  // namespace feroce::rtrs
