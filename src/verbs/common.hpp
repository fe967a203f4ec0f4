// What every file of the ABI layer needs: the process object, errors, and the limits we promise.
#pragma once

#include <cerrno>
#include <cstdint>

#include "base/result.hpp"
#include "base/uncancelled.hpp"
#include "process/log.hpp"
#include "verbs/objects.hpp"

namespace feroce::verbs {

// What ibv_query_device promises beside counts of objects, which are process::Quotas and limits of
// the rooms below. Sizes are limits, not costs: completion queues grow when they are used.
namespace limits {
inline constexpr std::uint32_t kWorkRequests = 16384;
inline constexpr std::uint32_t kSges = transport::kSgeMax;
inline constexpr int kCompletions = 4 * 1024 * 1024;  // libfabric sizes queues by its peers.
inline constexpr std::uint32_t kInlineBytes = 1024;
inline constexpr int kReadAtomics = 128;  // librdmacm keeps it in eight bits.
inline constexpr int kGidTableLength = 64;
inline constexpr std::uint32_t kMessageBytes = transport::kMessageBytesMax;
inline constexpr std::size_t kDeviceMemoryBytes = 64 * 1024 * 1024;
}  // namespace limits

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

using process::refuse;

// For calls that tell of failure by a null pointer.
inline std::nullptr_t refuse_null(const char* call, const Error& error) {
    errno = refuse(call, error);
    return nullptr;
}

}  // namespace feroce::verbs
