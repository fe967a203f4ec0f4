#include "rsocket/socket.hpp"

#include <fcntl.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

namespace feroce::rsockets {
namespace {

// While data flows, the event channel is looked at only now and then.
constexpr std::uint32_t kLooksBetweenEvents = 64;
constexpr std::uint32_t kCallsBetweenLooks = 8;

// Changes every few milliseconds, and costs less to read than a clock.
std::int64_t coarse_tick() {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

Socket::Socket(rdma_event_channel* channel, bool blocking)
    : Endpoint(blocking), channel_(channel) {}

Result<std::shared_ptr<Socket>> Socket::create(bool blocking) {
    using Channel = std::unique_ptr<rdma_event_channel, void (*)(rdma_event_channel*)>;
    Channel channel(rdma_create_event_channel(), rdma_destroy_event_channel);
    if (channel == nullptr) return Error{errno, "no event channel"};
    std::unique_ptr<Socket> owner(new Socket(channel.get(), blocking));
    (void)channel.release();  // The socket's now.
    std::shared_ptr<Socket> made(std::move(owner));
    if (::fcntl(made->descriptor(), F_SETFL, O_NONBLOCK) != 0)
        return Error{errno, "the channel cannot be made non-blocking"};
    return made;
}

Socket::~Socket() {
    drop_requests();
    for (const Mapped& mapped : mapped_) ibv_dereg_mr(mapped.region);
    link_.reset();
    if (id_ != nullptr) rdma_destroy_id(id_);
    rdma_destroy_event_channel(channel_);
}

Result<void> Socket::local_name(sockaddr* address, socklen_t* length) {
    const Lock lock(mutex_);
    const sockaddr_in unbound{AF_INET, 0, {}, {}};
    if (id_ == nullptr)
        return copy_name(reinterpret_cast<const sockaddr*>(&unbound), address, length);
    return copy_name(rdma_get_local_addr(id_), address, length);
}

Result<void> Socket::peer_name(sockaddr* address, socklen_t* length) {
    const Lock lock(mutex_);
    if (phase_ != Phase::Open) return Error{ENOTCONN, "the rsocket has no peer"};
    return copy_name(rdma_get_peer_addr(id_), address, length);
}

Result<void> Socket::set_option(int level, int name, const void* value, socklen_t length) {
    const Lock lock(mutex_);
    return rsockets::set_option(options_, level, name, value, length);
}

Result<void> Socket::get_option(int level, int name, void* value, socklen_t* length) {
    const Lock lock(mutex_);
    if (length == nullptr) return Error{EFAULT, "no length"};
    if (level != SOL_SOCKET || name != SO_ERROR)
        return rsockets::get_option(options_, level, name, value, *length);
    progress();
    const int code = failure() == reported_ ? 0 : failure();
    if (value == nullptr || *length < sizeof code) return Error{EINVAL, "no place for the error"};
    reported_ = failure();
    std::memcpy(value, &code, sizeof code);
    *length = sizeof code;
    return {};
}

// ---- moving on

void Socket::fail(int code) {
    if (phase_ == Phase::Open) return link_->stream().fail(code);
    phase_ = Phase::Failed;
    error_ = code;
}

int Socket::failure() const {
    if (phase_ == Phase::Failed) return error_;
    return link_ != nullptr ? link_->stream().error() : 0;
}

void Socket::progress() {
    if (phase_ == Phase::Fresh || phase_ == Phase::Failed) return;
    bool look = true;
    if (phase_ == Phase::Open)
        look = !link_->progress() &&
               (!link_->stream().was_opened() || ++looks_ % kLooksBetweenEvents == 0);
    if (look && !is_asleep()) take_events();
}

void Socket::take_events() {
    rdma_cm_event* event = nullptr;
    while (rdma_get_cm_event(channel_, &event) == 0) {
        try {
            on_event(*event);
        } catch (const std::bad_alloc&) {
            if (phase_ != Phase::Listening) fail(ENOMEM);  // A listener loses the request.
        }
        rdma_ack_cm_event(event);
    }
}

// ---- waiting

bool Socket::is_settled() const {
    return phase_ == Phase::Failed ||
           (phase_ == Phase::Open && (link_->stream().was_opened() || failure() != 0));
}

bool Socket::has_request() const {
    return phase_ != Phase::Listening || !requests_.empty();
}

bool Socket::can_read() const {
    if (!is_settled()) return false;
    return failure() != 0 || link_->stream().has_data() || !link_->stream().is_readable();
}

bool Socket::has_unread() {
    return phase_ == Phase::Open && link_->stream().has_data() && may_go_on();
}

bool Socket::has_room() {
    return phase_ == Phase::Open && link_->stream().can_send() && may_go_on();
}

bool Socket::may_go_on() {
    const std::int64_t tick = coarse_tick();
    if (++calls_ % kCallsBetweenLooks != 0 && tick == looked_at_) return true;
    looked_at_ = tick;
    return false;
}

bool Socket::can_write() const {
    if (!is_settled()) return false;
    return failure() != 0 || link_->stream().can_send() || !link_->stream().is_writable();
}

bool Socket::can_write_mapped() const {
    if (!is_settled()) return false;
    return failure() != 0 || link_->stream().can_write_mapped() || !link_->stream().is_writable();
}

bool Socket::is_quiet() const {
    return failure() != 0 || link_->stream().is_quiet();
}

void Socket::arm() {
    if (link_ != nullptr) link_->arm();
}

void Socket::drain() {
    take_events();
    if (link_ != nullptr) link_->take_notice();
}

void Socket::append_descriptors(std::vector<pollfd>& to) const {
    to.push_back({channel_->fd, POLLIN, 0});
    if (link_ != nullptr) to.push_back({link_->descriptor(), POLLIN, 0});
}

std::optional<std::chrono::seconds> Socket::ask_after() const {
    if (!options_.keep_alive || phase_ != Phase::Open) return std::nullopt;
    return options_.keep_idle;
}

void Socket::ask() {
    if (phase_ == Phase::Open) link_->stream().keep_alive(link_->outlet());
}

// ---- for rpoll()

short Socket::ready_now() const {
    constexpr int kIn = POLLIN | POLLRDNORM;
    constexpr int kOut = POLLOUT | POLLWRNORM;
    int events = 0;
    switch (phase_) {
        case Phase::Fresh:
            return kOut | POLLHUP;
        case Phase::Listening:
            return requests_.empty() ? 0 : kIn;
        case Phase::Resolving:
        case Phase::Routing:
        case Phase::Connecting:
            return 0;
        case Phase::Failed:
            return kIn | kOut | POLLERR | POLLHUP;
        case Phase::Open:
            break;
    }
    if (!is_settled()) return 0;
    const Stream& stream = link_->stream();
    if (can_read()) events |= kIn;
    if (can_write()) events |= kOut;
    if (!stream.is_readable()) events |= POLLRDHUP;
    if (!stream.is_connected()) events |= POLLHUP;
    if (failure() != 0) events |= POLLERR;
    return static_cast<short>(events);
}

short Socket::ready(short wanted, bool arm_first) {
    const Lock lock(mutex_);
    if (arm_first) arm();
    progress();
    // An end is told when what came before it was read: many programs take POLLHUP for the end of
    // their input, and here a peer's close comes right behind its data.
    const bool unread = phase_ == Phase::Open && link_->stream().has_data();
    const int always = unread && (wanted & POLLIN) != 0 ? 0 : POLLERR | POLLHUP;
    return static_cast<short>(ready_now() & (wanted | always));
}

}  // namespace feroce::rsockets
