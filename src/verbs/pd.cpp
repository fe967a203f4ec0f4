// Protection domains, parent domains and thread domains.
#include "verbs/common.hpp"
#include "verbs/instance.hpp"
#include "verbs/ops.hpp"

namespace feroce::verbs {

// A parent domain is its protection domain under another name. Custom allocators are accepted and
// not used: none of our queues lives in memory that a device reads.
ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attributes) {
    return abi_call("ibv_alloc_parent_domain", [&]() -> ibv_pd* {
        constexpr std::uint32_t kKnown =
            IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
        if (!alive(context)) return refuse_null("ibv_alloc_parent_domain", kDead);
        if (attributes->pd == nullptr || !alive(attributes->pd->context) ||
            (attributes->comp_mask & ~kKnown) != 0)
            return refuse_null("ibv_alloc_parent_domain", {EINVAL, "no domain, or unknown flags"});
        Pd& parent = pd_of(attributes->pd);
        auto* pd = new Pd;
        pd->base.context = context;
        pd->base.handle = attributes->pd->handle;
        pd->id = parent.id;
        pd->parent = &parent;
        pd->one_thread = attributes->td != nullptr;
        parent.users.fetch_add(1);
        context_of(context).objects.fetch_add(1);
        return &pd->base;
    });
}

ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attributes) {
    return abi_call("ibv_alloc_td", [&]() -> ibv_td* {
        if (!alive(context)) return refuse_null("ibv_alloc_td", kDead);
        if (attributes->comp_mask != 0)
            return refuse_null("ibv_alloc_td", {EINVAL, "unknown flags"});
        auto* td = new Td;
        td->base.context = context;
        context_of(context).objects.fetch_add(1);
        return &td->base;
    });
}

int dealloc_td(ibv_td* base) {
    return abi_call("ibv_dealloc_td", [&]() -> int {
        if (!alive(base->context)) return refuse("ibv_dealloc_td", kDead);
        context_of(base->context).objects.fetch_sub(1);
        bury(object_of<Td>(base), base->context);
        return 0;
    });
}

void leave_pd(ibv_pd* base) {
    Pd& pd = pd_of(base);
    if (pd.users.fetch_sub(1) != 1 || !pd.imported) return;
    process_of(base->context).memory().unpin_pd(pd.id);
    bury(pd, base->context);
}

}  // namespace feroce::verbs

using namespace feroce;
using namespace feroce::verbs;

ibv_pd* ibv_alloc_pd(ibv_context* context) {
    return abi_call("ibv_alloc_pd", [&]() -> ibv_pd* {
        if (!alive(context)) return refuse_null("ibv_alloc_pd", kDead);
        auto pd = std::make_unique<Pd>();
        const Result<PdId> id = process_of(context).memory().alloc_pd();
        if (!id) return refuse_null("ibv_alloc_pd", id.error());
        pd->base.context = context;
        pd->base.handle = id->raw;
        pd->id = *id;
        context_of(context).objects.fetch_add(1);
        context_of(context).pds.fetch_add(1);
        return &pd.release()->base;
    });
}

int ibv_dealloc_pd(ibv_pd* base) {
    return abi_call("ibv_dealloc_pd", [&]() -> int {
        if (!alive(base->context)) return refuse("ibv_dealloc_pd", kDead);
        Pd& pd = pd_of(base);
        if (pd.users.load() > 0)
            return refuse("ibv_dealloc_pd", {EBUSY, "objects of the protection domain still live"});
        if (pd.imported)
            return refuse("ibv_dealloc_pd",
                          {EINVAL, "an imported domain is left by ibv_unimport_pd"});
        if (pd.parent != nullptr) {
            pd.parent->users.fetch_sub(1);
        } else if (Result<void> freed = process_of(base->context).memory().dealloc_pd(pd.id);
                   !freed) {
            return refuse("ibv_dealloc_pd", freed.error());
        } else {
            context_of(base->context).pds.fetch_sub(1);
        }
        context_of(base->context).objects.fetch_sub(1);
        bury(pd, base->context);
        return 0;
    });
}
