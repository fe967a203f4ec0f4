#include "verbs/parts.hpp"

#include <algorithm>

#include "verbs/common.hpp"

namespace feroce::verbs {
namespace {

using transport::QpAttributes;
using transport::QpState;

// What the engine cannot see any more: words that it has no value for, and what the device
// promises. The other ranges are the engine's.
Result<void> check_ranges(const ibv_qp_attr& a, int mask) {
    const auto given = [mask](int bit) { return (mask & bit) != 0; };
    if (given(IBV_QP_STATE) && a.qp_state > IBV_QPS_ERR) return Error{EINVAL, "unknown qp_state"};
    if (given(IBV_QP_CUR_STATE) && a.cur_qp_state > IBV_QPS_ERR)
        return Error{EINVAL, "unknown cur_qp_state"};
    if (given(IBV_QP_PATH_MTU) && (a.path_mtu < IBV_MTU_256 || a.path_mtu > IBV_MTU_4096))
        return Error{EINVAL, "unknown path_mtu"};
    // retry_cnt and rnr_retry have three bits in the connection manager's messages, but programs
    // set more, and the kernel's rxe counts as many.
    if (given(IBV_QP_MAX_QP_RD_ATOMIC) && a.max_rd_atomic > limits::kReadAtomics)
        return Error{EINVAL, "max_rd_atomic is beyond max_qp_init_rd_atom"};
    if (given(IBV_QP_MAX_DEST_RD_ATOMIC) && a.max_dest_rd_atomic > limits::kReadAtomics)
        return Error{EINVAL, "max_dest_rd_atomic is beyond max_qp_rd_atom"};
    return {};
}

}  // namespace

Result<QpAttributes> qp_attributes(Context& context, const ibv_qp_attr& a, int mask) {
    TRY(check_ranges(a, mask));
    QpAttributes out;
    out.state = static_cast<QpState>(a.qp_state);
    out.current_state = static_cast<QpState>(a.cur_qp_state);
    // Programs ask for 4096 everywhere, and other devices let them. No packet of ours is longer
    // than the interface carries; both ends of a link come to the same number.
    if ((mask & IBV_QP_PATH_MTU) != 0) out.path_mtu = std::min(mtu_bytes(a.path_mtu), context.mtu);
    out.qkey = {a.qkey};
    out.receive_psn = Psn(a.rq_psn);
    out.send_psn = Psn(a.sq_psn);
    out.destination_qpn = {a.dest_qp_num & 0xff'ffff};
    out.access = mem::AccessSet(a.qp_access_flags);
    out.pkey_index = a.pkey_index;
    out.alternate_pkey_index = a.alt_pkey_index;
    out.drain_notify = a.en_sqd_async_notify != 0;
    out.read_atomic_max = a.max_rd_atomic;
    out.dest_read_atomic_max = a.max_dest_rd_atomic;
    out.min_rnr_timer = a.min_rnr_timer;
    out.port = a.port_num;
    out.timeout = a.timeout;
    out.retry_count = a.retry_cnt;
    out.rnr_retry = a.rnr_retry;
    out.alternate_port = a.alt_port_num;
    out.alternate_timeout = a.alt_timeout;
    out.path_migration_state = static_cast<std::uint8_t>(a.path_mig_state);
    if ((mask & IBV_QP_AV) != 0) {
        const Result<transport::AddressVector> address = address_vector(context, a.ah_attr);
        if (!address) return address.error();
        out.address = *address;
    }
    if ((mask & IBV_QP_ALT_PATH) != 0) {
        const Result<transport::AddressVector> address = address_vector(context, a.alt_ah_attr);
        if (!address) return address.error();
        out.alternate_address = *address;
    }
    return out;
}

ibv_qp_attr qp_attr(const transport::QueuePair& qp, const ibv_qp_cap& capabilities) {
    const QpAttributes& from = qp.attributes();
    const transport::Progress progress = qp.machine().progress();
    ibv_qp_attr out{};
    out.qp_state = static_cast<ibv_qp_state>(from.state);
    out.cur_qp_state = out.qp_state;
    out.path_mtu = mtu_enum(from.path_mtu);
    out.path_mig_state = static_cast<ibv_mig_state>(from.path_migration_state);
    out.qkey = from.qkey.raw;
    out.rq_psn = progress.expected.raw();
    out.sq_psn = progress.next.raw();
    out.dest_qp_num = from.destination_qpn.raw;
    out.qp_access_flags = from.access.raw;
    out.cap = capabilities;
    out.ah_attr = ah_attr(from.address);
    out.alt_ah_attr = ah_attr(from.alternate_address);
    out.pkey_index = from.pkey_index;
    out.alt_pkey_index = from.alternate_pkey_index;
    out.sq_draining = progress.draining ? 1 : 0;
    out.en_sqd_async_notify = from.drain_notify ? 1 : 0;
    out.max_rd_atomic = from.read_atomic_max;
    out.max_dest_rd_atomic = from.dest_read_atomic_max;
    out.min_rnr_timer = from.min_rnr_timer;
    out.port_num = from.port;
    out.timeout = from.timeout;
    out.retry_cnt = from.retry_count;
    out.rnr_retry = from.rnr_retry;
    out.alt_port_num = from.alternate_port;
    out.alt_timeout = from.alternate_timeout;
    return out;
}

}  // namespace feroce::verbs
