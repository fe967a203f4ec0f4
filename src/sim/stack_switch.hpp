// StackSwitch: where the code of a stack was left, to go on there. swapcontext() does the same and
// calls the kernel for the signal mask, twice a switch, which was a fifth of a simulation; under
// ASan it also clears the shadow of a whole stack. Fibers block no signals, so on amd64 and arm64
// this saves no more than what a called function has to keep. Elsewhere it is swapcontext().
#pragma once

#include <cstddef>

#if defined(__x86_64__) || defined(__aarch64__)
#define FEROCE_OWN_SWITCH
#endif

#if defined(FEROCE_OWN_SWITCH)
// Saves the stack pointer in *from, behind the registers that a function keeps, and loads `to`.
extern "C" void feroce_switch_stacks(void** from, void* to);
#else
#include <ucontext.h>

#include "base/assert.hpp"
#endif

namespace feroce::sim {

#if defined(FEROCE_OWN_SWITCH)
// What to load for the first time: `entry` is called then. `end` is a multiple of 16.
void* fresh_stack(std::byte* end, void (*entry)());
#endif

class StackSwitch {
public:
    // The first change to this one calls `entry`, which never returns, on that stack of whole
    // pages.
    void prepare(std::byte* stack, std::size_t bytes, void (*entry)()) {
#if defined(FEROCE_OWN_SWITCH)
        pointer_ = fresh_stack(stack + bytes, entry);
#else
        ASSERT(::getcontext(&context_) == 0);
        context_.uc_stack.ss_sp = stack;
        context_.uc_stack.ss_size = bytes;
        context_.uc_link = nullptr;
        ::makecontext(&context_, entry, 0);
#endif
    }

    // Leaves this stack and goes on where `to` was left.
    void change_to(StackSwitch& to) {
#if defined(FEROCE_OWN_SWITCH)
        feroce_switch_stacks(&pointer_, to.pointer_);
#else
        ASSERT(::swapcontext(&context_, &to.context_) == 0);
#endif
    }

private:
#if defined(FEROCE_OWN_SWITCH)
    void* pointer_ = nullptr;  // Valid while the stack is left.
#else
    ucontext_t context_{};
#endif
};

}  // namespace feroce::sim
