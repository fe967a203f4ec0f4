// StackSwitch: where the code of a stack was left, to go on there. swapcontext() does the same and
// calls the kernel for the signal mask, twice a switch, which was a fifth of a simulation; under
// ASan it also clears the shadow of a whole stack. Fibers block no signals, so on amd64 this saves
// no more than what a called function has to keep. Elsewhere it is swapcontext().
#pragma once

#include <cstddef>

#if defined(__x86_64__)
#include <cstdint>
#else
#include <ucontext.h>

#include "base/assert.hpp"
#endif

#if defined(__x86_64__)
// Saves the stack pointer in *from, behind the registers that a function keeps, and loads `to`.
extern "C" void feroce_switch_stacks(void** from, void* to);
#endif

namespace feroce::sim {

class StackSwitch {
public:
    // The first change to this one calls `entry`, which never returns, on that stack.
    void prepare(std::byte* stack, std::size_t bytes, void (*entry)()) {
#if defined(__x86_64__)
        auto* slot = reinterpret_cast<std::uintptr_t*>(stack + bytes);  // Page-aligned: 16 too.
        *--slot = 0;  // Where `entry` returns to: stacks are unwound no further.
        *--slot = reinterpret_cast<std::uintptr_t>(entry);
        for (int kept = 0; kept < 6; ++kept) *--slot = 0;
        pointer_ = slot;
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
#if defined(__x86_64__)
        feroce_switch_stacks(&pointer_, to.pointer_);
#else
        ASSERT(::swapcontext(&context_, &to.context_) == 0);
#endif
    }

private:
#if defined(__x86_64__)
    void* pointer_ = nullptr;  // Valid while the stack is left.
#else
    ucontext_t context_{};
#endif
};

}  // namespace feroce::sim
