#include "verbs/parts.hpp"

#include <cstring>
#include <span>

#include "transport/ud/grh.hpp"
#include "verbs/common.hpp"
#include "verbs/contexts.hpp"
#include "verbs/instance.hpp"

namespace feroce::verbs {
namespace {

Gid gid_from(const ibv_gid& from) {
    Gid gid;
    std::memcpy(gid.raw.data(), from.raw, gid.raw.size());
    return gid;
}

}  // namespace

Result<transport::AddressVector> address_vector(Context& context, const ibv_ah_attr& from) {
    if (from.port_num != 1) return Error{EINVAL, "the device has one port, number 1"};
    if (from.is_global == 0) return Error{EINVAL, "RoCE needs a GRH: set is_global (-g N)"};
    transport::AddressVector out;
    out.destination = gid_from(from.grh.dgid);
    out.source = context.gids.at(from.grh.sgid_index);
    if (out.source.is_zero()) return Error{EINVAL, "sgid_index names no GID of this port"};
    if (out.destination.is_zero()) return Error{EINVAL, "the destination GID is zero"};
    if (out.destination.is_v4() != out.source.is_v4())
        return Error{EINVAL, "source and destination are not of one IP version"};
    out.flow_label = from.grh.flow_label;
    out.source_gid_index = from.grh.sgid_index;
    out.hop_limit = from.grh.hop_limit;
    out.traffic_class = from.grh.traffic_class;
    out.service_level = from.sl;
    out.static_rate = from.static_rate;
    out.port = from.port_num;
    out.global = true;
    return out;
}

ibv_ah_attr ah_attr(const transport::AddressVector& from) {
    ibv_ah_attr out{};
    std::memcpy(out.grh.dgid.raw, from.destination.raw.data(), sizeof out.grh.dgid.raw);
    out.grh.flow_label = from.flow_label;
    out.grh.sgid_index = from.source_gid_index;
    out.grh.hop_limit = from.hop_limit;
    out.grh.traffic_class = from.traffic_class;
    out.sl = from.service_level;
    out.static_rate = from.static_rate;
    out.is_global = from.global ? 1 : 0;
    out.port_num = from.port;
    return out;
}

}  // namespace feroce::verbs

using namespace feroce;
using namespace feroce::verbs;

ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attributes) {
    return abi_call("ibv_create_ah", [&]() -> ibv_ah* {
        if (!alive(pd->context)) return refuse_null("ibv_create_ah", kDead);
        const Result<transport::AddressVector> vector =
            address_vector(context_of(pd->context), *attributes);
        if (!vector) return refuse_null("ibv_create_ah", vector.error());
        auto ah = std::make_unique<Ah>();
        if (!process_of(pd->context).quotas().address_handles.take())
            return refuse_null("ibv_create_ah", {ENOMEM, "as many address handles as max_ah"});
        ah->base.context = pd->context;
        ah->base.pd = pd;
        ah->path = {.source = vector->source,
                    .destination = vector->destination,
                    .traffic_class = vector->traffic_class,
                    .hop_limit = vector->hop_limit,
                    .flow = static_cast<std::uint16_t>(vector->flow_label)};
        pd_of(pd).users.fetch_add(1);
        context_of(pd->context).objects.fetch_add(1);
        return &ah.release()->base;
    });
}

int ibv_destroy_ah(ibv_ah* base) {
    return abi_call("ibv_destroy_ah", [&]() -> int {
        if (!alive(base->context)) return refuse("ibv_destroy_ah", kDead);
        leave_pd(base->pd);
        context_of(base->context).objects.fetch_sub(1);
        process_of(base->context).quotas().address_handles.give();
        bury(object_of<Ah>(base), base->context);
        return 0;
    });
}

int ibv_init_ah_from_wc(ibv_context* context, std::uint8_t port, ibv_wc* wc, ibv_grh* grh,
                        ibv_ah_attr* out) {
    return abi_call<FailAs::MinusOne>("ibv_init_ah_from_wc", [&]() -> int {
        if ((wc->wc_flags & IBV_WC_GRH) == 0) {
            return refuse_minus("ibv_init_ah_from_wc", {EINVAL, "the completion has no GRH"});
        }
        const transport::GrhAddresses from =
            transport::read_grh(std::as_bytes(std::span<const ibv_grh, 1>(grh, 1)));
        const std::vector<Gid> gids = context_of(context).gids.all();
        std::memset(out, 0, sizeof *out);
        for (std::size_t i = 0; i < gids.size(); ++i)
            if (gids[i] == from.destination) out->grh.sgid_index = static_cast<std::uint8_t>(i);
        std::memcpy(out->grh.dgid.raw, from.source.raw.data(), sizeof out->grh.dgid.raw);
        out->grh.hop_limit = 64;
        out->grh.traffic_class = from.traffic_class;
        out->is_global = 1;
        out->port_num = port;
        return 0;
    });
}

ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, std::uint8_t port) {
    ibv_ah_attr attributes;
    if (ibv_init_ah_from_wc(pd->context, port, wc, grh, &attributes) != 0) return nullptr;
    return ibv_create_ah(pd, &attributes);
}

int ibv_resolve_eth_l2_from_gid(ibv_context*, ibv_ah_attr*, std::uint8_t[ETHERNET_LL_SIZE],
                                std::uint16_t*) {
    // The kernel's UDP stack does it for us on every send; nobody needs to know.
    return -refuse("ibv_resolve_eth_l2_from_gid", {EOPNOTSUPP, "link addresses are not resolved"});
}
