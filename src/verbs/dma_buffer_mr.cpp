// Memory regions of dma-bufs: what the CPU can map is ordinary memory of the region, mapped by us.
#include <unistd.h>

#include <utility>

#include "port/dma_buffer.hpp"
#include "verbs/common.hpp"
#include "verbs/parts.hpp"

using namespace feroce;
using namespace feroce::verbs;

// NCCL and UCX call it with a descriptor of -1 and judge by errno. UCX takes only EBADF for a yes.
ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t length, std::uint64_t iova,
                          int fd, int access) {
    constexpr char kCall[] = "ibv_reg_dmabuf_mr";
    return abi_call(kCall, [&]() -> ibv_mr* {
        if (!alive(pd->context)) return refuse_null(kCall, kDead);
        const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
        if (offset % page != iova % page)
            return refuse_null(kCall, {EINVAL, "offset and iova differ within their pages"});
        const mem::AccessSet rights(static_cast<std::uint32_t>(access));
        Result<std::unique_ptr<port::DmaBuffer>> mapped =
            port::DmaBuffer::map(fd, offset, length, rights.has(mem::Access::LocalWrite));
        if (!mapped) return refuse_null(kCall, mapped.error());
        ibv_mr* mr = register_region(kCall, pd,
                                     {.pd = {},
                                      .address = (*mapped)->first(),
                                      .length = length,
                                      .iova = iova,
                                      .access = rights,
                                      .implicit = false});
        if (mr == nullptr) return nullptr;
        // As rdma-core has it: the memory has no address of the program's.
        mr->addr = reinterpret_cast<void*>(static_cast<std::uintptr_t>(offset));
        object_of<Mr>(mr).dma_buffer = std::move(*mapped);
        return mr;
    });
}
