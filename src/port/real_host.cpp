#include "port/real_host.hpp"

#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <utility>

#include "base/assert.hpp"
#include "port/clock.hpp"
#include "port/guest_port.hpp"
#include "port/interfaces.hpp"
#include "port/route.hpp"
#include "port/sharing_errors.hpp"
#include "port/thread.hpp"
#include "port/udp_port.hpp"
#include "port/unix_rendezvous.hpp"

namespace feroce::port {
namespace {

constexpr char kLoopback[] = "lo";
// On a machine where hundreds start, the one that answers, or adds slots, may not have a core for
// long.
constexpr Duration kEnterPatience = std::chrono::seconds(10);
constexpr Duration kClaimPatience = std::chrono::seconds(10);
// For a process that has a slot already, and can do without another.
constexpr Duration kFurtherPatience = std::chrono::milliseconds(100);
// A guest who lost its seat asks again and again: each time only briefly, because the thread that
// asks has other things to do.
constexpr Duration kReturnPatience = std::chrono::milliseconds(5);
// For the relay of this process itself.
constexpr Duration kOwnPatience = std::chrono::milliseconds(300);

}  // namespace

std::uint64_t KernelRandom::next() {
    {
        const std::lock_guard held(lock_);
        if (left_ > 0) return std::exchange(drawn_[--left_], 0);
    }
    decltype(drawn_) fresh;
    // Up to 256 bytes come whole and are never interrupted once the pool is ready.
    while (::syscall(SYS_getrandom, fresh.data(), sizeof fresh, 0) != sizeof fresh)
        ASSERT(errno == EINTR);
    const std::lock_guard held(lock_);
    // Another thread may have drawn as well: one of both is kept.
    drawn_ = fresh;
    left_ = drawn_.size() - 1;
    return std::exchange(drawn_[left_], 0);
}

RealHost::RealHost(Options options)
    : options_(std::move(options)),
      ring_budget_(options_.ring_memory),
      identity_(capture_identity(options_.sharing)),
      owner_(identity_.user) {
    if (!options_.capture_path.empty()) capture_ = Capture::open(options_.capture_path);
    if (!options_.devices.empty() || options_.loopback_named) return;
    for (const host::Interface& interface : list_interfaces({}))
        hides_loopback_ |= interface.name != kLoopback;
}

Instant RealHost::now() {
    return monotonic_now();
}

// A call that nobody took the core from returns in less than a microsecond, and another thread
// keeps it for much longer than this.
bool RealHost::give_way() {
    constexpr Duration kAlone = std::chrono::microseconds(20);
    const Instant before = monotonic_now();
    ::sched_yield();
    return monotonic_now() - before < kAlone;
}

host::Identity RealHost::identity() {
    const std::lock_guard lock(mutex_);
    return identity_;
}

template <class Work>
auto RealHost::in_network(Work&& work) {
    // A child asks the network that it is in. Relaxed: set by this thread, or before it was made.
    if (abandoned_.load(std::memory_order_relaxed)) return work();
    const std::shared_ptr<Network> open = network();
    return open ? open->run(work) : work();
}

std::shared_ptr<Network> RealHost::network() {
    const std::lock_guard lock(network_mutex_);
    return network_.lock();
}

std::vector<host::Interface> RealHost::interfaces() {
    std::vector<host::Interface> all =
        in_network([this] { return list_interfaces(options_.devices); });
    for (host::Interface& interface : all)
        interface.listed = !hides_loopback_ || interface.name != kLoopback;
    return all;
}

Result<std::shared_ptr<Network>> RealHost::enter_network() {
    if (std::shared_ptr<Network> open = network()) return open;
    Result<std::shared_ptr<Network>> entered = Network::enter();
    if (!entered) return entered;
    const std::lock_guard lock(network_mutex_);
    network_ = *entered;
    return entered;
}

Result<PortEntry> RealHost::enter(FormerSeat before, Duration patience) {
    // One group a process: closing a second one's table would drop the locks of the first.
    if (std::shared_ptr<PortGroup> group = group_.lock()) return PortEntry{std::move(group), {}};
    const Identity identity = capture_identity(options_.sharing);
    Result<PortEntry> entry = enter_port(options_.port, identity, before, patience, gate_);
    if (!entry) return entry;
    identity_ = identity;
    owner_ = entry->group ? identity.user : entry->seat->owner;
    if (!entry->group) return entry;
    group_ = entry->group;
    entry->group->watch_for_deaths(options_.death_noticed);
    if (identity.serves_others())
        entry->group->share_with_others(random_, options_.requests_wanted);
    return entry;
}

Result<PortEntry> RealHost::seat_again(FormerSeat before) {
    const std::lock_guard lock(mutex_);
    Result<PortEntry> entry = enter(before, kReturnPatience);
    if (!entry || entry->seat) return entry;
    // The port is ours now. The queue pairs have a guest's slot in their numbers, so this process
    // becomes its own guest.
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return no_unix_socket(errno);
    entry->group->admit_guest(Fd(pair[1]), identity_.user);
    Result<RelaySeat> seat = RelaySeat::ask_over(Fd(pair[0]), identity_.user, before, kOwnPatience);
    if (!seat) return seat.error();
    entry->seat = std::move(*seat);
    return entry;
}

Result<std::unique_ptr<host::HostPort>> RealHost::open_port() {
    const std::lock_guard lock(mutex_);
    Result<std::shared_ptr<Network>> network = enter_network();
    if (!network) return network.error();
    return (*network)->run([&] { return open_port_in(*network); });
}

// A guest has few seats. What counts are members: guests make a group grow, too.
bool RealHost::has_ports_to_spare() {
    const std::lock_guard lock(mutex_);
    const std::shared_ptr<PortGroup> group = group_.lock();
    return group && group->table().members() < kMemberSlots / 2;
}

Result<std::unique_ptr<host::HostPort>> RealHost::open_port_in(
    const std::shared_ptr<Network>& network) {
    Result<PortEntry> entry = enter({}, kEnterPatience);
    if (!entry) return entry.error();
    Meddlers meddlers;
    meddlers.capture = capture_.get();
    if (options_.faults) {
        injectors_.push_back(std::make_unique<FaultInjector>(*options_.faults));
        meddlers.faults = injectors_.back().get();
    }
    if (entry->seat) {
        return GuestPort::open(
            std::move(*entry->seat),
            {network, random_, options_.port, meddlers,
             [this](FormerSeat before) { return seat_again(before); }, tokens_, gate_});
    }
    const Result<SlotNumber> slot =
        claim_slot(*entry->group, entry->group->has_claimed() ? kFurtherPatience : kClaimPatience);
    if (!slot) return slot.error();
    return UdpPort::open(GroupMembership(std::move(entry->group), *slot),
                         {network, random_, options_.port, meddlers, options_.devices,
                          options_.rings, ring_budget_});
}

Result<std::unique_ptr<host::Rendezvous>> RealHost::open_rendezvous(SlotNumber slot,
                                                                    int requests_fd) {
    UnixRendezvous::Settings settings{nullptr, identity().user, slot, requests_fd};
    {
        const std::lock_guard lock(mutex_);
        Result<std::shared_ptr<Network>> network = enter_network();
        if (!network) return network.error();
        settings.network = std::move(*network);
    }
    return UnixRendezvous::open(settings, random_, [this] { return neighbours(); });
}

std::unique_ptr<host::Estate> RealHost::open_estate(SlotNumber slot) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<PortGroup> group = group_.lock();
    if (!group || !is_member_slot(slot)) return nullptr;  // A guest has no part of the file.
    return group->estates().open(slot, [this, group](std::vector<cm::Bond>& out) {
        const std::lock_guard held(mutex_);
        group->inherit(out);
    });
}

Neighbours RealHost::neighbours() {
    const std::lock_guard lock(mutex_);
    Neighbours out;
    out.owner = owner_;
    out.group = group_.lock();
    if (out.group) out.guests = out.group->table().guests();
    out.tokens = tokens_->all();
    return out;
}

Result<Gid> RealHost::source_for(const Gid& destination, std::uint32_t scope) {
    // As in in_network(); the network itself remembers answers.
    const std::shared_ptr<Network> open =
        abandoned_.load(std::memory_order_relaxed) ? nullptr : network();
    return open ? open->source_for(destination, scope) : route_source(destination, scope);
}

Result<std::unique_ptr<host::Task>> RealHost::spawn(std::function<void()> body) {
    auto thread = std::make_unique<Thread>(std::move(body));
    // A thread begins in the network of the one that starts it.
    if (const int error = in_network([&] { return thread->start(); }); error != 0)
        return Error{error, "no thread to drive the device"};
    return std::unique_ptr<host::Task>(std::move(thread));
}

void RealHost::abandon() {
    abandoned_.store(true, std::memory_order_relaxed);
    // A child that never execs would keep a group alive that nobody serves.
    gate_->abandon();
    if (capture_) capture_->abandon();
}

}  // namespace feroce::port
