// A driver library of our own for tests. "Device" memory is a range of addresses without access,
// and a copy of its bytes elsewhere that only the functions here reach. Streams are threads: copies
// on different streams pass each other, and read and write host memory only when their turn comes.
#include "fake_cuda.hpp"

#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace fake_cuda {
namespace {

constexpr int kSuccess = 0, kInvalidValue = 1, kNoMemory = 2, kInvalidContext = 201;
constexpr int kNotReady = 600, kLaunchFailed = 719, kNotSupported = 801;

struct Allocation {
    std::size_t size = 0;
    char* shadow = nullptr;
    std::uint64_t id = 0;
    Kind kind = Kind::Device;
};

class Stream;
struct Event {
    std::atomic<int> status{kSuccess};
};

// Everything the fake knows, under one lock. Leaked: streams run until the process ends.
struct World {
    World() {
        const char* text = std::getenv("FAKE_CUDA_DELAY");  // Up to so many microseconds.
        most_us = text == nullptr ? 0 : static_cast<unsigned>(std::atoi(text));
    }
    std::mutex mutex;
    std::map<std::uint64_t, Allocation> allocations;
    std::map<std::uintptr_t, std::size_t> pinned;
    std::uint64_t next_id = 1;
    bool spins = false, pauses = false;
    std::condition_variable spin_ends, pause_ends;
    unsigned least_us = 0, most_us = 0, fail_calls = 0, fail_copies = 0, violations = 0;
    std::string last_violation;
    std::mt19937 chance{1};
    std::atomic<std::uint64_t> copies{0};
};

World& world() {
    static World* one = new World;
    return *one;
}

// The only context there is.
int context_body = 0;
thread_local std::vector<void*> contexts;

void violate(World& w, const char* what) {
    ++w.violations;
    w.last_violation = what;
}

// Null if some byte is not of one allocation.
Allocation* find(World& w, std::uint64_t address, std::size_t bytes, std::uint64_t& offset) {
    auto next = w.allocations.upper_bound(address);
    if (next == w.allocations.begin()) return nullptr;
    auto& [start, allocation] = *--next;
    offset = address - start;
    if (offset >= allocation.size || bytes > allocation.size - offset) return nullptr;
    return &allocation;
}

bool is_pinned(World& w, const void* host, std::size_t bytes) {
    const auto at = reinterpret_cast<std::uintptr_t>(host);
    auto next = w.pinned.upper_bound(at);
    if (next == w.pinned.begin()) return false;
    --next;
    return at + bytes <= next->first + next->second;
}

int move_bytes(std::uint64_t device, void* host, std::size_t bytes, bool to_device) {
    World& w = world();
    const std::lock_guard hold(w.mutex);
    std::uint64_t offset = 0;
    Allocation* allocation = find(w, device, bytes, offset);
    if (allocation == nullptr) return kLaunchFailed;
    if (w.fail_copies > 0) {
        --w.fail_copies;
        return kLaunchFailed;
    }
    if (to_device)
        std::memcpy(allocation->shadow + offset, host, bytes);
    else
        std::memcpy(host, allocation->shadow + offset, bytes);
    w.copies.fetch_add(1);
    return kSuccess;
}

class Stream {
public:
    Stream() : thread_([this] { run(); }) {}
    ~Stream() {
        {
            const std::lock_guard hold(mutex_);
            ends_ = true;
        }
        wake_.notify_one();
        thread_.join();
    }
    void push(std::function<int()> work) { put({std::move(work), nullptr}); }
    void push(Event* event) {
        event->status = kNotReady;
        put({nullptr, event});
    }

private:
    struct Entry {
        std::function<int()> work;
        Event* event;
    };
    void put(Entry entry) {
        {
            const std::lock_guard hold(mutex_);
            entries_.push_back(std::move(entry));
        }
        wake_.notify_one();
    }
    void run() {
        std::unique_lock hold(mutex_);
        while (true) {
            wake_.wait(hold, [this] { return ends_ || !entries_.empty(); });
            if (entries_.empty()) return;
            Entry entry = std::move(entries_.front());
            entries_.pop_front();
            hold.unlock();
            carry_out(entry);
            hold.lock();
        }
    }
    void carry_out(const Entry& entry) {
        unsigned wait_us = 0;
        {
            World& w = world();
            std::unique_lock hold(w.mutex);
            w.pause_ends.wait(hold, [&w] { return !w.pauses; });
            if (w.most_us > 0)
                wait_us = std::uniform_int_distribution<unsigned>(w.least_us, w.most_us)(w.chance);
        }
        // The delay itself is what is tested; nothing waits for it by the clock.
        if (wait_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(wait_us));
        if (entry.event != nullptr) {
            entry.event->status = std::exchange(failed_, kSuccess);
        } else if (const int status = entry.work(); status != kSuccess) {
            failed_ = status;
        }
    }

    std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<Entry> entries_;
    bool ends_ = false;
    int failed_ = kSuccess;  // What the next event tells.
    std::thread thread_;
};

int copy_async(std::uint64_t device, void* host, std::size_t bytes, void* stream, bool to_device) {
    World& w = world();
    {
        const std::lock_guard hold(w.mutex);
        std::uint64_t offset = 0;
        if (contexts.empty()) violate(w, "a copy without a context");
        if (stream == nullptr) violate(w, "a copy on the default stream");
        if (!is_pinned(w, host, bytes)) violate(w, "a copy of pageable memory");
        if (contexts.empty()) return kInvalidContext;
        if (stream == nullptr || find(w, device, bytes, offset) == nullptr) return kInvalidValue;
        if (w.fail_calls > 0) {
            --w.fail_calls;
            return kInvalidValue;
        }
    }
    static_cast<Stream*>(stream)->push([=] { return move_bytes(device, host, bytes, to_device); });
    return kSuccess;
}

// On the default stream: behind a kernel that spins there.
int copy_now(std::uint64_t device, void* host, std::size_t bytes, bool to_device) {
    {
        World& w = world();
        std::unique_lock hold(w.mutex);
        w.spin_ends.wait(hold, [&w] { return !w.spins; });
    }
    return move_bytes(device, host, bytes, to_device);
}

// Drivers may wait for the device when they make something.
int making() {
    World& w = world();
    const std::lock_guard hold(w.mutex);
    if (w.spins) violate(w, "a resource was made while a kernel spins");
    return contexts.empty() ? kInvalidContext : kSuccess;
}

std::uint64_t allocate(std::size_t bytes, Kind kind) {
    const bool far = kind == Kind::Device || kind == Kind::Mapped;
    const int protection = far ? PROT_NONE : PROT_READ | PROT_WRITE;
    void* view = ::mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (view == MAP_FAILED) return 0;
    void* shadow = view;
    if (far)
        shadow = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (shadow == MAP_FAILED) return 0;
    World& w = world();
    const std::lock_guard hold(w.mutex);
    const auto address = reinterpret_cast<std::uint64_t>(view);
    w.allocations[address] = {bytes, static_cast<char*>(shadow), w.next_id++, kind};
    return address;
}

void release(std::uint64_t address) {
    World& w = world();
    const std::lock_guard hold(w.mutex);
    const auto found = w.allocations.find(address);
    if (found == w.allocations.end()) return;
    void* view = reinterpret_cast<void*>(address);
    if (found->second.shadow != view) ::munmap(found->second.shadow, found->second.size);
    ::munmap(view, found->second.size);
    w.allocations.erase(found);
}

const Controls kControls = {
    allocate,
    release,
    [](std::uint64_t to, const void* from, std::size_t bytes) {
        (void)move_bytes(to, const_cast<void*>(from), bytes, true);
        world().copies.fetch_sub(1);
    },
    [](void* to, std::uint64_t from, std::size_t bytes) {
        (void)move_bytes(from, to, bytes, false);
        world().copies.fetch_sub(1);
    },
    [](bool on) {
        const std::lock_guard hold(world().mutex);
        world().spins = on;
        world().spin_ends.notify_all();
    },
    [](unsigned least_us, unsigned most_us) {
        const std::lock_guard hold(world().mutex);
        world().least_us = least_us;
        world().most_us = most_us;
    },
    [](bool on) {
        const std::lock_guard hold(world().mutex);
        world().pauses = on;
        world().pause_ends.notify_all();
    },
    [](unsigned count) {
        const std::lock_guard hold(world().mutex);
        world().fail_calls = count;
    },
    [](unsigned count) {
        const std::lock_guard hold(world().mutex);
        world().fail_copies = count;
    },
    [] {
        const std::lock_guard hold(world().mutex);
        return world().violations;
    },
    [] { return world().last_violation.c_str(); },
    [] { return world().copies.load(); },
};

int attribute(void* out, int which, std::uint64_t address) {
    World& w = world();
    const std::lock_guard hold(w.mutex);
    std::uint64_t offset = 0;
    const Allocation* found = find(w, address, 1, offset);
    if (found == nullptr) return kInvalidValue;
    switch (which) {
        case 1:
            if (found->kind == Kind::Mapped) return kInvalidValue;
            *static_cast<void**>(out) = &context_body;
            return kSuccess;
        case 2:
            *static_cast<unsigned*>(out) = found->kind == Kind::Host ? 1 : 2;
            return kSuccess;
        case 7:
            *static_cast<unsigned long long*>(out) = found->id;
            return kSuccess;
        case 8:
            *static_cast<unsigned*>(out) = found->kind == Kind::Managed;
            return kSuccess;
        case 9:
            *static_cast<int*>(out) = 0;
            return kSuccess;
        default:
            return kInvalidValue;
    }
}

}  // namespace
}  // namespace fake_cuda

using namespace fake_cuda;

#pragma GCC visibility push(default)
extern "C" {

const Controls* fake_cuda_controls() {
    return &kControls;
}

int cuInit(unsigned) {
    return kSuccess;
}
int cuDriverGetVersion(int* version) {
    *version = 13000;
    return kSuccess;
}
int cuDeviceGetCount(int* count) {
    *count = 1;
    return kSuccess;
}
int cuDeviceGet(int* device, int) {
    *device = 0;
    return kSuccess;
}
int cuDeviceGetName(char* name, int size, int) {
    std::strncpy(name, "a GPU that is none", static_cast<std::size_t>(size));
    return kSuccess;
}
int cuDeviceGetAttribute(int* value, int, int) {
    *value = 0;
    return kSuccess;
}
int cuDevicePrimaryCtxRetain(void** context, int) {
    *context = &context_body;
    return kSuccess;
}
int cuCtxSetCurrent(void* context) {
    contexts.assign(1, context);
    return kSuccess;
}
int cuCtxPushCurrent_v2(void* context) {
    contexts.push_back(context);
    return kSuccess;
}
int cuCtxPopCurrent_v2(void** context) {
    if (contexts.empty()) return kInvalidContext;
    *context = contexts.back();
    contexts.pop_back();
    return kSuccess;
}
int cuPointerGetAttribute(void* out, int which, std::uint64_t address) {
    return attribute(out, which, address);
}
int cuMemAlloc_v2(std::uint64_t* out, std::size_t bytes) {
    if (contexts.empty()) return kInvalidContext;
    *out = allocate(bytes, Kind::Device);
    return *out == 0 ? kNoMemory : kSuccess;
}
int cuMemFree_v2(std::uint64_t address) {
    release(address);
    return kSuccess;
}
int cuMemGetHandleForAddressRange(void*, std::uint64_t, std::size_t, int, unsigned long long) {
    return kNotSupported;
}
int cuMemcpyHtoD_v2(std::uint64_t to, const void* from, std::size_t bytes) {
    return copy_now(to, const_cast<void*>(from), bytes, true);
}
int cuMemcpyDtoH_v2(void* to, std::uint64_t from, std::size_t bytes) {
    return copy_now(from, to, bytes, false);
}
int cuMemcpyHtoDAsync_v2(std::uint64_t to, const void* from, std::size_t bytes, void* stream) {
    return copy_async(to, const_cast<void*>(from), bytes, stream, true);
}
int cuMemcpyDtoHAsync_v2(void* to, std::uint64_t from, std::size_t bytes, void* stream) {
    return copy_async(from, to, bytes, stream, false);
}
int cuMemHostRegister_v2(void* start, std::size_t bytes, unsigned) {
    const int status = making();
    const std::lock_guard hold(world().mutex);
    world().pinned[reinterpret_cast<std::uintptr_t>(start)] = bytes;
    return status;
}
int cuMemHostUnregister(void* start) {
    const std::lock_guard hold(world().mutex);
    world().pinned.erase(reinterpret_cast<std::uintptr_t>(start));
    return kSuccess;
}
int cuStreamCreate(void** out, unsigned flags) {
    *out = nullptr;
    if (flags != 1) {
        const std::lock_guard hold(world().mutex);
        violate(world(), "a stream that waits for the default stream");
    }
    if (const int status = making(); status != kSuccess) return status;
    *out = new Stream;
    return kSuccess;
}
int cuStreamSynchronize(void* stream) {
    Event reached;
    static_cast<Stream*>(stream)->push(&reached);
    while (reached.status == kNotReady) std::this_thread::yield();
    return reached.status;
}
int cuMemHostAlloc(void** out, std::size_t bytes, unsigned) {
    *out = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return cuMemHostRegister_v2(*out, bytes, 0);
}
int cuStreamDestroy_v2(void* stream) {
    delete static_cast<Stream*>(stream);
    return kSuccess;
}
int cuEventCreate(void** out, unsigned) {
    if (const int status = making(); status != kSuccess) return status;
    *out = new Event;
    return kSuccess;
}
int cuEventDestroy_v2(void* event) {
    delete static_cast<Event*>(event);
    return kSuccess;
}
int cuEventRecord(void* event, void* stream) {
    static_cast<Stream*>(stream)->push(static_cast<Event*>(event));
    return kSuccess;
}
int cuEventQuery(void* event) {
    return static_cast<Event*>(event)->status;
}

}  // extern "C"
#pragma GCC visibility pop
