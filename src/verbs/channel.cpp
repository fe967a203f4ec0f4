// Completion channels.
#include "verbs/annotated.hpp"
#include "verbs/common.hpp"
#include "verbs/instance.hpp"
#include "verbs/lint.hpp"

using namespace feroce;
using namespace feroce::verbs;

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
    return abi_call("ibv_create_comp_channel", [&]() -> ibv_comp_channel* {
        if (!alive(context)) return refuse_null("ibv_create_comp_channel", kDead);
        auto channel = std::make_unique<Channel>();
        if (Result<void> opened = channel->events.open(); !opened)
            return refuse_null("ibv_create_comp_channel", opened.error());
        channel->base.context = context;
        channel->base.fd = channel->events.fd();
        context_of(context).objects.fetch_add(1);
        return &channel.release()->base;
    });
}

int ibv_destroy_comp_channel(ibv_comp_channel* base) {
    return abi_call("ibv_destroy_comp_channel", [&]() -> int {
        if (!alive(base->context)) return refuse("ibv_destroy_comp_channel", kDead);
        Channel& channel = object_of<Channel>(base);
        {
            const std::lock_guard lock(channel.mutex);
            if (base->refcnt > 0)
                return refuse("ibv_destroy_comp_channel",
                              {EBUSY, "completion queues still use it"});
        }
        base->fd = -1;  // The number may be somebody else's soon.
        channel.events.close();
        context_of(base->context).objects.fetch_sub(1);
        bury(channel, base->context);
        return 0;
    });
}

int ibv_get_cq_event(ibv_comp_channel* base, ibv_cq** cq, void** cq_context) {
    if (!alive(base->context)) return refuse_minus("ibv_get_cq_event", kDead);
    Lint* const lint = lint_of(base->context);
    if (lint != nullptr) lint_sleep(*lint, base);
    Cq* found = nullptr;
    if (!object_of<Channel>(base).events.take(base->fd, found)) return -1;
    *cq = public_cq(*found);
    *cq_context = found->base.cq_context;
    note_completion();
    annotate::defined(cq);
    annotate::defined(cq_context, sizeof *cq_context);
    if (lint != nullptr)
        lint->tell(
            [cq](lint::Linter& linter, lint::Place place) { linter.event_taken(*cq, place); });
    return 0;
}

void ibv_ack_cq_events(ibv_cq* base, unsigned int count) {
    if (base->channel == nullptr || !alive(base->context)) return;
    Channel& channel = object_of<Channel>(base->channel);
    {
        const std::lock_guard lock(channel.mutex);
        base->comp_events_completed += count;
    }
    if (Lint* lint = lint_of(base->context))
        lint->tell_quickly([&](lint::Linter& linter) { linter.events_acknowledged(base, count); });
    channel.events.acknowledge(cq_of(base).completion_events, count);
}
