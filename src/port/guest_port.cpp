#include "port/guest_port.hpp"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "base/rollback.hpp"
#include "base/shortage.hpp"
#include "port/clock.hpp"
#include "port/epoll_calls.hpp"
#include "port/event_set.hpp"
#include "port/interfaces.hpp"

namespace feroce::port {
namespace {

// How soon a guest without a seat asks again.
constexpr Duration kAskAgain = std::chrono::milliseconds(50);

}  // namespace

Result<std::unique_ptr<host::HostPort>> GuestPort::open(RelaySeat seat, Settings settings) {
    std::unique_ptr<GuestPort> out(new GuestPort(std::move(seat), std::move(settings)));
    if (!out->waiter_.open() || !out->waiter_.add_arrivals(out->seat_.connection.get()))
        return Error{errno, "no epoll set for the UDP port"};
    out->sender_.tell_errors_by(out->waiter_.errors_set());
    out->learn_addresses();
    return std::unique_ptr<host::HostPort>(std::move(out));
}

GuestPort::GuestPort(RelaySeat seat, Settings settings)
    : gate_(std::move(settings.gate)),
      seat_(std::move(seat)),
      seat_again_(std::move(settings.seat_again)),
      tokens_(std::move(settings.tokens)),
      network_(std::move(settings.network)),
      sender_(network_, addresses_, settings.random, settings.port, settings.meddlers),
      capture_(settings.meddlers.capture),
      receiver_(seat_.connection.get(), capture_) {
    tokens_->set(seat_.slot, seat_.token);
    gate_->add(*this);
}

GuestPort::~GuestPort() {
    const ForkGate::Hold hold(*gate_);
    gate_->remove(*this);
    tokens_->forget(seat_.slot);  // While nobody else has the slot.
    seat_.connection.reset();
}

bool GuestPort::poll(Instant now, device::Engine& engine) {
    Link link = link_.load();
    if (link == Link::Lost) return false;
    // Not if wait() has lost it again meanwhile.
    if (link == Link::Found && link_.compare_exchange_strong(link, Link::Up)) receiver_.restart();
    const bool received = receiver_.poll(now, engine);
    if (received) note_traffic();
    if (receiver_.ended()) {
        link_.store(Link::Lost);
        waiter_.wake();
    }
    return received;
}

bool GuestPort::wait(Instant until) {
    if (link_.load() == Link::Lost) {
        // It would be readable for ever.
        waiter_.remove_arrivals(seat_.connection.get());
        const bool seated = sit_down_again();
        until = std::min(until, seated ? watch_.due() : monotonic_now() + kAskAgain);
    } else if (!home_) {
        look_after_relay();
        until = std::min(until, watch_.due());
    }
    const PortWaiter::Woken woken = waiter_.wait(std::min(until, error_news_.due()));
    if (woken.errors) (void)error_news_.note();
    // A newcomer for whom there is no memory comes again.
    if (woken.newcomer) (void)with_memory([this] { waiter_.serve(*home_); });
    return woken.arrived;
}

void GuestPort::note_traffic() {
    if (traffic_.load(std::memory_order_relaxed) == Traffic::Some) return;
    if (traffic_.exchange(Traffic::Some) == Traffic::Unwatched) waiter_.wake();
}

void GuestPort::look_after_relay() {
    for (;;) {
        step_after_relay();
        Traffic none = Traffic::None;
        // Traffic between the step and the rest is seen to before the rest.
        if (!watch_.rests() || traffic_.compare_exchange_strong(none, Traffic::Unwatched)) return;
    }
}

// A relay that is stopped is kept until there is another: it may be continued.
void GuestPort::step_after_relay() {
    const bool traffic = traffic_.exchange(Traffic::None) == Traffic::Some;
    const RelayWatch::Step step = watch_.step(monotonic_now(), seat_.is_unread(), traffic,
                                              idle_gap_.load(std::memory_order_relaxed),
                                              [this] { return state_of(seat_.relay); });
    if (step == RelayWatch::Step::Say) seat_.say_something();
    if (step == RelayWatch::Step::Leave && !sit_down_again()) watch_.failed(monotonic_now());
}

// Of the shard's thread, which has nobody to tell that there is no memory: it asks again.
bool GuestPort::sit_down_again() {
    bool seated = false;
    return with_memory([&] { seated = take_seat(); }) && seated;
}

bool GuestPort::take_seat() {
    Result<PortEntry> again = seat_again_({seat_.slot, seat_.token});
    if (!again) return false;
    // The queue pairs carry the slot in their numbers. With another one they could not be reached:
    // their requests time out, which is what happens without a seat, too.
    if (again->seat->slot != seat_.slot) return false;
    if (again->group && !home_) {
        waiter_.add_listener(again->group->listener());
        const std::lock_guard lock(mutex_);
        home_ = again->group;
    }
    // Without the next steps it would be deaf: it asks again.
    Rollback lose([this] { link_.store(Link::Lost); });
    if (!use_connection(*again->seat)) return false;
    read_requests_at_home();
    lose.keep();
    link_.store(Link::Found);
    // So that the relay knows that the answer came, and what an end of the connection means.
    seat_.say_something();
    watch_.changed(monotonic_now());
    return true;
}

// The token goes with the connection: that of a seat which was not taken is soon no longer true.
bool GuestPort::use_connection(const RelaySeat& seat) {
    waiter_.remove_arrivals(seat_.connection.get());
    if (::dup3(seat.connection.get(), seat_.connection.get(), O_CLOEXEC) < 0) return false;
    seat_.owner = seat.owner;
    seat_.relay = seat.relay;
    seat_.token = seat.token;
    tokens_->set(seat_.slot, seat_.token);
    return waiter_.add_arrivals(seat_.connection.get());
}

// Without queue pairs nothing arrives that would be missed.
void GuestPort::queue_pairs_changed(const device::Engine& engine) {
    const bool managed = engine.qps().find(kGeneralServicesQpn) != nullptr;
    const bool has_any = engine.qps().size() > (managed ? 1 : 0);
    const Duration gap = !has_any  ? Duration::zero()
                         : managed ? RelayWatch::kManagedGap
                                   : RelayWatch::kIdleGap;
    const Duration before = idle_gap_.exchange(gap, std::memory_order_relaxed);
    if (before == Duration::zero() && has_any) waiter_.wake();
}

bool GuestPort::interfaces_changed() {
    const bool changed = waiter_.interfaces_changed();
    if (changed) learn_addresses();
    return changed;
}

// Without memory for the list the last one stays.
void GuestPort::learn_addresses() {
    (void)with_memory(
        [this] { addresses_.set(network_->run([] { return list_interfaces({}); })); });
}

void GuestPort::transmit(std::span<const transport::TransmitRun> runs) {
    sender_.transmit(runs);
    note_traffic();
    if (sender_.has_suspects() && error_news_.note()) waiter_.wake();
}

bool GuestPort::has_suspects() {
    return error_news_.due() != kNever && error_news_.take(monotonic_now());
}

cm::Suspects GuestPort::take_suspects() {
    sender_.look_at_errors();
    waiter_.watch_errors();
    return sender_.take_suspects();
}

int GuestPort::requests_fd() {
    {
        const std::lock_guard lock(mutex_);
        requests_set_ = Fd(kernel_epoll_create());
    }
    read_requests_at_home();
    return requests_set_.get();
}

void GuestPort::read_requests_at_home() {
    const std::lock_guard lock(mutex_);
    if (!requests_set_.valid()) return;
    if (!home_) {
        seat_.want_requests();
        return note_traffic();  // Whether the wish is read.
    }
    if (requests_) return;
    requests_.emplace(*home_, capture_);
    add_to_set(requests_set_.get(), requests_->fd(), EPOLLIN, 0);
}

bool GuestPort::poll_requests(Instant now, device::Engine& engine) {
    const std::lock_guard lock(mutex_);
    return requests_ && requests_->poll(now, engine);
}

}  // namespace feroce::port
