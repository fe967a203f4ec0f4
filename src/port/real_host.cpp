#include "port/real_host.hpp"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "base/assert.hpp"
#include "port/clock.hpp"
#include "port/interfaces.hpp"
#include "port/route.hpp"
#include "port/udp_port.hpp"
#include "port/unix_rendezvous.hpp"

namespace feroce::port {
namespace {

// Our thread works in short bursts and others wait for it, some of them spinning on memory. Since
// Linux 6.12 a thread may ask for shorter turns that come sooner; before, nothing happens.
void ask_for_short_slices() {
    struct {
        std::uint32_t size, policy;
        std::uint64_t flags;
        std::int32_t nice;
        std::uint32_t priority;
        std::uint64_t runtime_ns, deadline_ns, period_ns;
    } request{};
    request.size = sizeof request;
    request.policy = SCHED_OTHER;
    request.nice = ::getpriority(PRIO_PROCESS, 0);
    request.runtime_ns = 100'000;
    ::syscall(SYS_sched_setattr, 0, &request, 0);
}

class Thread final : public device::Task {
public:
    explicit Thread(std::function<void()> body) : body_(std::move(body)) {}
    ~Thread() override {
        if (started_) ::pthread_join(thread_, nullptr);
    }

    int start() {
        // Signals are the program's: its handlers must not run on our stack. A fault in registered
        // memory must reach the guard, so those two stay open.
        sigset_t ours, theirs;
        ::sigfillset(&ours);
        ::sigdelset(&ours, SIGSEGV);
        ::sigdelset(&ours, SIGBUS);
        ::pthread_sigmask(SIG_SETMASK, &ours, &theirs);
        const int error = ::pthread_create(&thread_, nullptr, &Thread::enter, this);
        ::pthread_sigmask(SIG_SETMASK, &theirs, nullptr);
        started_ = error == 0;
        return error;
    }

private:
    static void* enter(void* self) {
        ::pthread_setname_np(::pthread_self(), "feroce");
        ask_for_short_slices();
        static_cast<Thread*>(self)->body_();
        return nullptr;
    }

    std::function<void()> body_;
    pthread_t thread_{};
    bool started_ = false;
};

}  // namespace

std::uint64_t KernelRandom::next() {
    std::uint64_t value;
    // Up to 256 bytes come whole and are never interrupted once the pool is ready.
    while (::getrandom(&value, sizeof value, 0) != sizeof value) ASSERT(errno == EINTR);
    return value;
}

RealHost::RealHost(Options options) : options_(std::move(options)) {
    if (!options_.capture_path.empty()) capture_ = Capture::open(options_.capture_path);
}

Instant RealHost::now() {
    return monotonic_now();
}

std::vector<device::Interface> RealHost::interfaces() {
    return list_interfaces(options_.devices);
}

Result<std::unique_ptr<device::HostPort>> RealHost::open_port() {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<PortGroup> group = group_.lock();
    if (!group) {
        Result<std::unique_ptr<PortGroup>> entered = PortGroup::enter(options_.port);
        if (!entered) return entered.error();
        group = std::move(*entered);
        group_ = group;
    }
    const std::optional<std::uint8_t> slot = group->claim();
    if (!slot) return Error{EUSERS, "all 63 slots of UDP port 4791 are taken by other processes"};
    Meddlers meddlers;
    meddlers.capture = capture_.get();
    if (options_.faults) {
        injectors_.push_back(std::make_unique<FaultInjector>(*options_.faults));
        meddlers.faults = injectors_.back().get();
    }
    return UdpPort::open(GroupMembership(std::move(group), *slot),
                         {random_, options_.port, meddlers, options_.devices});
}

Result<std::unique_ptr<device::Rendezvous>> RealHost::open_rendezvous(int requests_fd) {
    return UnixRendezvous::open(requests_fd, random_);
}

Result<Gid> RealHost::source_for(const Gid& destination, std::uint32_t scope) {
    return route_source(destination, scope);
}

Result<std::unique_ptr<device::Task>> RealHost::spawn(std::function<void()> body) {
    auto thread = std::make_unique<Thread>(std::move(body));
    if (const int error = thread->start(); error != 0)
        return Error{error, "no thread to drive the device"};
    return std::unique_ptr<device::Task>(std::move(thread));
}

void RealHost::abandon() {
    // A child that never execs would keep a group alive that nobody serves.
    if (const std::shared_ptr<PortGroup> group = group_.lock()) group->abandon();
}

}  // namespace feroce::port
