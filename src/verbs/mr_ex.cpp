// ibv_reg_mr_ex, which names the memory in one of several ways, and the buffers of ibv_alloc_buf.
// These are ordinary memory here: a device that copies has no memory of another kind to offer.
#include <sys/mman.h>
#include <unistd.h>

#include <utility>

#include "verbs/common.hpp"
#include "verbs/parts.hpp"

namespace feroce::verbs {
namespace {

constexpr char kRegisterCall[] = "ibv_reg_mr_ex";

// ibv_mr_init_attr of release 64. That of release 59 ends before `buffer`, so that no field is read
// but those that the mask names.
struct MrInit {
    std::size_t length;
    int access;
    std::uint64_t mask;
    std::uint64_t iova;
    void* address;
    int fd;
    std::uint64_t fd_offset;
    void* dma_handle;
    ibv_buf* buffer;
};

enum Given : std::uint64_t {
    kIova = 1 << 0,
    kAddress = 1 << 1,
    kFd = 1 << 2,
    kFdOffset = 1 << 3,
    kDmaHandle = 1 << 4,
    kBuffer = 1 << 5,
};

// What ibv_buf is here.
struct Buffer {
    ibv_pd* pd = nullptr;
    void* memory = nullptr;
    std::size_t size = 0;
    std::size_t mapped = 0;

    bool holds(const void* address, std::size_t length) const {
        const auto first = reinterpret_cast<std::uintptr_t>(memory);
        const auto wanted = reinterpret_cast<std::uintptr_t>(address);
        return wanted >= first && wanted - first <= size && length <= size - (wanted - first);
    }
};

Buffer& buffer_of(ibv_buf* base) {
    return *reinterpret_cast<Buffer*>(base);
}

Result<void> check(ibv_pd* pd, const MrInit& wanted) {
    const auto has = [&](std::uint64_t bits) { return (wanted.mask & bits) == bits; };
    if ((wanted.mask & ~std::uint64_t{kIova | kAddress | kFd | kFdOffset | kBuffer}) != 0)
        return Error{EOPNOTSUPP, "a DMA handle, or a way to name memory that is not known here"};
    if (has(kFd)) {
        if (has(kAddress) || has(kBuffer) || !has(kFdOffset | kIova))
            return Error{EINVAL, "a dma-buf needs offset and iova, and has no address"};
        return {};
    }
    if (!has(kAddress) || has(kFdOffset))
        return Error{EINVAL, "no address, or an offset without a descriptor"};
    if (!has(kBuffer)) return {};
    const Buffer& buffer = buffer_of(wanted.buffer);
    if (buffer.pd != pd || !buffer.holds(wanted.address, wanted.length))
        return Error{EINVAL, "another protection domain's buffer, or a range outside of it"};
    return {};
}

}  // namespace
}  // namespace feroce::verbs

using namespace feroce;
using namespace feroce::verbs;

ibv_mr* ibv_reg_mr_ex(ibv_pd* pd, ibv_mr_init_attr* attributes) {
    return abi_call(kRegisterCall, [&]() -> ibv_mr* {
        const auto& wanted = *reinterpret_cast<const MrInit*>(attributes);
        if (const Result<void> good = check(pd, wanted); !good)
            return refuse_null(kRegisterCall, good.error());
        if ((wanted.mask & kFd) != 0)
            return ibv_reg_dmabuf_mr(pd, wanted.fd_offset, wanted.length, wanted.iova, wanted.fd,
                                     wanted.access);
        const std::uint64_t iova = (wanted.mask & kIova) != 0
                                       ? wanted.iova
                                       : reinterpret_cast<std::uintptr_t>(wanted.address);
        return ibv_reg_mr_iova2(pd, wanted.address, wanted.length, iova,
                                static_cast<unsigned int>(wanted.access));
    });
}

// Mapped rather than allocated: the caller gets whole pages, as it was promised.
void* ibv_alloc_buf(ibv_pd* pd, std::size_t size, ibv_buf** out) {
    return abi_call("ibv_alloc_buf", [&]() -> void* {
        if (!alive(pd->context)) return refuse_null("ibv_alloc_buf", kDead);
        const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
        if (size == 0) return refuse_null("ibv_alloc_buf", {EINVAL, "a buffer of no bytes"});
        if (size > SIZE_MAX - page) return refuse_null("ibv_alloc_buf", process::kNoMemory);
        auto buffer = std::make_unique<Buffer>();
        buffer->mapped = (size + page - 1) / page * page;
        void* memory = ::mmap(nullptr, buffer->mapped, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) return refuse_null("ibv_alloc_buf", process::kNoMemory);
        buffer->pd = pd;
        buffer->memory = memory;
        buffer->size = size;
        *out = reinterpret_cast<ibv_buf*>(buffer.release());
        return memory;
    });
}

void ibv_free_buf(ibv_buf* base) {
    const Uncancelled call;
    const std::unique_ptr<Buffer> buffer(&buffer_of(base));
    ::munmap(buffer->memory, buffer->mapped);
}

ibv_mr* ibv_reg_buf_mr(ibv_pd* pd, ibv_buf* buffer, void* address, std::size_t length, int access) {
    MrInit wanted{.length = length,
                  .access = access,
                  .mask = kAddress | kBuffer,
                  .iova = 0,
                  .address = address,
                  .fd = -1,
                  .fd_offset = 0,
                  .dma_handle = nullptr,
                  .buffer = buffer};
    return ibv_reg_mr_ex(pd, reinterpret_cast<ibv_mr_init_attr*>(&wanted));
}

int ibv_export_buf_dmabuf_fd(ibv_buf*) {
    return refuse_minus("ibv_export_buf_dmabuf_fd", {ENODATA, "the buffer is ordinary memory"});
}
