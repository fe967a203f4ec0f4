#include "verbs/parts.hpp"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <optional>

#include "base/link_speed.hpp"
#include "verbs/common.hpp"
#include "verbs/contexts.hpp"
#include "verbs/instance.hpp"

namespace feroce::verbs {
namespace {

constexpr std::uint32_t kVendorId = 0x00fe'0ce0;  // Not an OUI of anyone whose quirks tests know.
constexpr std::uint32_t kOdpAll = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV |
                                  IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ |
                                  IBV_ODP_SUPPORT_ATOMIC | IBV_ODP_SUPPORT_SRQ_RECV;

void fill_counts(process::Quotas& quotas, ibv_device_attr& a) {
    a.max_qp = static_cast<int>(quotas.queue_pairs.limit());
    a.max_qp_wr = limits::kWorkRequests;
    a.max_sge = limits::kSges;
    a.max_sge_rd = limits::kSges;
    a.max_cq = static_cast<int>(quotas.completion_queues.limit());
    a.max_cqe = limits::kCompletions;
    a.max_mr = static_cast<int>(mem::Limits{}.regions);
    a.max_mw = static_cast<int>(mem::Limits{}.windows);
    a.max_pd = static_cast<int>(mem::Limits{}.pds);
    a.max_qp_rd_atom = limits::kReadAtomics;
    a.max_res_rd_atom = limits::kReadAtomics * a.max_qp;
    a.max_qp_init_rd_atom = limits::kReadAtomics;
    a.max_mcast_grp = device::MulticastGroups::kGroupsMax;
    a.max_mcast_qp_attach = device::MulticastGroups::kMembersMax;
    a.max_total_mcast_qp_attach = a.max_mcast_grp * a.max_mcast_qp_attach;
    a.max_ah = static_cast<int>(quotas.address_handles.limit());
    a.max_srq = static_cast<int>(quotas.shared_receive_queues.limit());
    a.max_srq_wr = limits::kWorkRequests;
    a.max_srq_sge = limits::kSges;
    a.max_pkeys = 1;
    a.phys_port_cnt = 1;
}

void fill(const Context& context, ibv_device_attr& a) {
    std::memset(&a, 0, sizeof a);
    std::strcpy(a.fw_ver, "0.1.0");
    a.node_guid = htobe64(context.device->guid);
    a.sys_image_guid = a.node_guid;
    a.max_mr_size = ~std::uint64_t{0};
    a.page_size_cap = 0xffff'f000;
    a.vendor_id = kVendorId;
    a.vendor_part_id = 1;
    a.hw_ver = 1;
    a.device_cap_flags = IBV_DEVICE_BAD_PKEY_CNTR | IBV_DEVICE_BAD_QKEY_CNTR |
                         IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_PORT_ACTIVE_EVENT |
                         IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN |
                         IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B |
                         IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_XRC;
    // Ours are CPU atomics, which would be GLOB; but programs compare with HCA and else do without.
    // pci_atomic_caps tells those that ask for more.
    a.atomic_cap = IBV_ATOMIC_HCA;
    a.local_ca_ack_delay = 15;
    fill_counts(context.process->quotas(), a);
}

ibv_gid_entry entry_for(const Context& context, const Gid& gid, std::uint32_t index) {
    ibv_gid_entry entry{};
    std::memcpy(entry.gid.raw, gid.raw.data(), sizeof entry.gid.raw);
    entry.gid_index = index;
    entry.port_num = 1;
    entry.gid_type = IBV_GID_TYPE_ROCE_V2;
    entry.ndev_ifindex = context.device->interface_index;
    return entry;
}

}  // namespace

int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* out, std::size_t size) {
    return abi_call("ibv_query_port", [&]() -> int {
        if (!can_query(context)) return refuse("ibv_query_port", kDead);
        if (port != 1)
            return refuse("ibv_query_port", {EINVAL, "the device has one port, number 1"});
        const Context& c = context_of(context);
        ibv_port_attr a{};
        const std::optional<host::Interface> interface = interface_of(*c.process, *c.device);
        const bool up =
            interface && interface->up && !static_cast<const Instance*>(c.process)->port_is_down();
        a.state = up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
        a.max_mtu = IBV_MTU_4096;
        a.active_mtu = mtu_enum(c.mtu);
        a.gid_tbl_len = limits::kGidTableLength;
        a.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
        a.max_msg_sz = limits::kMessageBytes;
        a.pkey_tbl_len = 1;
        a.max_vl_num = 1;
        const LinkSpeed& speed = link_speed(interface ? interface->speed_mbps : 0);
        a.active_width = speed.width;
        a.active_speed = speed.speed;
        a.phys_state = a.state == IBV_PORT_ACTIVE ? 5 : 3;
        a.link_layer = IBV_LINK_LAYER_ETHERNET;
        a.flags = IBV_QPF_GRH_REQUIRED;
        std::memcpy(out, &a, std::min(size, sizeof a));
        annotate::defined(out, std::min(size, sizeof a));
        return 0;
    });
}

int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input,
                    ibv_device_attr_ex* out, std::size_t size) {
    return abi_call("ibv_query_device_ex", [&]() -> int {
        if (!can_query(context)) return refuse("ibv_query_device_ex", kDead);
        if ((input != nullptr && input->comp_mask != 0) || size < sizeof(ibv_device_attr))
            return refuse("ibv_query_device_ex", {EINVAL, "unknown flags, or too small a struct"});
        ibv_device_attr_ex a{};
        fill(context_of(context), a.orig_attr);
        a.odp_caps.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
        a.odp_caps.per_transport_caps = {kOdpAll, kOdpAll, kOdpAll};
        a.xrc_odp_caps = kOdpAll;
        a.completion_timestamp_mask = ~std::uint64_t{0};
        a.hca_core_clock = 1'000'000;  // kHz: timestamps count nanoseconds.
        a.device_cap_flags_ex = a.orig_attr.device_cap_flags;
        a.pci_atomic_caps.fetch_add = IBV_PCI_ATOMIC_OPERATION_8_BYTE_SIZE_SUP;
        a.pci_atomic_caps.compare_swap = IBV_PCI_ATOMIC_OPERATION_8_BYTE_SIZE_SUP;
        a.max_dm_size = limits::kDeviceMemoryBytes;
        a.phys_port_cnt_ex = 1;
        std::memset(out, 0, size);
        annotate::defined(out, size);
        std::memcpy(out, &a, std::min(size, sizeof a));
        return 0;
    });
}

int query_rt_values(ibv_context* context, ibv_values_ex* values) {
    return abi_call("ibv_query_rt_values", [&]() -> int {
        if (!can_query(context)) return refuse("ibv_query_rt_values_ex", kDead);
        if (values->comp_mask != IBV_VALUES_MASK_RAW_CLOCK)
            return refuse("ibv_query_rt_values_ex",
                          {EINVAL, "only the raw clock can be asked for"});
        const auto now = process_of(context).host().now().time_since_epoch().count();
        values->raw_clock = {now / 1'000'000'000, now % 1'000'000'000};
        annotate::defined(&values->raw_clock);
        return 0;
    });
}

}  // namespace feroce::verbs

using namespace feroce;
using namespace feroce::verbs;

int ibv_query_device(ibv_context* context, ibv_device_attr* attributes) {
    return abi_call("ibv_query_device", [&]() -> int {
        if (!can_query(context)) return refuse("ibv_query_device", kDead);
        fill(context_of(context), *attributes);
        annotate::defined(attributes);
        return 0;
    });
}

int ibv_query_port(ibv_context* context, std::uint8_t port, _compat_ibv_port_attr* out) {
    // Binaries from before port_cap_flags2 have a struct that ends where it begins.
    return query_port(context, port, reinterpret_cast<ibv_port_attr*>(out),
                      offsetof(ibv_port_attr, port_cap_flags2));
}

int ibv_query_port_speed(ibv_context* context, std::uint32_t port, std::uint64_t* speed) {
    return abi_call("ibv_query_port_speed", [&]() -> int {
        if (!can_query(context)) return refuse("ibv_query_port_speed", kDead);
        if (port != 1)
            return refuse("ibv_query_port_speed", {EINVAL, "the device has one port, number 1"});
        const Context& c = context_of(context);
        const std::optional<host::Interface> interface = interface_of(*c.process, *c.device);
        *speed = interface ? interface->speed_mbps / 100 : 0;
        annotate::defined(speed);
        return 0;
    });
}

int ibv_query_gid(ibv_context* context, std::uint8_t port, int index, ibv_gid* out) {
    return abi_call<FailAs::MinusOne>("ibv_query_gid", [&]() -> int {
        if (!can_query(context)) {
            return refuse_minus("ibv_query_gid", kDead);
        }
        if (port != 1 || index < 0 || index >= limits::kGidTableLength) {
            return refuse_minus("ibv_query_gid", {EINVAL, "no such port or GID index"});
        }
        const Gid gid = context_of(context).gids.at(static_cast<std::size_t>(index));
        std::memcpy(out->raw, gid.raw.data(), sizeof out->raw);
        annotate::defined(out);
        return 0;
    });
}

int _ibv_query_gid_ex(ibv_context* context, std::uint32_t port, std::uint32_t index,
                      ibv_gid_entry* out, std::uint32_t flags, std::size_t size) {
    return abi_call("ibv_query_gid_ex", [&]() -> int {
        if (!can_query(context)) return refuse("ibv_query_gid_ex", kDead);
        if (flags != 0 || port != 1 || index >= limits::kGidTableLength)
            return refuse("ibv_query_gid_ex",
                          {EINVAL, "no such port or GID index, or unknown flags"});
        Context& c = context_of(context);
        const Gid gid = c.gids.at(index);
        if (gid.is_zero()) return refuse("ibv_query_gid_ex", {ENODATA, "the entry is empty"});
        const ibv_gid_entry entry = entry_for(c, gid, index);
        std::memcpy(out, &entry, std::min(size, sizeof entry));
        annotate::defined(out, std::min(size, sizeof entry));
        return 0;
    });
}

ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries, std::size_t entries_max,
                             std::uint32_t flags, std::size_t size) {
    return abi_call<FailAs::NegativeCode>("ibv_query_gid_table", [&]() -> ssize_t {
        if (!can_query(context)) return -refuse("ibv_query_gid_table", kDead);
        if (flags != 0) return -refuse("ibv_query_gid_table", {EINVAL, "unknown flags"});
        Context& c = context_of(context);
        const std::vector<Gid> gids = c.gids.all();
        ssize_t count = 0;
        for (std::uint32_t i = 0; i < gids.size(); ++i) {
            if (gids[i].is_zero()) continue;
            if (static_cast<std::size_t>(count) >= entries_max)
                return -refuse("ibv_query_gid_table", {EINVAL, "the table has more entries"});
            const ibv_gid_entry entry = entry_for(c, gids[i], i);
            auto* to = reinterpret_cast<char*>(entries) + static_cast<std::size_t>(count) * size;
            std::memcpy(to, &entry, std::min(size, sizeof entry));
            annotate::defined(to, std::min(size, sizeof entry));
            ++count;
        }
        return count;
    });
}

int ibv_query_pkey(ibv_context*, std::uint8_t port, int index, __be16* pkey) {
    if (port != 1 || index != 0) {
        return refuse_minus("ibv_query_pkey", {EINVAL, "the P_Key table has one entry"});
    }
    *pkey = htobe16(kDefaultPkey.raw);
    annotate::defined(pkey);
    return 0;
}

int ibv_get_pkey_index(ibv_context*, std::uint8_t port, __be16 pkey) {
    if (port == 1 && pkey == htobe16(kDefaultPkey.raw)) return 0;
    return refuse_minus("ibv_get_pkey_index", {EINVAL, "the P_Key table has one entry"});
}
