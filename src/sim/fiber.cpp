#include "sim/fiber.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <utility>

#include "base/assert.hpp"
#include "base/sanitizers.hpp"
#include "sim/stack_switch.hpp"

#if defined(FEROCE_ASAN)
#include <sanitizer/common_interface_defs.h>
#elif defined(FEROCE_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

namespace feroce::sim {
namespace {

// Frames grow several times over under a sanitizer; untouched pages cost nothing.
constexpr std::size_t kStackBytes = 1024 * 1024;

Fiber* running = nullptr;  // Simulations have one thread.

}  // namespace

// Sanitizers follow stacks; each of these tells them of a change, and is nothing without one.
struct Fiber::Switch {
    StackSwitch inside, outside;
    std::byte* mapping = nullptr;
    std::size_t guard = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
#if defined(FEROCE_ASAN)
    void* fake_inside = nullptr;
    void* fake_outside = nullptr;
    const void* outside_bottom = nullptr;
    std::size_t outside_size = 0;
#elif defined(FEROCE_TSAN)
    void* thread_inside = __tsan_create_fiber(0);
    void* thread_outside = nullptr;
#endif

    Switch() {
        void* fresh = ::mmap(nullptr, guard + kStackBytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
        ASSERT(fresh != MAP_FAILED);
        mapping = static_cast<std::byte*>(fresh);
        ASSERT(::mprotect(mapping, guard, PROT_NONE) == 0);
    }
    ~Switch() {
        ::munmap(mapping, guard + kStackBytes);
#if defined(FEROCE_TSAN)
        __tsan_destroy_fiber(thread_inside);
#endif
    }
    Switch(const Switch&) = delete;
    Switch& operator=(const Switch&) = delete;

    std::byte* stack() const {
        return mapping + guard;
    }

    void before_entry() {
#if defined(FEROCE_ASAN)
        __sanitizer_start_switch_fiber(&fake_outside, stack(), kStackBytes);
#elif defined(FEROCE_TSAN)
        thread_outside = __tsan_get_current_fiber();
        __tsan_switch_to_fiber(thread_inside, 0);
#endif
    }
    void after_entry() {
#if defined(FEROCE_ASAN)
        __sanitizer_finish_switch_fiber(fake_inside, &outside_bottom, &outside_size);
#endif
    }
    void before_exit([[maybe_unused]] bool for_good) {
#if defined(FEROCE_ASAN)
        __sanitizer_start_switch_fiber(for_good ? nullptr : &fake_inside, outside_bottom,
                                       outside_size);
#elif defined(FEROCE_TSAN)
        __tsan_switch_to_fiber(thread_outside, 0);
#endif
    }
    void after_exit() {
#if defined(FEROCE_ASAN)
        __sanitizer_finish_switch_fiber(fake_outside, nullptr, nullptr);
#endif
    }
};

Fiber::Fiber(std::function<void()> body)
    : body_(std::move(body)), switch_(std::make_unique<Switch>()) {}

Fiber::~Fiber() {
    ASSERT(ended_ || !started_);
}

Fiber* Fiber::current() {
    return running;
}

void Fiber::resume() {
    ASSERT(!ended_ && running != this);
    if (!std::exchange(started_, true)) {
        switch_->inside.prepare(switch_->stack(), kStackBytes, &Fiber::enter);
    }
    outer_ = std::exchange(running, this);
    switch_->before_entry();
    switch_->outside.change_to(switch_->inside);
    switch_->after_exit();
}

// The switch passes no pointers, so the fiber is the one that is running.
void Fiber::enter() {
    running->body();
}

void Fiber::body() {
    switch_->after_entry();
    body_();
    body_ = nullptr;
    ended_ = true;
    leave(true);
}

void Fiber::suspend() {
    ASSERT(running != nullptr);
    running->leave(false);
}

void Fiber::leave(bool for_good) {
    running = outer_;
    switch_->before_exit(for_good);
    switch_->inside.change_to(switch_->outside);
    switch_->after_entry();
}

}  // namespace feroce::sim
