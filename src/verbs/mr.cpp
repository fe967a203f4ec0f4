// Memory regions. Nothing is pinned and nothing is copied: a region is a range and its rights, and
// for a GPU's memory what reaches it.
#include <dlfcn.h>

#include <limits>
#include <utility>

#include "verbs/common.hpp"
#include "verbs/instance.hpp"
#include "verbs/lint.hpp"
#include "verbs/ops.hpp"
#include "verbs/parts.hpp"

namespace feroce::verbs {

namespace {

// Programs that look for the kernel's module shall find it from now on: src/preload.
void tell_preload() {
    using Call = void();
    if (auto* call = reinterpret_cast<Call*>(::dlsym(RTLD_DEFAULT, "feroce_preload_gpu_region")))
        call();
}

}  // namespace

ibv_mr* make_mr(ibv_pd* pd, const mem::RegionSpec& spec, const mem::RegionKeys& keys) {
    Rollback forget([&] { (void)process_of(pd->context).memory().deregister_region(keys.lkey); });
    auto* mr = new Mr;
    forget.keep();
    mr->base.context = pd->context;
    mr->base.pd = pd;
    mr->base.addr = spec.address;
    mr->base.length = spec.length;
    mr->base.handle = keys.lkey.raw;
    mr->base.lkey = keys.lkey.raw;
    mr->base.rkey = keys.rkey.raw;
    mr->iova = spec.iova;
    mr->access = spec.access.raw;
    mr->far = spec.far;
    context_of(pd->context).objects.fetch_add(1);
    context_of(pd->context).regions.fetch_add(1);
    pd_of(pd).users.fetch_add(1);
    return &mr->base;
}

// Flags that a device does not know are asked for by programs that try what it has.
static void lint_registration(Lint& lint, const mem::RegionSpec& spec, const Error& why) {
    const bool remote_change = spec.access.overlaps(mem::kRemoteChange);
    const bool local_write = spec.access.has(mem::Access::LocalWrite);
    if ((!remote_change || local_write) && why.code != EFAULT) return;
    lint.tell([&](lint::Linter& linter, lint::Place place) {
        linter.registration_refused({.length = spec.length,
                                     .local_write = local_write,
                                     .remote_change = remote_change,
                                     .why = why.why,
                                     .place = place});
    });
}

ibv_mr* register_region(const char* call, ibv_pd* pd, mem::RegionSpec spec) {
    if (!alive(pd->context)) return refuse_null(call, kDead);
    spec.pd = pd_of(pd).id;
    // All of memory: how rdma-core asks for an implicit region.
    spec.implicit = spec.access.has(mem::Access::OnDemand) && spec.address == nullptr &&
                    spec.length == std::numeric_limits<std::size_t>::max();
    const Result<mem::RegionKeys> keys = process_of(pd->context).memory().register_region(spec);
    if (keys) return make_mr(pd, spec, *keys);
    if (Lint* lint = lint_of(pd->context)) lint_registration(*lint, spec, keys.error());
    return refuse_null(call, keys.error());
}

Result<std::shared_ptr<mem::FarMemory>> find_far_memory(ibv_context* context, const void* address,
                                                        std::size_t length) {
    if (!alive(context)) return kDead;
    Result<std::shared_ptr<mem::FarMemory>> found =
        instance_of(context).gpus.find(reinterpret_cast<std::uintptr_t>(address), length);
    if (found && *found != nullptr) tell_preload();
    return found;
}

ibv_mr* alloc_null_mr(ibv_pd* pd) {
    return abi_call("ibv_alloc_null_mr", [&]() -> ibv_mr* {
        if (!alive(pd->context)) return refuse_null("ibv_alloc_null_mr", kDead);
        const Result<mem::RegionKeys> keys =
            process_of(pd->context).memory().register_null_region(pd_of(pd).id);
        if (!keys) return refuse_null("ibv_alloc_null_mr", keys.error());
        return make_mr(pd, {}, *keys);
    });
}

// All memory is fetched on demand already: a prefetch only has to name memory that is there.
int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* sges,
              std::uint32_t count) {
    return abi_call("ibv_advise_mr", [&]() -> int {
        if (advice != IBV_ADVISE_MR_ADVICE_PREFETCH &&
            advice != IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE &&
            advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
            return refuse("ibv_advise_mr", {EOPNOTSUPP, "unknown advice"});
        if ((flags & ~std::uint32_t{IBV_ADVISE_MR_FLAG_FLUSH}) != 0 || count == 0)
            return refuse("ibv_advise_mr", {EINVAL, "unknown flags, or an empty list"});
        const mem::AccessSet need = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE
                                        ? mem::AccessSet(mem::Access::LocalWrite)
                                        : mem::AccessSet();
        for (std::uint32_t i = 0; i < count; ++i) {
            const mem::Lookup found =
                process_of(pd->context)
                    .memory()
                    .local(pd_of(pd).id, LKey{sges[i].lkey}, sges[i].addr, sges[i].length, need);
            if (found.fault == mem::Fault::NoPermission)
                return refuse("ibv_advise_mr", {EPERM, "a region does not allow that"});
            if (found.fault != mem::Fault::None)
                return refuse("ibv_advise_mr", {ENOENT, "an entry names no memory of this domain"});
        }
        return 0;
    });
}

static int change_region(ibv_mr* base, int flags, ibv_pd* pd, void* address, std::size_t length,
                         int access) {
    constexpr int kMoves = IBV_REREG_MR_CHANGE_TRANSLATION;
    const bool bad_domain = (flags & IBV_REREG_MR_CHANGE_PD) != 0 && pd == nullptr;
    const bool bad_range = (flags & kMoves) != 0 && (address == nullptr || length == 0);
    const bool stray_access = access != 0 && (flags & IBV_REREG_MR_CHANGE_ACCESS) == 0;
    if (!alive(base->context) || flags == 0 || (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) != 0 ||
        bad_domain || bad_range || stray_access) {
        (void)refuse("ibv_rereg_mr",
                     {EINVAL, "unknown flags, no domain or range given, or rights without a flag"});
        return IBV_REREG_MR_ERR_INPUT;
    }
    Mr& mr = object_of<Mr>(base);
    if (mr.dma_buffer != nullptr && (flags & kMoves) != 0) {
        (void)refuse("ibv_rereg_mr", {EOPNOTSUPP, "a region of a dma-buf stays where it is"});
        return IBV_REREG_MR_ERR_INPUT;
    }
    mem::RegionSpec spec{.pd = pd != nullptr ? pd_of(pd).id : PdId{},
                         .address = address,
                         .length = length,
                         .iova = reinterpret_cast<std::uintptr_t>(address),
                         .access = mem::AccessSet(static_cast<std::uint32_t>(access)),
                         .implicit = false};
    if ((flags & kMoves) != 0) {
        Result<std::shared_ptr<mem::FarMemory>> far =
            find_far_memory(base->context, address, length);
        if (!far) {
            (void)refuse("ibv_rereg_mr", far.error());
            return IBV_REREG_MR_ERR_INPUT;
        }
        spec.far = std::move(*far);
    }
    const mem::RegionChange change{.translation = (flags & kMoves) != 0,
                                   .pd = (flags & IBV_REREG_MR_CHANGE_PD) != 0,
                                   .access = (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0};
    process::Process& process = process_of(base->context);
    const Result<mem::RegionKeys> keys =
        process.memory().reregister_region(LKey{base->lkey}, change, spec);
    if (!keys) {
        (void)refuse("ibv_rereg_mr", keys.error());
        return IBV_REREG_MR_ERR_CMD;  // As rdma-core says it; here the old region is untouched.
    }
    process.quiesce();
    if (change.pd) {
        leave_pd(base->pd);
        pd_of(pd).users.fetch_add(1);
        base->pd = pd;
    }
    if (change.translation) {
        base->addr = address;
        base->length = length;
        mr.iova = spec.iova;
        if (const auto old = std::exchange(mr.far, spec.far); old != nullptr) old->close();
    }
    if (change.access) mr.access = spec.access.raw;
    base->lkey = keys->lkey.raw;
    base->rkey = keys->rkey.raw;
    return 0;
}

}  // namespace feroce::verbs

using namespace feroce;
using namespace feroce::verbs;

ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova,
                         unsigned int access) {
    return abi_call("ibv_reg_mr_iova2", [&]() -> ibv_mr* {
        Result<std::shared_ptr<mem::FarMemory>> far = find_far_memory(pd->context, address, length);
        if (!far) return refuse_null("ibv_reg_mr", far.error());
        return register_region("ibv_reg_mr", pd,
                               {.pd = {},
                                .address = address,
                                .length = length,
                                .iova = iova,
                                .access = mem::AccessSet(access),
                                .implicit = false,
                                .far = std::move(*far)});
    });
}

ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, std::size_t length, int access) {
    return ibv_reg_mr_iova2(pd, address, length, reinterpret_cast<std::uintptr_t>(address),
                            static_cast<unsigned int>(access));
}

ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova,
                        int access) {
    return ibv_reg_mr_iova2(pd, address, length, iova, static_cast<unsigned int>(access));
}

int ibv_rereg_mr(ibv_mr* base, int flags, ibv_pd* pd, void* address, std::size_t length,
                 int access) {
    // Memory runs out only before something has changed.
    static_assert(IBV_REREG_MR_ERR_INPUT == -1);
    return abi_call<FailAs::MinusOne>(
        "ibv_rereg_mr", [&] { return change_region(base, flags, pd, address, length, access); });
}

int ibv_dereg_mr(ibv_mr* base) {
    return abi_call("ibv_dereg_mr", [&]() -> int {
        if (!alive(base->context)) return refuse("ibv_dereg_mr", kDead);
        Mr& mr = object_of<Mr>(base);
        if (Lint* lint = lint_of(base->context))
            lint->tell([base](lint::Linter& linter, lint::Place place) {
                linter.deregisters(base->lkey, place);
            });
        process::Process& process = process_of(base->context);
        if (Result<void> freed = process.memory().deregister_region(LKey{base->lkey}); !freed)
            return refuse("ibv_dereg_mr", freed.error());
        process.quiesce();
        if (mr.dm != nullptr) mr.dm->users.fetch_sub(1);
        if (mr.far != nullptr) std::exchange(mr.far, nullptr)->close();
        mr.dma_buffer.reset();  // After quiesce(): no shard copies from or to it any more.
        leave_pd(base->pd);
        context_of(base->context).objects.fetch_sub(1);
        context_of(base->context).regions.fetch_sub(1);
        bury(mr, base->context);
        return 0;
    });
}
