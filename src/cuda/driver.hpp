// Driver: the few functions of NVIDIA's driver library that we call. The library is used only if
// the program has loaded it: a program without CUDA pays for a look at its list of libraries.
#pragma once

#include <cstddef>
#include <cstdint>

namespace feroce::cuda {

// The driver's own types and numbers, as its ABI has them since CUDA 4.
using Status = int;
using Address = std::uint64_t;
using Context = struct ContextBody*;
using Stream = struct StreamBody*;
using Event = struct EventBody*;

inline constexpr Status kSuccess = 0;
inline constexpr Status kInvalidValue = 1;
inline constexpr Status kNotReady = 600;

enum class Attribute : int {  // CU_POINTER_ATTRIBUTE_*
    OwnContext = 1,
    MemoryType = 2,
    BufferId = 7,  // Of an allocation: no other one of this process ever has it.
    IsManaged = 8,
    DeviceOrdinal = 9,
};
inline constexpr int kRelaxedCapture = 2;               // CU_STREAM_CAPTURE_MODE_RELAXED
inline constexpr unsigned kDeviceMemory = 2;            // CU_MEMORYTYPE_DEVICE
inline constexpr unsigned kNonBlockingStream = 1;       // CU_STREAM_NON_BLOCKING
inline constexpr unsigned kEventWithoutTime = 2;        // CU_EVENT_DISABLE_TIMING
inline constexpr unsigned kRegisterForAllContexts = 1;  // CU_MEMHOSTREGISTER_PORTABLE

struct Driver {
    Status (*pointer_attribute)(void* out, Attribute attribute, Address address) = nullptr;
    Status (*device_get)(int* device, int ordinal) = nullptr;
    Status (*primary_context_retain)(Context* out, int device) = nullptr;
    Status (*context_push)(Context context) = nullptr;
    Status (*context_pop)(Context* out) = nullptr;
    Status (*context_number)(Context context, unsigned long long* out) = nullptr;  // Or null.
    Status (*capture_mode)(int* exchanged) = nullptr;                              // Or null.
    Status (*stream_create)(Stream* out, unsigned flags) = nullptr;
    Status (*stream_destroy)(Stream stream) = nullptr;
    Status (*event_create)(Event* out, unsigned flags) = nullptr;
    Status (*event_destroy)(Event event) = nullptr;
    Status (*event_record)(Event event, Stream stream) = nullptr;
    Status (*event_query)(Event event) = nullptr;
    Status (*host_register)(void* start, std::size_t size, unsigned flags) = nullptr;
    Status (*host_unregister)(void* start) = nullptr;
    Status (*copy_to_device)(Address to, const void* from, std::size_t size,
                             Stream stream) = nullptr;
    Status (*copy_to_host)(void* to, Address from, std::size_t size, Stream stream) = nullptr;
};

// Null while the program has not loaded libcuda. Touches no file and makes no system call as long
// as that is so. Any thread.
const Driver* loaded_driver();

// A context that is the calling thread's current one while this lives. The thread's calls are
// allowed meanwhile even if another one records a graph, of which they are no part.
class Current {
public:
    Current(const Driver& driver, Context context)
        : driver_(driver), entered_(driver.context_push(context) == kSuccess) {
        if (driver_.capture_mode != nullptr) (void)driver_.capture_mode(&capture_);
    }
    ~Current() {
        Context old = nullptr;
        if (driver_.capture_mode != nullptr) (void)driver_.capture_mode(&capture_);
        if (entered_) (void)driver_.context_pop(&old);
    }
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;
    bool entered() const { return entered_; }  // False: the context is gone.

private:
    const Driver& driver_;
    const bool entered_;
    int capture_ = kRelaxedCapture;  // Then the thread's old one.
};

}  // namespace feroce::cuda
