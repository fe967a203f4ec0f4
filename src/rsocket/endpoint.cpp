#include "rsocket/endpoint.hpp"

#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "base/uncancelled.hpp"

namespace feroce::rsockets {
namespace {

constexpr Error kStreamsOnly{EOPNOTSUPP, "an rsocket of datagrams does not have this call"};

}  // namespace

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

Result<void> Endpoint::listen(int) {
    return kStreamsOnly;
}

Result<std::shared_ptr<Endpoint>> Endpoint::accept() {
    return kStreamsOnly;
}

Result<off_t> Endpoint::map(void*, std::size_t, int, off_t) {
    return kStreamsOnly;
}

Result<void> Endpoint::unmap(void*, std::size_t) {
    return kStreamsOnly;
}

Result<std::size_t> Endpoint::write_mapped(ByteView, off_t, int) {
    return kStreamsOnly;
}

bool Endpoint::is_blocking() {
    const Lock lock(mutex_);
    return blocking_;
}

void Endpoint::set_blocking(bool blocking) {
    const Lock lock(mutex_);
    blocking_ = blocking;
}

// ---- waiting

// One of the sleepers, without the lock. The thread may be cancelled meanwhile.
class Endpoint::Sleeping {
public:
    Sleeping(Endpoint& endpoint, Lock& lock) : endpoint_(endpoint), lock_(lock) {
        ++endpoint_.sleepers_;
        lock_.unlock();
    }
    ~Sleeping() {
        lock_.lock();
        endpoint_.leave_sleep(woken);
    }
    Sleeping(const Sleeping&) = delete;
    Sleeping& operator=(const Sleeping&) = delete;

    bool woken = false;

private:
    Endpoint& endpoint_;
    Lock& lock_;
};

// Returns at least whenever something has changed, with 0; EINTR at a signal.
int Endpoint::sleep(Lock& lock, Deadline deadline) {
    if (stale_) {  // The sleepers there are get up now.
        drained_.wait(lock, [this] { return !stale_; });
        return 0;
    }
    std::vector<pollfd> on;
    append_descriptors(on);
    Deadline until = deadline;
    if (const auto after = ask_after()) {
        const Clock::time_point at = Clock::now() + *after;
        until = deadline ? std::min(*deadline, at) : at;
    }
    int count = 0;
    int code = 0;
    {
        Sleeping sleeping(*this, lock);
        count = ::poll(on.data(), on.size(), milliseconds_until(until));
        code = count < 0 ? errno : 0;
        sleeping.woken = count > 0;
    }
    if (count == 0 && until != deadline) ask();
    return code;
}

// Called by destructors, which a cancellation must not leave.
void Endpoint::leave_sleep(bool woken) {
    const Uncancelled part;
    --sleepers_;
    stale_ = stale_ || woken;
    if (!stale_ || sleepers_ != 0) return;
    stale_ = false;
    drain();
    drained_.notify_all();
}

// ---- for rpoll()

bool Endpoint::begin_sleep(std::vector<pollfd>& on) {
    const Lock lock(mutex_);
    if (stale_) return false;
    append_descriptors(on);
    ++sleepers_;
    return true;
}

void Endpoint::end_sleep(bool woken) {
    const Lock lock(mutex_);
    leave_sleep(woken);
}

void Endpoint::await_drained() {
    Lock lock(mutex_);
    drained_.wait(lock, [this] { return !stale_; });
}

std::chrono::microseconds Endpoint::polling_time() {
    const Lock lock(mutex_);
    return options_.polling_time;
}

std::optional<std::chrono::seconds> Endpoint::keep_alive_after() {
    const Lock lock(mutex_);
    return ask_after();
}

void Endpoint::keep_alive() {
    const Lock lock(mutex_);
    ask();
}

}  // namespace feroce::rsockets
