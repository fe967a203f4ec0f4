// Locks of the address space for C. A handle holds its lock at most once; another thread has
// another handle.
#include <cerrno>
#include <utility>

#include "feroce/gas/sync/alock.hpp"
#include "feroce/gas/sync/lease_lock.hpp"
#include "feroce/gas/sync/spin_lock.hpp"
#include "python/arguments.hpp"
#include "python/space.hpp"
#include "python/surface.hpp"

namespace feroce::python {

namespace {

using rdma::Task;

struct LockState {  // In the thread; ends anywhere.
    std::unique_ptr<gas::Mutex> mutex;
    gas::LeaseLock* lease = nullptr;  // The mutex, if it is one.
    bool busy = false;                // It is being taken.
    bool held = false;
};

Task<void> release_quietly(std::shared_ptr<LockState> state) {
    state->held = false;
    static_cast<void>(co_await state->mutex->unlock());
}

class OpenLock final : public Object {
public:
    OpenLock(std::weak_ptr<Space> space, std::shared_ptr<LockState> state)
        : space_(std::move(space)), state_(std::move(state)) {}
    // A lock that is forgotten is freed.
    ~OpenLock() override {
        const auto space = space_.lock();
        if (!space) return;
        space->thread().post([state = state_, &tasks = space->state().tasks] {
            if (state->held) tasks.spawn(release_quietly(state));
        });
    }
    std::shared_ptr<Space> space() const { return space_.lock(); }
    const std::shared_ptr<LockState>& state() const { return state_; }

private:
    std::weak_ptr<Space> space_;  // A lock does not keep a node in its cluster.
    std::shared_ptr<LockState> state_;
};

template <class Kind>
rdma::Result<std::shared_ptr<LockState>> make_lock(gas::Node& node, const std::string& name) {
    const auto line = node.share<typename Kind::Line>(name);
    if (!line) return line.error();
    auto state = std::make_shared<LockState>();
    auto mutex = std::make_unique<Kind>(node.lanes(), *line);
    if constexpr (std::is_same_v<Kind, gas::LeaseLock>) state->lease = mutex.get();
    state->mutex = std::move(mutex);
    return state;
}

rdma::Result<std::shared_ptr<LockState>> make_lock_of(std::uint32_t kind, gas::Node& node,
                                                      const std::string& name) {
    switch (kind) {
        case FEROCE_ALOCK:
            return make_lock<gas::ALock>(node, name);
        case FEROCE_FAIR:
            return make_lock<gas::FairLock>(node, name);
        case FEROCE_LEASE:
            return make_lock<gas::LeaseLock>(node, name);
        case FEROCE_SPIN:
            return make_lock<gas::SpinLock>(node, name);
        case FEROCE_TICKET:
            return make_lock<gas::TicketLock>(node, name);
        default:
            return rdma::Error(EINVAL, "there is no such kind of lock");
    }
}

class Taking {
public:
    explicit Taking(LockState& state) : state_(state) { state_.busy = true; }
    ~Taking() { state_.busy = false; }
    Taking(const Taking&) = delete;
    Taking& operator=(const Taking&) = delete;

private:
    LockState& state_;
};

Task<rdma::Result<bool>> take_lock(gas::Mutex& mutex, bool wait) {
    if (!wait) co_return co_await mutex.try_lock();
    const auto locked = co_await mutex.lock();
    if (!locked) co_return locked.error();
    co_return true;
}

Task<void> acquire(std::shared_ptr<Call> call, std::shared_ptr<LockState> state, bool wait) {
    if (state->busy || state->held)
        co_return fail(*call, rdma::Error(EDEADLK,
                                          "this object holds the lock already, or waits for it; "
                                          "another thread or task needs one of its own"));
    const Taking taking(*state);
    const auto taken = co_await take_lock(*state->mutex, wait);
    Outcome outcome(taken);
    state->held = taken && *taken;
    if (state->held)
        outcome.value =
            state->lease == nullptr ? 1 : std::max<std::uint64_t>(1, state->lease->token());
    if (!call->finish(std::move(outcome)) && state->held) co_await release_quietly(state);
}

Task<void> release(std::shared_ptr<Call> call, std::shared_ptr<LockState> state) {
    state->held = false;
    call->finish(co_await state->mutex->unlock());
}

Task<void> renew(std::shared_ptr<Call> call, std::shared_ptr<LockState> state) {
    if (state->lease == nullptr)
        co_return fail(*call, rdma::Error(EINVAL, "only a lock of the kind lease is renewed"));
    call->finish(co_await state->lease->renew());
}

template <class Make>
std::uint64_t call_of_lock(std::uint64_t queue, std::int64_t timeout, std::uint64_t handle,
                           Make make) {
    const auto lock = Handles::instance().find<OpenLock>(handle);
    const auto space = lock ? lock->space() : nullptr;
    if (!space) return unknown_handle(queue);
    return begin_call(
        space->thread(), queue, timeout,
        [state = lock->state(), make, &of = space->state()](std::shared_ptr<Call> call) {
            if (of.left) return Space::refuse(std::move(call));
            return make(std::move(call), state);
        });
}

}  // namespace

}  // namespace feroce::python

using namespace feroce::python;

feroce_handle feroce_lock_open(feroce_handle queue, int64_t timeout, feroce_handle space,
                               const char* name, uint32_t kind) {
    return begun(queue, [&]() -> feroce_handle {
        const std::weak_ptr<Space> owner = Handles::instance().find<Space>(space);
        return call_alone(queue, timeout, space,
                          [owner, kind, called = text_of(name)](Space::State& state) {
                              const auto made = make_lock_of(kind, state.node, called);
                              Outcome outcome(made);
                              if (made) outcome.made = std::make_shared<OpenLock>(owner, *made);
                              return outcome;
                          });
    });
}

feroce_handle feroce_lock_acquire(feroce_handle queue, int64_t timeout, feroce_handle lock,
                                  int32_t wait) {
    return begun(queue, [&]() -> feroce_handle {
        return call_of_lock(queue, timeout, lock,
                            [wait](std::shared_ptr<Call> call, std::shared_ptr<LockState> state) {
                                return acquire(std::move(call), std::move(state), wait != 0);
                            });
    });
}

feroce_handle feroce_lock_release(feroce_handle queue, int64_t timeout, feroce_handle lock) {
    return begun(queue, [&]() -> feroce_handle {
        return call_of_lock(queue, timeout, lock,
                            [](std::shared_ptr<Call> call, std::shared_ptr<LockState> state) {
                                return release(std::move(call), std::move(state));
                            });
    });
}

feroce_handle feroce_lock_renew(feroce_handle queue, int64_t timeout, feroce_handle lock) {
    return begun(queue, [&]() -> feroce_handle {
        return call_of_lock(queue, timeout, lock,
                            [](std::shared_ptr<Call> call, std::shared_ptr<LockState> state) {
                                return renew(std::move(call), std::move(state));
                            });
    });
}
