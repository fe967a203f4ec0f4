// What tests ask of the fake driver library beyond the driver's own functions. The library is
// loaded by its path; fake_cuda() is looked up in it by name.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fake_cuda {

enum class Kind {
    Device,   // cuMemAlloc: no CPU reaches it.
    Mapped,   // cuMemMap: the same, and of no context.
    Managed,  // The CPU reaches it.
    Host,     // cuMemHostAlloc: the host's, and the GPU reaches it.
};

struct Controls {
    std::uint64_t (*allocate)(std::size_t bytes, Kind kind);
    void (*release)(std::uint64_t address);
    // Past all streams, as a test looks at device memory.
    void (*store)(std::uint64_t to, const void* from, std::size_t bytes);
    void (*load)(void* to, std::uint64_t from, std::size_t bytes);
    // A kernel that occupies the default stream until it is told to end.
    void (*spin)(bool on);
    // Each copy and event waits so long on its stream, by chance between the two.
    void (*delay)(unsigned least_us, unsigned most_us);
    // Until it is told to go on, no stream carries out anything.
    void (*pause)(bool on);
    void (*fail_calls)(unsigned count);   // The next copies are refused when they are asked for.
    void (*fail_copies)(unsigned count);  // The next copies fail on their stream.
    // What a driver would have punished: copies of memory that is not pinned, on the default
    // stream, without a context; resources made while a kernel spins.
    unsigned (*violations)();
    const char* (*last_violation)();
    std::uint64_t (*copies)();  // That streams have carried out.
};

using Entrance = const Controls* (*)();  // extern "C" fake_cuda_controls

}  // namespace fake_cuda
