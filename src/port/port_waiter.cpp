#include "port/port_waiter.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <utility>

#include "port/clock.hpp"
#include "port/epoll_calls.hpp"
#include "port/event_set.hpp"
#include "port/port_group.hpp"
#include "port/socket_calls.hpp"
#include "port/table_changes.hpp"

namespace feroce::port {
namespace {

// How long newcomers are left to other members. Shorter than a newcomer waits for an answer, since
// this member may be the only one.
constexpr Duration kListenerRest = std::chrono::milliseconds(100);

// What woke wait(), in epoll_event::data.
enum Source : std::uint64_t { kArrivals, kRare, kDoorbell, kListener, kEnds, kErrors, kChanges };

// Addresses and links.
constexpr std::array kChangesWanted{int{RTNLGRP_LINK}, int{RTNLGRP_IPV4_IFADDR},
                                    int{RTNLGRP_IPV6_IFADDR}};

}  // namespace

bool PortWaiter::open() {
    arrivals_ = Fd(kernel_epoll_create());
    waiting_ = Fd(kernel_epoll_create());
    doorbell_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    errors_ = Fd(kernel_epoll_create());
    changes_ = open_table_changes(kChangesWanted);
    if (!arrivals_.valid() || !waiting_.valid() || !doorbell_.valid() || !errors_.valid())
        return false;
    return add_to_set(waiting_.get(), arrivals_.get(), EPOLLONESHOT, kArrivals) &&
           add_to_set(waiting_.get(), doorbell_.get(), EPOLLIN, kDoorbell) &&
           add_to_set(waiting_.get(), errors_.get(), EPOLLIN | EPOLLONESHOT, kErrors) &&
           // Without netlink (some sandboxes) changes go unnoticed; nothing else does.
           (!changes_.valid() || add_to_set(waiting_.get(), changes_.get(), EPOLLIN, kChanges));
}

bool PortWaiter::attach(int fd) {
    return add_to_set(arrivals_.get(), fd, EPOLLIN, kArrivals);
}

bool PortWaiter::add_arrivals(int fd) {
    if (fd < 0) return true;
    const std::lock_guard lock(mutex_);
    sockets_.push_back(fd);
    return !attached_ || attach(fd);
}

void PortWaiter::remove_arrivals(int fd) {
    const std::lock_guard lock(mutex_);
    std::erase(sockets_, fd);
    if (attached_) kernel_epoll_ctl(arrivals_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

bool PortWaiter::add_rare(int fd) {
    return fd < 0 || add_to_set(waiting_.get(), fd, EPOLLIN, kRare);
}

bool PortWaiter::add_listener(int fd) {
    listener_ = fd;
    return attach_listener();
}

bool PortWaiter::attach_listener() {
    // Exclusive: a newcomer need not wake every member of the group.
    return add_to_set(waiting_.get(), listener_, EPOLLIN | EPOLLEXCLUSIVE, kListener);
}

// The kernel wakes the same member for every newcomer, which asks again at once: if this one may
// not help it, another shall be woken.
void PortWaiter::serve(PortGroup& group) {
    if (group.serve()) return;
    listens_again_ = monotonic_now() + kListenerRest;
    kernel_epoll_ctl(waiting_.get(), EPOLL_CTL_DEL, listener_, nullptr);
}

bool PortWaiter::add_ends(int fd) {
    return add_to_set(waiting_.get(), fd, EPOLLIN, kEnds);
}

void PortWaiter::set_armed(bool armed) {
    epoll_event event{};
    event.events = (armed ? static_cast<std::uint32_t>(EPOLLIN) : 0u) | EPOLLONESHOT;
    event.data.u64 = kArrivals;
    kernel_epoll_ctl(waiting_.get(), EPOLL_CTL_MOD, arrivals_.get(), &event);
}

void PortWaiter::watch_errors() {
    epoll_event event{};
    event.events = EPOLLIN | EPOLLONESHOT;
    event.data.u64 = kErrors;
    kernel_epoll_ctl(waiting_.get(), EPOLL_CTL_MOD, errors_.get(), &event);
}

void PortWaiter::arm() {
    const std::lock_guard lock(mutex_);
    if (!attached_)
        for (const int fd : sockets_) attach(fd);
    attached_ = true;
    set_armed(true);
}

void PortWaiter::disarm(bool for_long) {
    const std::lock_guard lock(mutex_);
    if (!attached_) return;
    set_armed(false);
    if (!for_long) return;
    for (const int fd : sockets_) kernel_epoll_ctl(arrivals_.get(), EPOLL_CTL_DEL, fd, nullptr);
    attached_ = false;
}

PortWaiter::Woken PortWaiter::wait(Instant until) {
    std::array<epoll_event, 8> events;
    // Without memory for its place it is tried again.
    if (listens_again_ != kNever && monotonic_now() >= listens_again_ && attach_listener())
        listens_again_ = kNever;
    const int count = wait_for_events(waiting_.get(), events, std::min(until, listens_again_));
    Woken woken;
    for (int i = 0; i < count; ++i) {
        const std::uint64_t source = events[static_cast<std::size_t>(i)].data.u64;
        if (source == kListener) {
            woken.newcomer = true;
        } else if (source == kEnds) {
            woken.ended = true;
        } else if (source == kErrors) {
            woken.errors = true;
        } else if (source == kRare) {
            woken.rare = true;
        } else if (source == kDoorbell) {
            std::uint64_t value;
            (void)!::read(doorbell_.get(), &value, sizeof value);
            // seq_cst: a wake() after this writes again; one before has been answered.
            rung_.store(false);
        } else if (source == kChanges) {
            changed_ = take_table_changes(changes_.get());
        } else {
            woken.arrived = true;
        }
    }
    return woken;
}

void PortWaiter::wake() {
    if (rung_.exchange(true)) return;
    ring(doorbell_.get());
}

bool PortWaiter::interfaces_changed() {
    return std::exchange(changed_, false);
}

}  // namespace feroce::port
