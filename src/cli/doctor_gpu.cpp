// Whether memory of a GPU can be registered here. The driver's library is asked in a child: it
// begins threads and opens devices, and it may crash on a machine that is set up badly.
#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "cli/doctor.hpp"

namespace feroce::cli {
namespace {

struct GpuAnswer {
    bool asked = false;  // The child has come to an end of its questions.
    bool has_library = false;
    bool has_functions = false;
    int status = 0;  // Of cuInit; 0 is success.
    int count = 0;
    int version = 0;  // 13000 is 13.0.
    int gpu_direct = 0;
    int dma_buffers = 0;
    std::array<char, 64> name{};
};

template <class Function>
Function* look_up(void* library, const char* name) {
    return reinterpret_cast<Function*>(::dlsym(library, name));
}

// The newest of those that src/cuda calls.
bool has_all(void* library) {
    for (const char* name : {"cuPointerGetAttribute", "cuMemHostRegister_v2",
                             "cuDevicePrimaryCtxRetain", "cuMemcpyHtoDAsync_v2", "cuStreamCreate"})
        if (::dlsym(library, name) == nullptr) return false;
    return true;
}

GpuAnswer ask_driver() {
    constexpr int kGpuDirect = 116, kDmaBuffers = 124;  // CU_DEVICE_ATTRIBUTE_*_SUPPORTED
    GpuAnswer out;
    out.asked = true;
    void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    out.has_library = library != nullptr;
    if (!out.has_library) return out;
    auto* init = look_up<int(unsigned)>(library, "cuInit");
    auto* version = look_up<int(int*)>(library, "cuDriverGetVersion");
    auto* count = look_up<int(int*)>(library, "cuDeviceGetCount");
    auto* name = look_up<int(char*, int, int)>(library, "cuDeviceGetName");
    auto* attribute = look_up<int(int*, int, int)>(library, "cuDeviceGetAttribute");
    out.has_functions = init != nullptr && version != nullptr && count != nullptr &&
                        name != nullptr && attribute != nullptr && has_all(library);
    if (!out.has_functions) return out;
    out.status = init(0);
    if (out.status != 0) return out;
    (void)version(&out.version);
    (void)count(&out.count);
    if (out.count == 0) return out;
    (void)name(out.name.data(), static_cast<int>(out.name.size()) - 1, 0);
    (void)attribute(&out.gpu_direct, kGpuDirect, 0);
    (void)attribute(&out.dma_buffers, kDmaBuffers, 0);
    return out;
}

GpuAnswer ask_in_child() {
    GpuAnswer out;
    int ends[2];
    if (::pipe(ends) != 0) return out;
    const pid_t child = ::fork();
    if (child == 0) {
        const GpuAnswer answer = ask_driver();
        ::_exit(::write(ends[1], &answer, sizeof answer) == sizeof answer ? 0 : 1);
    }
    ::close(ends[1]);
    GpuAnswer read_one;
    if (::read(ends[0], &read_one, sizeof read_one) == sizeof read_one) out = read_one;
    ::close(ends[0]);
    if (child > 0) ::waitpid(child, nullptr, 0);
    return out;
}

}  // namespace

std::vector<Finding> check_gpu() {
    const GpuAnswer gpu = ask_in_child();
    const auto note = [](std::string sentence, std::string mend) {
        return std::vector<Finding>{{Verdict::Note, "gpu", std::move(sentence), std::move(mend)}};
    };
    if (!gpu.asked)
        return note("the NVIDIA driver's library crashed when it was asked for GPUs", "nvidia-smi");
    if (!gpu.has_library)
        return note(
            "there is no NVIDIA driver (libcuda.so.1), so there is no GPU memory to register", "");
    if (!gpu.has_functions)
        return note("the NVIDIA driver's library is too old: GPU memory is not registered", "");
    if (gpu.status != 0)
        return note(fmt::format("the NVIDIA driver finds no usable GPU (CUDA status {}), so there "
                                "is no GPU memory to register",
                                gpu.status),
                    "nvidia-smi");
    if (gpu.count == 0) return note("the NVIDIA driver is there, and no GPU", "nvidia-smi");
    return {{Verdict::Good, "gpu",
             fmt::format("memory of {} can be registered (CUDA {}.{}; GPUDirect {}, dma-buf {})",
                         gpu.name.data(), gpu.version / 1000, gpu.version % 1000 / 10,
                         gpu.gpu_direct != 0 ? "yes" : "no", gpu.dma_buffers != 0 ? "yes" : "no"),
             ""}};
}

}  // namespace feroce::cli
