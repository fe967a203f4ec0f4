// Device memory: ordinary memory that only the device and the two copy functions reach.
#include <algorithm>

#include "mem/touch.hpp"
#include "verbs/common.hpp"
#include "verbs/mr.hpp"
#include "verbs/ops.hpp"

namespace feroce::verbs {
namespace {

// Device memory is copied by words, as on devices that have it for real.
bool misaligned(std::uint64_t offset, std::size_t length) {
    return offset % 4 != 0 || length % 4 != 0;
}

bool outside(const Dm& dm, std::uint64_t offset, std::size_t length) {
    return offset > dm.length || length > dm.length - offset;
}

int copy_to(ibv_dm* base, std::uint64_t offset, const void* from, std::size_t length) {
    Dm& dm = object_of<Dm>(base);
    if (misaligned(offset, length) || outside(dm, offset, length)) return EFAULT;
    const ByteView bytes(static_cast<const std::byte*>(from), length);
    return mem::write_memory({dm.start + offset, length}, bytes) ? 0 : EFAULT;
}

int copy_from(void* to, ibv_dm* base, std::uint64_t offset, std::size_t length) {
    const Dm& dm = object_of<Dm>(base);
    if (misaligned(offset, length) || outside(dm, offset, length)) return EFAULT;
    const ByteSpan bytes(static_cast<std::byte*>(to), length);
    return mem::read_memory({dm.start + offset, length}, bytes) ? 0 : EFAULT;
}

}  // namespace

ibv_dm* alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attributes) {
    if (attributes->comp_mask != 0 || attributes->log_align_req > 20)
        return refuse_null("ibv_alloc_dm", {EINVAL, "unknown flags, or too great an alignment"});
    if (attributes->length == 0 || attributes->length > limits::kDeviceMemoryBytes)
        return refuse_null("ibv_alloc_dm", {EINVAL, "length is 0 or beyond max_dm_size"});
    auto* dm = new Dm;
    const std::size_t alignment = std::size_t{1} << std::max(attributes->log_align_req, 3u);
    dm->bytes.resize(attributes->length + alignment);
    const auto address = reinterpret_cast<std::uintptr_t>(dm->bytes.data());
    dm->start = dm->bytes.data() + (alignment - address % alignment) % alignment;
    dm->length = attributes->length;
    dm->base.context = context;
    dm->base.memcpy_to_dm = copy_to;
    dm->base.memcpy_from_dm = copy_from;
    context_of(context).objects.fetch_add(1);
    return &dm->base;
}

int free_dm(ibv_dm* base) {
    Dm& dm = object_of<Dm>(base);
    if (dm.users.load() > 0)
        return refuse("ibv_free_dm", {EBUSY, "regions of the device memory still live"});
    context_of(base->context).objects.fetch_sub(1);
    delete &dm;
    return 0;
}

ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* base, std::uint64_t offset, std::size_t length,
                  unsigned int access) {
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
                                                .address = dm.start + offset,
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
