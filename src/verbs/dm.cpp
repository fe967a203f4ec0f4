// Device memory.
#include <algorithm>
#include <utility>

#include "verbs/common.hpp"
#include "verbs/instance.hpp"
#include "verbs/ops.hpp"
#include "verbs/parts.hpp"

namespace feroce::verbs {
namespace {

constexpr Error kBadCopy{
    EFAULT, "not whole words within the device memory, or no memory at the program's address"};

int copy_to(ibv_dm* base, std::uint64_t offset, const void* from, std::size_t length) {
    const ByteView bytes(static_cast<const std::byte*>(from), length);
    if (object_of<Dm>(base).block->copy_in(offset, bytes)) return 0;
    return refuse("ibv_memcpy_to_dm", kBadCopy);
}

int copy_from(void* to, ibv_dm* base, std::uint64_t offset, std::size_t length) {
    const ByteSpan bytes(static_cast<std::byte*>(to), length);
    if (object_of<Dm>(base).block->copy_out(offset, bytes)) return 0;
    return refuse("ibv_memcpy_from_dm", kBadCopy);
}

ibv_dm* make_dm(ibv_context* context, std::shared_ptr<process::DeviceBlock> block) {
    auto* dm = new Dm;
    dm->base.context = context;
    dm->base.memcpy_to_dm = copy_to;
    dm->base.memcpy_from_dm = copy_from;
    dm->base.comp_mask = IBV_DM_MASK_HANDLE;
    dm->base.handle = block->handle();
    dm->block = std::move(block);
    context_of(context).objects.fetch_add(1);
    return &dm->base;
}

void forget(Dm& dm) {
    // Late copies are outside of it.
    dm.block = process_of(dm.base.context).device_memory().none();
    context_of(dm.base.context).objects.fetch_sub(1);
    bury(dm, dm.base.context);
}

}  // namespace

ibv_dm* alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attributes) {
    return abi_call("ibv_alloc_dm", [&]() -> ibv_dm* {
        if (!can_query(context)) return refuse_null("ibv_alloc_dm", kDead);
        if (attributes->comp_mask != 0 || attributes->log_align_req > 20)
            return refuse_null("ibv_alloc_dm",
                               {EINVAL, "unknown flags, or too great an alignment"});
        if (attributes->length == 0 || attributes->length > limits::kDeviceMemoryBytes)
            return refuse_null("ibv_alloc_dm", {EINVAL, "length is 0 or beyond max_dm_size"});
        const std::size_t alignment = std::size_t{1} << std::max(attributes->log_align_req, 3u);
        // Programs allocate through their parent's context too, and copy: a block by itself, since
        // locks of the parent may be held for ever here.
        if (!alive(context))
            return make_dm(
                context, std::make_shared<process::DeviceBlock>(0, attributes->length, alignment));
        return make_dm(context,
                       process_of(context).device_memory().allocate(attributes->length, alignment));
    });
}

ibv_dm* share_dm(ibv_context* context, std::uint32_t handle) {
    std::shared_ptr<process::DeviceBlock> block = process_of(context).device_memory().find(handle);
    return block == nullptr ? nullptr : make_dm(context, std::move(block));
}

void unshare_dm(ibv_dm* base) {
    forget(object_of<Dm>(base));
}

int free_dm(ibv_dm* base) {
    const Uncancelled call;
    if (!can_query(base->context)) return refuse("ibv_free_dm", kDead);
    Dm& dm = object_of<Dm>(base);
    if (dm.users.load() > 0)
        return refuse("ibv_free_dm", {EBUSY, "regions of the device memory still live"});
    forget(dm);
    return 0;
}

ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* base, std::uint64_t offset, std::size_t length,
                  unsigned int access) {
    return abi_call("ibv_reg_dm_mr", [&]() -> ibv_mr* {
        Dm& dm = object_of<Dm>(base);
        if (!dm.block->holds(offset, length))
            return refuse_null("ibv_reg_dm_mr",
                               {EINVAL, "the range is outside of the device memory"});
        // Device memory has no address in the program, so its regions start at zero.
        if ((access & IBV_ACCESS_ZERO_BASED) == 0)
            return refuse_null("ibv_reg_dm_mr",
                               {EINVAL, "device memory needs IBV_ACCESS_ZERO_BASED"});
        // An empty range is allowed here and has nothing to give.
        ibv_mr* mr = length == 0 ? alloc_null_mr(pd)
                                 : register_region("ibv_reg_dm_mr", pd,
                                                   {.pd = {},
                                                    .address = dm.block->at(offset),
                                                    .length = length,
                                                    .iova = 0,
                                                    .access = mem::AccessSet(access),
                                                    .implicit = false});
        if (mr == nullptr) return nullptr;
        mr->addr = nullptr;
        object_of<Mr>(mr).dm = &dm;
        dm.users.fetch_add(1);
        return mr;
    });
}

}  // namespace feroce::verbs
