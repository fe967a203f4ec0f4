#include "port/network.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <optional>

#include "port/clock.hpp"
#include "port/identity.hpp"
#include "port/route.hpp"
#include "port/table_changes.hpp"

namespace feroce::port {
namespace {

// All that the kernel looks at for a source address.
constexpr std::array kTablesOfRoutes{int{RTNLGRP_LINK},        int{RTNLGRP_IPV4_IFADDR},
                                     int{RTNLGRP_IPV6_IFADDR}, int{RTNLGRP_IPV4_ROUTE},
                                     int{RTNLGRP_IPV6_ROUTE},  int{RTNLGRP_IPV4_RULE},
                                     int{RTNLGRP_IPV6_RULE},   int{RTNLGRP_NEXTHOP}};

}  // namespace

Result<std::shared_ptr<Network>> Network::enter() {
    std::shared_ptr<Network> out(new Network(network_of_caller()));
    if (const int error = out->thread_.start(); error != 0)
        return Error{error, "no thread to stay in the network of the device"};
    return out;
}

Network::Network(std::uint64_t id)
    : id_(id), changes_(open_table_changes(kTablesOfRoutes)), thread_([this] { body(); }) {}

Network::~Network() {
    give(kEnd);  // The thread's own destructor waits for it.
}

bool Network::is_here() const {
    return id_ != 0 && network_of_caller() == id_;
}

// Under routes_mutex_.
void Network::look_at_changes() {
    if (take_table_changes(changes_.get())) routes_.forget();
}

Result<Gid> Network::source_for(const Gid& destination, std::uint32_t scope) {
    const auto ask = [&] { return run([&] { return route_source(destination, scope); }); };
    if (!changes_.valid()) return ask();
    const Instant now = monotonic_now();
    std::uint64_t version = 0;
    {
        const std::lock_guard lock(routes_mutex_);
        look_at_changes();
        if (const std::optional<Gid> known = routes_.find(now, destination, scope)) return *known;
        version = routes_.version();
    }
    Result<Gid> source = ask();
    if (!source) return source;
    const std::lock_guard lock(routes_mutex_);
    look_at_changes();
    routes_.keep(now, destination, scope, *source, version);
    return source;
}

// Not by a condition variable: callers may hold a lock, and must not be cancelled with it.
void Network::give(Turn turn) {
    turn_.store(turn, std::memory_order_release);
    ::syscall(SYS_futex, &turn_, FUTEX_WAKE_PRIVATE, 1);
}

Network::Turn Network::await_other_than(Turn turn) {
    std::uint32_t now = turn_.load(std::memory_order_acquire);
    for (; now == turn; now = turn_.load(std::memory_order_acquire))
        ::syscall(SYS_futex, &turn_, FUTEX_WAIT_PRIVATE, turn, nullptr);
    return static_cast<Turn>(now);
}

void Network::run_there(void* job, void (*call)(void*)) {
    const std::lock_guard lock(mutex_);
    job_ = job;
    call_ = call;
    give(kThread);
    (void)await_other_than(kThread);
    if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
}

void Network::body() {
    while (await_other_than(kCaller) != kEnd) {
        try {
            call_(job_);
        } catch (...) {
            thrown_ = std::current_exception();
        }
        give(kCaller);
    }
}

}  // namespace feroce::port
