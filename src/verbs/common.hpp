// What every file of the ABI layer needs: the process object, errors, and the limits we promise.
#pragma once

#include <cerrno>
#include <cstdint>

#include "base/result.hpp"
#include "base/rollback.hpp"
#include "base/uncancelled.hpp"
#include "process/abi_call.hpp"
#include "process/log.hpp"
#include "verbs/objects.hpp"

namespace feroce::verbs {

// The process-wide object, made at first use and made anew in a forked child.
process::Process& process_object();

// False for objects that were destroyed, from before a fork, or of another simulated node.
inline bool alive(ibv_context* context) {
    const process::Process* process = context_of(context).process;
    return process != nullptr && process::Process::is_current(process);
}

// Queries change nothing, so a forked child may ask its parent's contexts, but not closed ones.
inline bool can_query(ibv_context* context) {
    return context_of(context).process != nullptr;
}

// An object of the domain goes away. The last one takes an imported domain along: programs give it
// back while its queue pairs still live.
void leave_pd(ibv_pd* pd);

inline constexpr Error kDead{ENODEV, "the object was destroyed, or belongs to the parent process"};

using process::abi_call;
using process::FailAs;
using process::refuse;

// For calls that tell of failure by a null pointer.
inline std::nullptr_t refuse_null(const char* call, const Error& error) {
    (void)refuse(call, error);
    return nullptr;
}

// For calls that tell of failure by -1.
inline int refuse_minus(const char* call, const Error& error) {
    (void)refuse(call, error);
    return -1;
}

}  // namespace feroce::verbs
