// The driver's functions that a program uses which keeps its data on a GPU, found at run time. The
// program's own copies go over pinned memory and a stream of its own, so that they work beside a
// kernel that spins on the default stream.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace gpu {

class Gpu {
public:
    // `library`: libcuda.so.1, or the path of one.
    explicit Gpu(const char* library) : library_(::dlopen(library, RTLD_NOW | RTLD_GLOBAL)) {
        if (library_ == nullptr) die("no driver library: ", ::dlerror());
        call<int(unsigned)>("cuInit")(0);
        int device = 0;
        void* context = nullptr;
        check("cuDeviceGet", call<int(int*, int)>("cuDeviceGet")(&device, 0));
        check("context", call<int(void**, int)>("cuDevicePrimaryCtxRetain")(&context, device));
        check("cuCtxSetCurrent", call<int(void*)>("cuCtxSetCurrent")(context));
        check("cuStreamCreate", call<int(void**, unsigned)>("cuStreamCreate")(&stream_, 1));
        window_ = static_cast<char*>(pinned(kWindow));
    }

    template <class Function>
    Function* call(const char* name) const {
        auto* found = reinterpret_cast<Function*>(::dlsym(library_, name));
        if (found == nullptr) die("the driver has no ", name);
        return found;
    }
    bool is_fake() const { return ::dlsym(library_, "fake_cuda_controls") != nullptr; }
    void* library() const { return library_; }

    std::uint64_t allocate(std::size_t bytes) const {
        std::uint64_t out = 0;
        check("cuMemAlloc", call<int(std::uint64_t*, std::size_t)>("cuMemAlloc_v2")(&out, bytes));
        return out;
    }
    void* pinned(std::size_t bytes) const {
        void* out = nullptr;
        constexpr unsigned kForAllAndMapped = 3;
        check("cuMemHostAlloc", call<int(void**, std::size_t, unsigned)>("cuMemHostAlloc")(
                                    &out, bytes, kForAllAndMapped));
        return out;
    }
    // A dma-buf descriptor. Both are multiples of the page.
    int export_buffer(std::uint64_t address, std::size_t bytes) const {
        int out = -1;
        constexpr int kDmaBuf = 1;
        check("cuMemGetHandleForAddressRange",
              call<int(void*, std::uint64_t, std::size_t, int, unsigned long long)>(
                  "cuMemGetHandleForAddressRange")(&out, address, bytes, kDmaBuf, 0));
        return out;
    }
    void store(std::uint64_t to, const void* from, std::size_t bytes) const {
        const auto copy =
            call<int(std::uint64_t, const void*, std::size_t, void*)>("cuMemcpyHtoDAsync_v2");
        for (std::size_t at = 0; at < bytes; at += kWindow) {
            const std::size_t size = bytes - at < kWindow ? bytes - at : kWindow;
            std::memcpy(window_, static_cast<const char*>(from) + at, size);
            check("copy to the GPU", copy(to + at, window_, size, stream_));
            finish();
        }
    }
    void load(void* to, std::uint64_t from, std::size_t bytes) const {
        const auto copy =
            call<int(void*, std::uint64_t, std::size_t, void*)>("cuMemcpyDtoHAsync_v2");
        for (std::size_t at = 0; at < bytes; at += kWindow) {
            const std::size_t size = bytes - at < kWindow ? bytes - at : kWindow;
            check("copy from the GPU", copy(window_, from + at, size, stream_));
            finish();
            std::memcpy(static_cast<char*>(to) + at, window_, size);
        }
    }

private:
    static constexpr std::size_t kWindow = 16 << 20;

    [[noreturn]] static void die(const char* what, const char* which) {
        std::fprintf(stderr, "%s%s\n", what, which);
        std::exit(2);
    }
    static void check(const char* what, int status) {
        if (status == 0) return;
        std::fprintf(stderr, "%s: CUDA status %d\n", what, status);
        std::exit(2);
    }
    void finish() const { check("wait", call<int(void*)>("cuStreamSynchronize")(stream_)); }

    void* library_;
    void* stream_ = nullptr;
    char* window_ = nullptr;
};

// A kernel on the default stream that ends when it is told to.
class SpinningKernel {
public:
    explicit SpinningKernel(const Gpu& gpu) : gpu_(gpu) {
        flag_ = static_cast<volatile std::uint32_t*>(gpu.pinned(4096));
        *flag_ = 0;
        void* module = nullptr;
        void* function = nullptr;
        std::uint64_t address = reinterpret_cast<std::uint64_t>(flag_);
        void* arguments[] = {&address};
        int status = gpu.call<int(void**, const void*)>("cuModuleLoadData")(&module, kCode);
        if (status == 0)
            status = gpu.call<int(void**, void*, const char*)>("cuModuleGetFunction")(
                &function, module, "spin");
        if (status == 0)
            status = gpu.call<int(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                  unsigned, void*, void**, void**)>("cuLaunchKernel")(
                function, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr);
        if (status != 0) {
            std::fprintf(stderr, "no kernel: CUDA status %d\n", status);
            std::exit(2);
        }
    }
    ~SpinningKernel() { *flag_ = 1; }
    SpinningKernel(const SpinningKernel&) = delete;
    SpinningKernel& operator=(const SpinningKernel&) = delete;

    bool spins() const {  // The default stream is still occupied.
        constexpr int kNotReady = 600;
        return gpu_.call<int(void*)>("cuStreamQuery")(nullptr) == kNotReady;
    }

private:
    static constexpr char kCode[] =
        ".version 7.0\n.target sm_70\n.address_size 64\n"
        ".visible .entry spin(.param .u64 flag)\n{\n"
        ".reg .u64 %a;\n.reg .u32 %v;\n.reg .pred %p;\n"
        "ld.param.u64 %a, [flag];\n"
        "again:\nld.volatile.global.u32 %v, [%a];\nsetp.eq.u32 %p, %v, 0;\n@%p bra again;\n"
        "ret;\n}\n";

    const Gpu& gpu_;
    volatile std::uint32_t* flag_ = nullptr;
};

}  // namespace gpu
