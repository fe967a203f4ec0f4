// The fault guard: makes touch.cpp's accesses survive memory that is unmapped, protected or
// truncated. Each of its machine instructions that touches registered memory has an entry in a
// fix-up table (word.hpp); our SIGSEGV/SIGBUS handler sends a fault at such an instruction to its
// fix-up and hands every other signal to the handler that was there before. An access costs nothing
// but a look at a thread-local word.
//
// Three modes, per thread:
//  Direct    the handler is ours and the thread takes both signals.
//  Unmasked  the handler is ours, but the thread blocks a signal: touch unblocks both around each
//            access (two system calls).
//  Kernel    somebody replaced our handler: copies go through process_vm_readv/writev on our own
//            pid; atomics are checked with MADV_POPULATE_WRITE just before, which leaves a tiny
//            window.
// Mode and mask are looked up at a thread's first access and then remembered, so a thread that
// blocks the signals later, or a program that replaces the handler later, is noticed only at the
// next guard_recheck(). Every thread that posts or drives the engine does one every few
// milliseconds (guard_keep_fresh); registration does one too. Threads not in Direct mode look each
// time. Within these milliseconds a fault of ours goes to the program's new handler.
#pragma once

#include <cstdint>

#include "base/time.hpp"

namespace feroce::mem {

enum class GuardMode : std::uint8_t { Direct, Unmasked, Kernel };

// Installs the handlers, once per process. Called by the first access; call it early to be under,
// not over, handlers that the application installs later and chains.
void guard_install() noexcept;

// Looks again (three system calls) and returns the mode of this thread.
GuardMode guard_recheck() noexcept;

// guard_recheck(), if this thread's last one by way of this call is more than 5 ms ago.
void guard_keep_fresh(Instant now) noexcept;

}  // namespace feroce::mem
