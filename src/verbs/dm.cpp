// Device memory: ordinary memory that only the device and the two copy functions reach.
#include "verbs/dm.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "mem/touch.hpp"
#include "verbs/common.hpp"
#include "verbs/graveyard.hpp"
#include "verbs/mr.hpp"
#include "verbs/ops.hpp"

namespace feroce::verbs {
namespace {

// Device memory is copied by words, as on devices that have it for real.
bool misaligned(std::uint64_t offset, std::size_t length) {
    return offset % 4 != 0 || length % 4 != 0;
}

bool outside(const Dm& dm, std::uint64_t offset, std::size_t length) {
    return offset > dm.block->length || length > dm.block->length - offset;
}

int copy_to(ibv_dm* base, std::uint64_t offset, const void* from, std::size_t length) {
    Dm& dm = object_of<Dm>(base);
    if (misaligned(offset, length) || outside(dm, offset, length)) return EFAULT;
    const ByteView bytes(static_cast<const std::byte*>(from), length);
    return mem::write_memory({dm.block->start + offset, length}, bytes) ? 0 : EFAULT;
}

int copy_from(void* to, ibv_dm* base, std::uint64_t offset, std::size_t length) {
    const Dm& dm = object_of<Dm>(base);
    if (misaligned(offset, length) || outside(dm, offset, length)) return EFAULT;
    const ByteSpan bytes(static_cast<std::byte*>(to), length);
    return mem::read_memory({dm.block->start + offset, length}, bytes) ? 0 : EFAULT;
}

struct Blocks {
    std::mutex mutex;
    std::map<std::uint32_t, std::weak_ptr<DmBlock>> by_handle;
    std::uint32_t next_handle = 1;
};

Blocks& blocks() {
    static auto& leaked = *new Blocks;
    return leaked;
}

ibv_dm* make_dm(ibv_context* context, std::shared_ptr<DmBlock> block, std::uint32_t handle) {
    auto* dm = new Dm;
    dm->block = std::move(block);
    dm->base.context = context;
    dm->base.memcpy_to_dm = copy_to;
    dm->base.memcpy_from_dm = copy_from;
    dm->base.comp_mask = IBV_DM_MASK_HANDLE;
    dm->base.handle = handle;
    context_of(context).objects.fetch_add(1);
    return &dm->base;
}

void forget(Dm& dm) {
    context_of(dm.base.context).objects.fetch_sub(1);
    dm.block = std::make_shared<DmBlock>();  // Empty: whoever still copies is outside of it.
    bury(dm, dm.base.context);
}

}  // namespace

ibv_dm* alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attributes) {
    const Uncancelled call;
    if (attributes->comp_mask != 0 || attributes->log_align_req > 20)
        return refuse_null("ibv_alloc_dm", {EINVAL, "unknown flags, or too great an alignment"});
    if (attributes->length == 0 || attributes->length > limits::kDeviceMemoryBytes)
        return refuse_null("ibv_alloc_dm", {EINVAL, "length is 0 or beyond max_dm_size"});
    auto block = std::make_shared<DmBlock>();
    const std::size_t alignment = std::size_t{1} << std::max(attributes->log_align_req, 3u);
    block->bytes.resize(attributes->length + alignment);
    const auto address = reinterpret_cast<std::uintptr_t>(block->bytes.data());
    block->start = block->bytes.data() + (alignment - address % alignment) % alignment;
    block->length = attributes->length;
    Blocks& all = blocks();
    const std::lock_guard lock(all.mutex);
    std::erase_if(all.by_handle, [](const auto& entry) { return entry.second.expired(); });
    const std::uint32_t handle = all.next_handle++;
    all.by_handle[handle] = block;
    return make_dm(context, std::move(block), handle);
}

ibv_dm* share_dm(ibv_context* context, std::uint32_t handle) {
    Blocks& all = blocks();
    const std::lock_guard lock(all.mutex);
    const auto found = all.by_handle.find(handle);
    if (found == all.by_handle.end()) return nullptr;
    std::shared_ptr<DmBlock> block = found->second.lock();
    return block == nullptr ? nullptr : make_dm(context, std::move(block), handle);
}

void unshare_dm(ibv_dm* base) {
    forget(object_of<Dm>(base));
}

int free_dm(ibv_dm* base) {
    const Uncancelled call;
    Dm& dm = object_of<Dm>(base);
    if (dm.users.load() > 0)
        return refuse("ibv_free_dm", {EBUSY, "regions of the device memory still live"});
    forget(dm);
    return 0;
}

ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* base, std::uint64_t offset, std::size_t length,
                  unsigned int access) {
    const Uncancelled call;
    Dm& dm = object_of<Dm>(base);
    if (outside(dm, offset, length))
        return refuse_null("ibv_reg_dm_mr", {EINVAL, "the range is outside of the device memory"});
    // Device memory has no address in the program, so its regions start at zero.
    if ((access & IBV_ACCESS_ZERO_BASED) == 0)
        return refuse_null("ibv_reg_dm_mr", {EINVAL, "device memory needs IBV_ACCESS_ZERO_BASED"});
    // An empty range is allowed here and has nothing to give.
    ibv_mr* mr = length == 0 ? alloc_null_mr(pd)
                             : register_region("ibv_reg_dm_mr", pd,
                                               {.pd = {},
                                                .address = dm.block->start + offset,
                                                .length = length,
                                                .iova = 0,
                                                .access = mem::AccessSet(access),
                                                .implicit = false});
    if (mr == nullptr) return nullptr;
    mr->addr = nullptr;
    object_of<Mr>(mr).dm = &dm;
    dm.users.fetch_add(1);
    return mr;
}

}  // namespace feroce::verbs
