#include "sim/stack_switch.hpp"

#if defined(FEROCE_OWN_SWITCH)
#include <algorithm>
#include <cstdint>
#endif

#if defined(__x86_64__)
// The six registers that a function keeps for its caller, in the order that fresh_stack() lays out.
// The first mark lets processors that check jumps take this one.
asm(R"(
.pushsection .text
.p2align 4
.globl feroce_switch_stacks
.hidden feroce_switch_stacks
.type feroce_switch_stacks, @function
feroce_switch_stacks:
    .cfi_startproc
    endbr64
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .cfi_endproc
.size feroce_switch_stacks, . - feroce_switch_stacks
.popsection
)");

namespace feroce::sim {

void* fresh_stack(std::byte* end, void (*entry)()) {
    auto* slot = reinterpret_cast<std::uintptr_t*>(end);
    *--slot = 0;  // Where `entry` returns to: stacks are unwound no further.
    *--slot = reinterpret_cast<std::uintptr_t>(entry);
    for (int kept = 0; kept < 6; ++kept) *--slot = 0;
    return slot;
}

}  // namespace feroce::sim
#elif defined(__aarch64__)
// The registers that a function keeps for its caller: x19 to x28, the frame pointer, the link
// register, and the lower halves of v8 to v15. A fresh stack begins in feroce_begin_stack, which
// has no caller, so that stacks are unwound no further. `hint 34` is `bti c`: it lets processors
// that check jumps take this one, and does nothing on others.
asm(R"(
.pushsection .text
.p2align 4
.globl feroce_switch_stacks
.hidden feroce_switch_stacks
.type feroce_switch_stacks, %function
feroce_switch_stacks:
    .cfi_startproc
    hint 34
    sub sp, sp, #160
    stp x19, x20, [sp]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
    .cfi_endproc
.size feroce_switch_stacks, . - feroce_switch_stacks

.p2align 4
.globl feroce_begin_stack
.hidden feroce_begin_stack
.type feroce_begin_stack, %function
feroce_begin_stack:
    .cfi_startproc
    .cfi_undefined x30
    blr x19
    brk #1
    .cfi_endproc
.size feroce_begin_stack, . - feroce_begin_stack
.popsection
)");

extern "C" void feroce_begin_stack();

namespace feroce::sim {

void* fresh_stack(std::byte* end, void (*entry)()) {
    constexpr int kKept = 20, kLinkRegister = 11;  // The first is x19.
    std::uintptr_t* kept = reinterpret_cast<std::uintptr_t*>(end) - kKept;
    std::fill_n(kept, kKept, 0);
    kept[0] = reinterpret_cast<std::uintptr_t>(entry);
    kept[kLinkRegister] = reinterpret_cast<std::uintptr_t>(&feroce_begin_stack);
    return kept;
}

}  // namespace feroce::sim
#endif
