#include "port/network.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "port/identity.hpp"

namespace feroce::port {

Result<std::shared_ptr<Network>> Network::enter() {
    std::shared_ptr<Network> out(new Network(network_of_caller()));
    if (const int error = out->thread_.start(); error != 0)
        return Error{error, "no thread to stay in the network of the device"};
    return out;
}

Network::Network(std::uint64_t id) : id_(id), thread_([this] { body(); }) {}

Network::~Network() {
    give(kEnd);  // The thread's own destructor waits for it.
}

bool Network::is_here() const {
    return id_ != 0 && network_of_caller() == id_;
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
