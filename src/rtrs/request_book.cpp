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

Request* RequestBook::in_flight(std::uint16_t permit, const InFlight& path) const {
    const Holder& holder = holders_[permit];
    if (holder.request == nullptr || holder.request->state != Request::State::InFlight ||
        holder.path != &path)
        return nullptr;
    return holder.request;
}

void RequestBook::end(Request& request, const Outcome& outcome, Instant now) {
    switch (request.state) {
        case Request::State::WaitsForPermit:
            permits_.cancel(request);
            break;
        case Request::State::WaitsForPath:
        case Request::State::InWreck:
            request.unlink();
            break;
        case Request::State::InFlight:
            out_of_flight(request, *holders_[request.permit].path);
            break;
        case Request::State::Idle:
        case Request::State::Done:
            return;
    }
    if (holders_[request.permit].request == &request) let_go(request, outcome);
    request.error = outcome.error;
    request.why = outcome.why;
    request.state = Request::State::Done;
    latency_.record(now - request.submitted);
    ++(outcome.error == 0 ? completed_ : failed_);
    --present_;
    request.done(request);
}

// The permit of a request that ends.
void RequestBook::let_go(const Request& request, const Outcome& outcome) {
    Holder& holder = holders_[request.permit];
    const bool in_flight = request.state == Request::State::InFlight;
    if (in_flight && outcome.path_stays) {
        holder = {.path = holder.path};
        return;
    }
    const std::optional<Fence> fence = in_flight ? outcome.fence : holder.failed_through;
    if (!fence) return give_back(request.permit);
    wreck_of(*fence).abandoned.push_back(request.permit);
    holder = {};
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
    while (Request* const request = exhausted_.pop_front()) end(*request, {error, why}, now);
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
    while (PermitWaiter* const waiter = permits_.cancel_first()) {
        auto& request = static_cast<Request&>(*waiter);
        request.state = Request::State::WaitsForPath;  // In no line for permits any more.
        given_up.push_back(request);
    }
    while (Request* const request = given_up.pop_front()) end(*request, {error, why}, now);
}

void RequestBook::give_back(std::uint16_t permit) {
    holders_[permit] = {};
    if (PermitWaiter* const heir = permits_.give(permit))
        wait_for_path(*static_cast<Request*>(heir));
}

}  // namespace feroce::rtrs
