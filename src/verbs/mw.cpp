// Memory windows.
#include "verbs/common.hpp"
#include "verbs/instance.hpp"
#include "verbs/ops.hpp"
#include "verbs/parts.hpp"

namespace feroce::verbs {

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) {
    return abi_call("ibv_alloc_mw", [&]() -> ibv_mw* {
        if (!alive(pd->context)) return refuse_null("ibv_alloc_mw", kDead);
        if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2)
            return refuse_null("ibv_alloc_mw", {EINVAL, "a window is of type 1 or 2"});
        const Result<RKey> key =
            process_of(pd->context)
                .memory()
                .allocate_window(pd_of(pd).id, static_cast<mem::WindowType>(type));
        if (!key) return refuse_null("ibv_alloc_mw", key.error());
        Rollback forget([&] { (void)process_of(pd->context).memory().free_window(*key); });
        auto* mw = new Mw;
        forget.keep();
        mw->base.context = pd->context;
        mw->base.pd = pd;
        mw->base.rkey = key->raw;
        mw->base.handle = key->raw;
        mw->base.type = type;
        pd_of(pd).users.fetch_add(1);
        context_of(pd->context).objects.fetch_add(1);
        return &mw->base;
    });
}

int dealloc_mw(ibv_mw* base) {
    return abi_call("ibv_dealloc_mw", [&]() -> int {
        if (!alive(base->context)) return refuse("ibv_dealloc_mw", kDead);
        process::Process& process = process_of(base->context);
        const Result<std::shared_ptr<mem::FarMemory>> freed =
            process.memory().free_window(RKey{base->rkey});
        if (!freed) return refuse("ibv_dealloc_mw", freed.error());
        process.quiesce();
        if (*freed != nullptr) (*freed)->drain();  // What came through it has landed.
        leave_pd(base->pd);
        context_of(base->context).objects.fetch_sub(1);
        bury(object_of<Mw>(base), base->context);
        return 0;
    });
}

// Type 1: the bind is a work request whose new key is known at once.
int bind_mw(ibv_qp* base, ibv_mw* mw, ibv_mw_bind* bind) {
    if (!alive(base->context)) return refuse("ibv_bind_mw", kDead);
    const RKey fresh = process_of(base->context).memory().fresh_window_key(RKey{mw->rkey});
    transport::SendWr wr;
    wr.wr_id = bind->wr_id;
    set_send_flags(wr, bind->send_flags);
    wr.op = transport::SendOp::BindWindow;
    wr.bind = window_bind(*mw, fresh.raw, bind->bind_info);
    Qp& qp = qp_of(base);
    process::Shard::Session session(*qp.shard);
    if (Result<void> posted = session.engine().post_send(session.now(), *qp.machine, wr); !posted)
        return refuse("ibv_bind_mw", posted.error(), *qp.machine);
    mw->rkey = fresh.raw;
    return 0;
}

}  // namespace feroce::verbs
