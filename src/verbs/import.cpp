// Objects under a second name: another context of this process gets hold of a device, a protection
// domain, a region or device memory by number. Other processes cannot: our objects live in the
// memory of one.
#include "verbs/common.hpp"
#include "verbs/contexts.hpp"
#include "verbs/instance.hpp"
#include "verbs/parts.hpp"

using namespace feroce;
using namespace feroce::verbs;

ibv_context* ibv_import_device(int cmd_fd) {
    return abi_call("ibv_import_device", [&]() -> ibv_context* {
        Device* device = device_of_fd(cmd_fd);
        if (device == nullptr)
            return refuse_null(
                "ibv_import_device",
                {EOPNOTSUPP, "not a device of this process; others cannot be shared"});
        return open_device(&device->base, cmd_fd);
    });
}

ibv_pd* ibv_import_pd(ibv_context* context, std::uint32_t handle) {
    return abi_call("ibv_import_pd", [&]() -> ibv_pd* {
        if (!alive(context)) return refuse_null("ibv_import_pd", kDead);
        const PdId id{handle};
        // Pinned: its owner cannot free it before ibv_unimport_pd.
        if (Result<void> pinned = process_of(context).memory().pin_pd(id); !pinned)
            return refuse_null("ibv_import_pd", pinned.error());
        Rollback unpin([&] { process_of(context).memory().unpin_pd(id); });
        auto* pd = new Pd;
        unpin.keep();
        pd->base.context = context;
        pd->base.handle = handle;
        pd->id = id;
        pd->imported = true;
        pd->users.store(1);  // Ours, until ibv_unimport_pd.
        context_of(context).objects.fetch_add(1);
        return &pd->base;
    });
}

void ibv_unimport_pd(ibv_pd* base) {
    const Uncancelled call;
    if (!alive(base->context)) return;
    context_of(base->context).objects.fetch_sub(1);
    leave_pd(base);
}

// As with rdma-core, the importer learns the keys and not the address.
ibv_mr* ibv_import_mr(ibv_pd* pd, std::uint32_t handle) {
    return abi_call("ibv_import_mr", [&]() -> ibv_mr* {
        if (!alive(pd->context)) return refuse_null("ibv_import_mr", kDead);
        auto* mr = new Mr;
        mr->base.context = pd->context;
        mr->base.pd = pd;
        mr->base.handle = handle;
        mr->base.lkey = mr->base.rkey = handle;
        context_of(pd->context).objects.fetch_add(1);
        return &mr->base;
    });
}

void ibv_unimport_mr(ibv_mr* base) {
    const Uncancelled call;
    if (!alive(base->context)) return;
    context_of(base->context).objects.fetch_sub(1);
    bury(object_of<Mr>(base), base->context);
}

ibv_dm* ibv_import_dm(ibv_context* context, std::uint32_t handle) {
    return abi_call("ibv_import_dm", [&]() -> ibv_dm* {
        if (!alive(context)) return refuse_null("ibv_import_dm", kDead);
        ibv_dm* dm = share_dm(context, handle);
        if (dm == nullptr) return refuse_null("ibv_import_dm", {EINVAL, "no such device memory"});
        return dm;
    });
}

void ibv_unimport_dm(ibv_dm* base) {
    const Uncancelled call;
    if (!alive(base->context)) return;
    unshare_dm(base);
}
