// See request_book.hpp.
#include "rtrs/request_book.hpp"

#include "base/assert.hpp"

namespace feroce::rtrs {

RequestBook::RequestBook(std::uint16_t permits) : permits_(permits), holders_(permits) {}

bool RequestBook::idle() const {
    return present_ == 0;
}

void RequestBook::submit(Request& request, Instant now) {
    ++present_;
    request.submitted = now;
    request.losses = 0;
    request.state = Request::State::WaitsForPermit;
    if (permits_.take(request)) wait_for_path(request);
}

void RequestBook::wait_for_path(Request& request) {
    holders_[request.permit] = {.request = &request};
    request.sequence = ++sequence_;
    request.state = Request::State::WaitsForPath;
    waiting_.push_back(request);
}

Request* RequestBook::next() {
    if (waiting_.empty()) return nullptr;
    Request& first = waiting_.front();
    return first.losses >= kSuspect && suspects_ > 0 ? nullptr : &first;
}

void RequestBook::sent(Request& request, InFlight& path) {
    request.unlink();
    path.push_back(request);
    suspects_ += request.losses >= kSuspect;
    holders_[request.permit].path = &path;
    request.state = Request::State::InFlight;
}

void RequestBook::out_of_flight(Request& request, InFlight& path) {
    path.remove(request);
    suspects_ -= request.losses >= kSuspect;
}

Request* RequestBook::under_way(std::uint16_t permit, const InFlight& path) const {
    const Holder& holder = holders_[permit];
    if (holder.request == nullptr || holder.request->state != Request::State::InFlight ||
        holder.path != &path)
        return nullptr;
    return holder.request;
}

bool RequestBook::answered(std::uint16_t permit, InFlight& path, int error, Instant now) {
    Request* const request = under_way(permit, path);
    if (request == nullptr) return false;
    out_of_flight(*request, path);
    finish(*request, error, error == 0 ? "" : "the server refused or failed the request", now);
    return true;
}

bool RequestBook::answered_late(std::uint16_t permit, const InFlight& path) {
    const Holder& holder = holders_[permit];
    if (holder.request != nullptr || holder.path != &path) return false;
    give_back(permit);
    return true;
}

void RequestBook::path_failed(InFlight& path, const std::optional<Fence>& fence,
                              unsigned attempts) {
    const auto permits = static_cast<std::uint16_t>(holders_.size());
    for (std::uint16_t permit = 0; permit < permits; ++permit) {
        Holder& left = holders_[permit];
        if (left.request != nullptr || left.path != &path) continue;
        left = {};
        if (fence) wreck_of(*fence).abandoned.push_back(permit);
        if (!fence) give_back(permit);
    }
    // From the back to the front: those that were sent first are sent again first.
    while (Request* const request = path.pop_back()) {
        suspects_ -= request->losses >= kSuspect;
        if (attempts != 0) ++request->losses;
        request->state = fence ? Request::State::InWreck : Request::State::WaitsForPath;
        holders_[request->permit].failed_through = fence;
        rdma::List<Request>& list = fence ? wreck_of(*fence).requests : waiting_;
        const bool exhausted = attempts != 0 && request->losses >= attempts;
        (exhausted ? exhausted_ : list).push_front(*request);
    }
}

void RequestBook::fail_exhausted(int error, const char* why, Instant now) {
    while (Request* const request = exhausted_.pop_front()) give_up(*request, error, why, now);
}

RequestBook::Wreck& RequestBook::wreck_of(const Fence& fence) {
    for (Wreck& wreck : wrecks_)
        if (wreck.fence.path == fence.path && wreck.fence.reconnects == fence.reconnects)
            return wreck;
    wrecks_.emplace_back().fence = fence;
    return wrecks_.back();
}

std::vector<Fence> RequestBook::open_fences() const {
    std::vector<Fence> open;
    for (const Wreck& wreck : wrecks_) {
        open.push_back(wreck.fence);
        // First without: the server may never end what was left, and others wait to be sent again.
        open.back().drain = !wreck.abandoned.empty() && wreck.requests.empty();
    }
    return open;
}

void RequestBook::fenced(const Fence& fence) {
    Wreck& wreck = wreck_of(fence);
    while (Request* const request = wreck.requests.pop_back()) {
        request->state = Request::State::WaitsForPath;
        waiting_.push_front(*request);
    }
    if (!wreck.abandoned.empty() && !fence.drain) return;
    const std::vector<std::uint16_t> permits = std::move(wreck.abandoned);
    wrecks_.remove_if([&](const Wreck& other) { return &other == &wreck; });
    for (const std::uint16_t permit : permits) give_back(permit);
}

void RequestBook::fail_waiting(int error, const char* why, Instant now) {
    rdma::List<Request> given_up;
    for (Wreck& wreck : wrecks_) given_up.splice(wreck.requests);
    given_up.splice(waiting_);
    while (PermitWaiter* const waiter = permits_.cancel_first())
        given_up.push_back(*static_cast<Request*>(waiter));
    while (Request* const request = given_up.pop_front()) give_up(*request, error, why, now);
}

void RequestBook::give_up(Request& request, int error, const char* why, Instant now) {
    Holder& holder = holders_[request.permit];
    if (holder.request == &request && holder.failed_through) {
        wreck_of(*holder.failed_through).abandoned.push_back(request.permit);
        holder = {};
    }
    finish(request, error, why, now);
}

bool RequestBook::cancel(Request& request, int error, const char* why, Instant now) {
    switch (request.state) {
        case Request::State::WaitsForPermit:
            permits_.cancel(request);
            break;
        case Request::State::WaitsForPath:
        case Request::State::InWreck:
            request.unlink();
            break;
        case Request::State::Idle:
        case Request::State::InFlight:
        case Request::State::Done:
            return false;
    }
    give_up(request, error, why, now);
    return true;
}

void RequestBook::leave(Request& request, InFlight& path, int error, const char* why, Instant now) {
    ASSERT(request.state == Request::State::InFlight);
    out_of_flight(request, path);
    holders_[request.permit] = {.path = &path};
    finish(request, error, why, now);
}

void RequestBook::abandon(Request& request, InFlight& path, const std::optional<Fence>& fence) {
    ASSERT(request.state == Request::State::InFlight);
    out_of_flight(request, path);
    request.state = Request::State::Done;
    ++failed_;
    --present_;
    if (!fence) return give_back(request.permit);
    wreck_of(*fence).abandoned.push_back(request.permit);
    holders_[request.permit] = {};
}

void RequestBook::give_back(std::uint16_t permit) {
    holders_[permit] = {};
    if (PermitWaiter* const heir = permits_.give(permit))
        wait_for_path(*static_cast<Request*>(heir));
}

void RequestBook::finish(Request& request, int error, const char* why, Instant now) {
    request.error = error;
    request.why = why;
    request.state = Request::State::Done;
    latency_.record(now - request.submitted);
    ++(error == 0 ? completed_ : failed_);
    --present_;
    if (holders_[request.permit].request == &request) give_back(request.permit);
    request.done(request);
}

}  // namespace feroce::rtrs
