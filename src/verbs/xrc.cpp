// XRC domains.
#include <fcntl.h>

#include "verbs/common.hpp"
#include "verbs/instance.hpp"
#include "verbs/ops.hpp"

namespace feroce::verbs {

ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* attributes) {
    return abi_call("ibv_open_xrcd", [&]() -> ibv_xrcd* {
        constexpr std::uint32_t kNeeds = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
        if (!alive(context)) return refuse_null("ibv_open_xrcd", kDead);
        if (attributes->comp_mask != kNeeds || (attributes->oflags & ~(O_CREAT | O_EXCL)) != 0)
            return refuse_null("ibv_open_xrcd",
                               {EINVAL, "fd and oflags (O_CREAT, O_EXCL) are needed"});
        const Result<std::uint32_t> domain =
            process_of(context).xrc_files().open(attributes->fd, attributes->oflags);
        if (!domain) return refuse_null("ibv_open_xrcd", domain.error());
        Rollback undo([&] { (void)process_of(context).xrc_files().close(*domain); });
        auto* xrcd = new Xrcd;
        undo.keep();
        xrcd->base.context = context;
        xrcd->domain = *domain;
        context_of(context).objects.fetch_add(1);
        return &xrcd->base;
    });
}

int close_xrcd(ibv_xrcd* base) {
    return abi_call("ibv_close_xrcd", [&]() -> int {
        if (!alive(base->context)) return refuse("ibv_close_xrcd", kDead);
        Xrcd& xrcd = object_of<Xrcd>(base);
        if (Result<void> closed = process_of(base->context).xrc_files().close(xrcd.domain); !closed)
            return refuse("ibv_close_xrcd", closed.error());
        context_of(base->context).objects.fetch_sub(1);
        bury(xrcd, base->context);
        return 0;
    });
}

}  // namespace feroce::verbs
