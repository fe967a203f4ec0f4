#include "rsocket/socket.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/uncancelled.hpp"

namespace feroce::rsockets {
namespace {

// While data flows, the event channel is looked at only now and then.
constexpr std::uint32_t kLooksBetweenEvents = 64;

Result<void> copy_name(const sockaddr* from, sockaddr* to, socklen_t* length) {
    if (to == nullptr || length == nullptr) return Error{EFAULT, "no place for the address"};
    const socklen_t size = from->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    std::memcpy(to, from, std::min(*length, size));
    *length = size;
    return {};
}

int milliseconds_until(Deadline deadline) {
    if (!deadline) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now());
    return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1 << 30));
}

}  // namespace

Socket::Socket(rdma_event_channel* channel, bool blocking)
    : channel_(channel), blocking_(blocking), options_(default_options()) {}

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

bool Socket::is_blocking() {
    const Lock lock(mutex_);
    return blocking_;
}

void Socket::set_blocking(bool blocking) {
    const Lock lock(mutex_);
    blocking_ = blocking;
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
    if (look && sleepers_ == 0 && !stale_) take_events();
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

int Socket::wait(Lock& lock, bool blocking, Deadline deadline, Done done) {
    progress();
    if ((this->*done)()) return 0;
    if (!blocking) return EAGAIN;
    for (;;) {
        for (const auto until = Clock::now() + options_.polling_time; Clock::now() < until;) {
            lock.unlock();  // Another thread may have something to do.
            lock.lock();
            progress();
            if ((this->*done)()) return 0;
        }
        if (link_ != nullptr) link_->arm();
        progress();
        if ((this->*done)()) return 0;
        if (deadline && Clock::now() >= *deadline) return EAGAIN;
        if (const int code = sleep(lock, deadline); code != 0) return code;
        progress();
        if ((this->*done)()) return 0;
    }
}

// One of the sleepers, without the lock. The thread may be cancelled meanwhile.
class Socket::Sleeping {
public:
    Sleeping(Socket& socket, Lock& lock) : socket_(socket), lock_(lock) {
        ++socket_.sleepers_;
        lock_.unlock();
    }
    ~Sleeping() {
        lock_.lock();
        socket_.leave_sleep(woken);
    }
    Sleeping(const Sleeping&) = delete;
    Sleeping& operator=(const Sleeping&) = delete;

    bool woken = false;

private:
    Socket& socket_;
    Lock& lock_;
};

// Returns at least whenever something has changed, with 0; EINTR at a signal.
int Socket::sleep(Lock& lock, Deadline deadline) {
    if (stale_) {  // The sleepers there are get up now.
        drained_.wait(lock, [this] { return !stale_; });
        return 0;
    }
    std::array<pollfd, 2> on{{{channel_->fd, POLLIN, 0}, {-1, POLLIN, 0}}};
    if (link_ != nullptr) on[1].fd = link_->descriptor();
    Deadline until = deadline;
    if (options_.keep_alive && phase_ == Phase::Open) {
        const Clock::time_point ask = Clock::now() + options_.keep_idle;
        until = deadline ? std::min(*deadline, ask) : ask;
    }
    int count = 0;
    int code = 0;
    {
        Sleeping sleeping(*this, lock);
        count = ::poll(on.data(), on.size(), milliseconds_until(until));
        code = count < 0 ? errno : 0;
        sleeping.woken = count > 0;
    }
    if (count == 0 && until != deadline) link_->stream().keep_alive(link_->outlet());
    return code;
}

// Called by destructors, which a cancellation must not leave.
void Socket::leave_sleep(bool woken) {
    const Uncancelled part;
    --sleepers_;
    stale_ = stale_ || woken;
    if (!stale_ || sleepers_ != 0) return;
    stale_ = false;
    take_events();
    if (link_ != nullptr) link_->take_notice();
    drained_.notify_all();
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

short Socket::ready(short wanted, bool arm) {
    const Lock lock(mutex_);
    if (arm && link_ != nullptr) link_->arm();
    progress();
    // An end is told when what came before it was read: many programs take POLLHUP for the end of
    // their input, and here a peer's close comes right behind its data.
    const bool unread = phase_ == Phase::Open && link_->stream().has_data();
    const int always = unread && (wanted & POLLIN) != 0 ? 0 : POLLERR | POLLHUP;
    return static_cast<short>(ready_now() & (wanted | always));
}

bool Socket::begin_sleep(std::vector<pollfd>& on) {
    const Lock lock(mutex_);
    if (stale_) return false;
    on.push_back({channel_->fd, POLLIN, 0});
    if (link_ != nullptr) on.push_back({link_->descriptor(), POLLIN, 0});
    ++sleepers_;
    return true;
}

void Socket::end_sleep(bool woken) {
    const Lock lock(mutex_);
    leave_sleep(woken);
}

void Socket::await_drained() {
    Lock lock(mutex_);
    drained_.wait(lock, [this] { return !stale_; });
}

std::chrono::microseconds Socket::polling_time() {
    const Lock lock(mutex_);
    return options_.polling_time;
}

std::optional<std::chrono::seconds> Socket::keep_alive_after() {
    const Lock lock(mutex_);
    if (!options_.keep_alive || phase_ != Phase::Open) return std::nullopt;
    return options_.keep_idle;
}

void Socket::keep_alive() {
    const Lock lock(mutex_);
    if (phase_ == Phase::Open) link_->stream().keep_alive(link_->outlet());
}

}  // namespace feroce::rsockets
