// Memory regions of dma-bufs. What the CPU can map is ordinary memory of the region, mapped by us.
// CUDA's dma-bufs cannot be mapped; programs name their memory by its address as iova, which is
// all that we need.
#include <unistd.h>

#include <utility>

#include "port/dma_buffer.hpp"
#include "verbs/common.hpp"
#include "verbs/parts.hpp"

namespace feroce::verbs {
namespace {

constexpr char kCall[] = "ibv_reg_dmabuf_mr";

struct Range {
    std::uint64_t offset;
    std::size_t length;
    std::uint64_t iova;
    mem::AccessSet access;
};

mem::RegionSpec spec_of(const Range& range, void* address, std::shared_ptr<mem::FarMemory> far) {
    return {.pd = {},
            .address = address,
            .length = range.length,
            .iova = range.iova,
            .access = range.access,
            .implicit = false,
            .far = std::move(far)};
}

ibv_mr* register_cuda(ibv_pd* pd, const Range& range) {
    void* address = reinterpret_cast<void*>(static_cast<std::uintptr_t>(range.iova));
    Result<std::shared_ptr<mem::FarMemory>> far =
        find_far_memory(pd->context, address, range.length);
    if (!far) return refuse_null(kCall, far.error());
    if (*far == nullptr)
        return refuse_null(kCall, {EOPNOTSUPP,
                                   "a dma-buf of CUDA whose iova is not the address of its memory "
                                   "in this process"});
    return register_region(kCall, pd, spec_of(range, address, std::move(*far)));
}

ibv_mr* register_mapped(ibv_pd* pd, const Range& range, int fd) {
    Result<std::unique_ptr<port::DmaBuffer>> mapped = port::DmaBuffer::map(
        fd, range.offset, range.length, range.access.has(mem::Access::LocalWrite));
    if (!mapped) return refuse_null(kCall, mapped.error());
    ibv_mr* mr = register_region(kCall, pd, spec_of(range, (*mapped)->first(), nullptr));
    if (mr != nullptr) object_of<Mr>(mr).dma_buffer = std::move(*mapped);
    return mr;
}

}  // namespace
}  // namespace feroce::verbs

using namespace feroce;
using namespace feroce::verbs;

// NCCL and UCX call it with a descriptor of -1 and judge by errno. UCX takes only EBADF for a yes.
ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t length, std::uint64_t iova,
                          int fd, int access) {
    return abi_call(kCall, [&]() -> ibv_mr* {
        if (!alive(pd->context)) return refuse_null(kCall, kDead);
        const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
        if (offset % page != iova % page)
            return refuse_null(kCall, {EINVAL, "offset and iova differ within their pages"});
        const Result<port::DmaBufferFacts> facts = port::examine_dma_buffer(fd);
        if (!facts) return refuse_null(kCall, facts.error());
        if (!facts->holds(offset, length)) return refuse_null(kCall, port::kOutsideDmaBuffer);
        const Range range{offset, length, iova, mem::AccessSet(static_cast<std::uint32_t>(access))};
        ibv_mr* mr = facts->is_cuda() ? register_cuda(pd, range) : register_mapped(pd, range, fd);
        // As rdma-core has it: the memory has no address of the program's.
        if (mr != nullptr) mr->addr = reinterpret_cast<void*>(static_cast<std::uintptr_t>(offset));
        return mr;
    });
}
