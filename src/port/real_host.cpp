#include "port/real_host.hpp"

#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "base/assert.hpp"
#include "port/clock.hpp"
#include "port/interfaces.hpp"
#include "port/route.hpp"
#include "port/thread.hpp"
#include "port/udp_port.hpp"
#include "port/unix_rendezvous.hpp"

namespace feroce::port {

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
