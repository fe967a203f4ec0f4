// Opening a device: the context and its tables of operations, through which the inline functions of
// verbs.h call.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "verbs/annotated.hpp"
#include "verbs/common.hpp"
#include "verbs/contexts.hpp"
#include "verbs/fault_ops.hpp"
#include "verbs/instance.hpp"
#include "verbs/lint.hpp"
#include "verbs/ops.hpp"
#include "verbs/parts.hpp"

namespace feroce::verbs {
namespace {

// The largest IB MTU whose packets fit: room for IPv6, UDP, BTH, the longest extension and ICRC, as
// rxe computes it.
std::uint32_t ib_mtu(std::uint32_t interface_mtu) {
    constexpr std::uint32_t kHeaders = 80;
    std::uint32_t mtu = 256;
    while (mtu < 4096 && mtu * 2 + kHeaders <= interface_mtu) mtu *= 2;
    return mtu;
}

// Everything left null is what we do not do: the inline callers then say EOPNOTSUPP.
void fill_operations(verbs_context& v) {
    v.query_port = query_port;
    v.query_device_ex = query_device_ex;
    v.query_rt_values = query_rt_values;
    v.advise_mr = advise_mr;
    v.alloc_null_mr = alloc_null_mr;
    v.alloc_dm = alloc_dm;
    v.free_dm = free_dm;
    v.reg_dm_mr = reg_dm_mr;
    v.alloc_parent_domain = alloc_parent_domain;
    v.alloc_td = alloc_td;
    v.dealloc_td = dealloc_td;
    v.modify_cq = modify_cq;
    v.create_cq_ex = create_cq_ex;
    v.create_qp_ex = create_qp_ex;
    v.create_srq_ex = create_srq_ex;
    v.get_srq_num = get_srq_num;
    v.open_xrcd = open_xrcd;
    v.close_xrcd = close_xrcd;
    v.open_qp = open_qp;
}

// Called without a check, so they are never null.
void fill_plain_operations(ibv_context_ops& ops) {
    ops.alloc_mw = alloc_mw;
    ops.bind_mw = bind_mw;
    ops.dealloc_mw = dealloc_mw;
    ops.poll_cq = poll_cq;
    ops.req_notify_cq = req_notify_cq;
    ops.post_send = post_send;
    ops.post_recv = post_recv;
    ops.post_srq_recv = post_srq_recv;
}

void mark_extended(verbs_context& v) {
    v.sz = sizeof v;
    v.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
}

}  // namespace

void fill_live_operations(ibv_context_ops& ops, bool linted) {
    fill_plain_operations(ops);
    if (linted)
        fill_linted_operations(ops);
    else if (faults_wanted())
        FaultedOps<post_send, post_recv, post_srq_recv, poll_cq, req_notify_cq>::fill(ops);
}

void make_dead(Context& context) {
    mark_extended(context.base);
    fill_plain_operations(context.base.context.ops);
    context.base.context.cmd_fd = context.base.context.async_fd = -1;
}

}  // namespace feroce::verbs

using namespace feroce;
using namespace feroce::verbs;

ibv_context* feroce::verbs::open_device(ibv_device* base, int cmd_fd) {
    Device& device = object_of<Device>(base);
    process::Process& process = process_object();
    auto context = std::make_unique<Context>();
    const std::optional<host::Interface> interface = interface_of(process, device);
    if (!interface) return refuse_null("ibv_open_device", {ENODEV, "the interface is gone"});
    if (Result<void> opened = context->events.open(); !opened)
        return refuse_null("ibv_open_device", opened.error());
    if (Result<void> opened = process.open(); !opened) {
        process::log(process::LogLevel::Error, "%s: %s", base->name, opened.error().why);
        return refuse_null("ibv_open_device", opened.error());
    }
    Rollback undo([&process] { process.close(); });
    context->device = &device;
    context->process = &process;
    context->gids.update(interface->gids);
    context->port_up = interface->up;
    context->mtu = ib_mtu(interface->mtu);
    mark_extended(context->base);
    context->base.context.ops = Instance::get().operations;
    if (wants_annotations()) fill_annotated_operations(context->base.context.ops);
    fill_operations(context->base);
    ibv_context& out = context->base.context;
    out.device = base;
    out.cmd_fd = cmd_fd;
    out.async_fd = context->events.fd();
    out.num_comp_vectors = static_cast<int>(process.shards_max());
    ::pthread_mutex_init(&out.mutex, nullptr);
    add_context(*context);
    Rollback forget([&context] { remove_context(*context); });
    Instance::get().start_timed_faults();  // Only now: the first event may be due at once.
    forget.keep();
    undo.keep();
    return &context.release()->base.context;
}

ibv_context* ibv_open_device(ibv_device* base) {
    return abi_call("ibv_open_device", [&]() -> ibv_context* {
        // Nothing is ever read from it: it is what ibv_import_device knows the device by.
        const int cmd_fd = ::memfd_create("feroce-device", MFD_CLOEXEC);
        Rollback undo([cmd_fd] { ::close(cmd_fd); });
        ibv_context* context = open_device(base, cmd_fd);
        if (context != nullptr) undo.keep();
        return context;
    });
}

int ibv_close_device(ibv_context* base) {
    return abi_call("ibv_close_device", [&]() -> int {
        if (!alive(base)) return refuse("ibv_close_device", kDead);
        Context& context = context_of(base);
        if (const std::uint32_t left = context.objects.load(); left > 0) {
            // As with a kernel device they are gone for the program; unlike there, somebody may
            // still hold pointers to them, so the memory stays.
            process::log(process::LogLevel::Warn, "ibv_close_device: %u objects were not destroyed",
                         left);
            return 0;
        }
        Instance& instance = instance_of(base);
        remove_context(context);
        instance.close();
        ::close(base->cmd_fd);
        context.events.close();
        context.process = nullptr;
        context.base = instance.dead.base;
        base->device = &context.device->base;
        instance.graveyard.bury(context);
        return 0;
    });
}
