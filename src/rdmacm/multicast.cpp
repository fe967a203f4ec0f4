#include <cerrno>

#include "process/undisturbed.hpp"
#include "rdmacm/address.hpp"
#include "rdmacm/events.hpp"
#include "rdmacm/id.hpp"

namespace feroce::rdmacm {
namespace {

Result<void> join(CmId& id, const sockaddr* address, bool send_only, void* context) {
    const std::optional<Endpoint> group = endpoint_of(address);
    if (!group || !group->address.is_multicast())
        return Error{EINVAL, "only an IPv4 or IPv6 group address can be joined"};
    if (!is_ud(id) || id.base.verbs == nullptr)
        return Error{EINVAL, "the id is not of a datagram port space, or not bound to a device"};
    Events one = make_event(id, RDMA_CM_EVENT_MULTICAST_JOIN);
    rdma_ud_param& p = one.front()->base.param.ud;
    p.ah_attr = address_vector(id);
    const auto [place, is_new] = id.groups.try_emplace(group->address);
    Rollback undo([&, place = place, is_new = is_new] {
        if (is_new) id.groups.erase(place);
    });
    Group joined{gid_to_ibv(group->address), false};
    if (!send_only && id.base.qp != nullptr) {
        if (const int code = ibv_attach_mcast(id.base.qp, &joined.mgid, 0); code != 0)
            return Error{code, "the queue pair cannot join the group"};
        joined.attached = true;
    }
    place->second = joined;
    undo.keep();
    p.private_data = context;
    p.ah_attr.grh.dgid = joined.mgid;
    p.qp_num = kMulticastQpn.raw;
    p.qkey = RDMA_UDP_QKEY;
    queue_event(std::move(one));
    return {};
}

bool is_known(const rdma_cm_join_mc_attr_ex& attributes) {
    constexpr std::uint32_t kKnown = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
    return attributes.comp_mask == kKnown && attributes.addr != nullptr &&
           attributes.join_flags < RDMA_MC_JOIN_FLAG_RESERVED;
}

void leave(CmId& id, Group& group) {
    if (group.attached && id.base.qp != nullptr) ibv_detach_mcast(id.base.qp, &group.mgid, 0);
}

}  // namespace

void leave_all_groups(CmId& id) {
    for (auto& [address, group] : id.groups) leave(id, group);
    id.groups.clear();
}

}  // namespace feroce::rdmacm

using namespace feroce;
using namespace feroce::rdmacm;

int rdma_join_multicast_ex(rdma_cm_id* base, rdma_cm_join_mc_attr_ex* attributes, void* context) {
    return within_memory("rdma_join_multicast_ex", [&]() -> int {
        CmId& id = id_of(base);
        {
            const process::Undisturbed part(id.synchronous);
            const Entry entry(id, Call::Join, "rdma_join_multicast");
            if (entry.refused()) return -1;
            if (!is_known(*attributes))
                return fail("rdma_join_multicast_ex",
                            {EINVAL, "an address and known flags are needed"});
            const bool send_only = attributes->join_flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER;
            if (Result<void> joined = join(id, attributes->addr, send_only, context); !joined)
                return fail("rdma_join_multicast", joined.error());
        }
        return complete(id);
    });
}

int rdma_join_multicast(rdma_cm_id* base, sockaddr* address, void* context) {
    rdma_cm_join_mc_attr_ex attributes{};
    attributes.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
    attributes.join_flags = RDMA_MC_JOIN_FLAG_FULLMEMBER;
    attributes.addr = address;
    return rdma_join_multicast_ex(base, &attributes, context);
}

int rdma_leave_multicast(rdma_cm_id* base, sockaddr* address) {
    return abi_call("rdma_leave_multicast", [&]() -> int {
        CmId& id = id_of(base);
        const std::optional<Endpoint> group = endpoint_of(address);
        const auto found = group ? id.groups.find(group->address) : id.groups.end();
        if (found == id.groups.end())
            return fail("rdma_leave_multicast", {EADDRNOTAVAIL, "the id is not in this group"});
        leave(id, found->second);
        id.groups.erase(found);
        return 0;
    });
}
