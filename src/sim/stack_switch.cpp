#include "sim/stack_switch.hpp"

#if defined(__x86_64__)
// The six registers that a function keeps for its caller, in the order that prepare() lays out. The
// first mark lets processors that check jumps take this one.
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
#endif
